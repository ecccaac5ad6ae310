"""What torch_memory_saver's own tests use of it."""

from __future__ import annotations

import torch

from .utils import is_xpu

__all__ = ["empty_cache", "get_and_print_gpu_memory", "get_device", "is_xpu"]


def get_device() -> str:
    """The word for the kind of device that tensors are on."""
    return "cuda"


def empty_cache() -> None:
    """Returns cached memory to the driver."""
    torch.cuda.empty_cache()


def get_and_print_gpu_memory(message: str, gpu_id: int = 0) -> int:
    """Prints how many bytes of a device are in use, and returns them. Memory that Genesis has
    cached counts as free."""
    free, total = torch.cuda.mem_get_info(gpu_id)
    print(f"GPU {gpu_id}: {(total - free) / 2**30:.2f} GiB ({message})")
    return int(total - free)
