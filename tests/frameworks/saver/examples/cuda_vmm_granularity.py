"""Sizes that are no multiples of the driver's pages, and a tensor freed while it is paused."""

from .common import saver, torch, used


def run(hook_mode: str) -> None:
    memory = saver(hook_mode)
    sizes = (1, 513, (2 << 20) + 1, (21 << 20) + 7)
    tensors = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes]
    memory.pause()
    paused = used()
    del tensors[2:]
    torch.cuda.empty_cache()
    memory.resume()
    assert used() >= paused and [tensor.numel() for tensor in tensors] == [1, 513]
    again = torch.empty(sizes[3], dtype=torch.uint8, device="cuda")
    memory.pause()
    memory.resume()
    assert again.numel() == sizes[3]
