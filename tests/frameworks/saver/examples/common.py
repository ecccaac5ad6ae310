"""What the programs share."""

from __future__ import annotations

from typing import Any

import torch
from torch_memory_saver import torch_memory_saver

from support import simcuda

MIB = 1 << 20


def saver(hook_mode: str) -> Any:
    torch_memory_saver.hook_mode = hook_mode
    return torch_memory_saver


def values(first: int, count: int = 1_000_000) -> torch.Tensor:
    return torch.arange(first, first + count, dtype=torch.int32)


def used() -> int:
    """What the driver has handed out, in bytes."""
    torch.cuda.synchronize()
    return simcuda.used_bytes()


def is_equal(tensor: torch.Tensor, expected: torch.Tensor) -> None:
    assert torch.equal(tensor.cpu(), expected)
