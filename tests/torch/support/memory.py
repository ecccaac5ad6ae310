"""Blocks of memory, for programs that are run with two allocators."""

from __future__ import annotations

import torch

MIB = 1 << 20


def block(n: int) -> torch.Tensor:
    """A tensor of ``n`` bytes."""
    return torch.empty(n, dtype=torch.uint8, device="cuda")


def mixed() -> list[torch.Tensor]:
    """Blocks of both pools, some of which have been freed."""
    sizes = (100, 1000, 300_000, MIB, MIB + 1, 5 * MIB, 11 * MIB, 30 * MIB, 513)
    tensors = [block(n) for n in sizes]
    del tensors[2], tensors[3], tensors[5]
    return tensors
