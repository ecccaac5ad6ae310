"""The same region on two devices, by turns."""

from .common import is_equal, saver, torch, values


def run(hook_mode: str) -> None:
    memory = saver(hook_mode)
    tensors = []
    for number in range(4):
        torch.cuda.set_device(number % 2)
        with memory.region(enable_cpu_backup=True):
            tensors.append(values(number).cuda())
    memory.pause()
    memory.resume()
    for number, tensor in enumerate(tensors):
        assert tensor.device.index == number % 2
        is_equal(tensor, values(number))
