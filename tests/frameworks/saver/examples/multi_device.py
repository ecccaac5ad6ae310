"""Regions on two devices."""

from .common import is_equal, saver, torch, used, values


def run(hook_mode: str) -> None:
    memory = saver(hook_mode)
    tensors = []
    for device in (0, 1):
        torch.cuda.set_device(device)
        with memory.region(tag=f"device {device}", enable_cpu_backup=True):
            tensors.append(values(device, 5_000_000).cuda())
    before = used()
    memory.pause("device 1")
    assert used() <= before - tensors[1].nbytes
    is_equal(tensors[0], values(0, 5_000_000))
    memory.pause()
    assert used() <= before - 2 * tensors[1].nbytes
    memory.resume()
    for device, tensor in enumerate(tensors):
        assert tensor.device.index == device
        is_equal(tensor, values(device, 5_000_000))
