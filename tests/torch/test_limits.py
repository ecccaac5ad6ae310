"""Limits, the cache, and the memory reported as free."""

from __future__ import annotations

import torch

import genesis
from support import simcuda
from support.program import OUT_OF_MEMORY, program

GIB = 1 << 30
MIB = 1 << 20


def block(n: int) -> torch.Tensor:
    return torch.empty(n, dtype=torch.uint8, device="cuda")


def refused(n: int) -> bool:
    try:
        block(n)
    except torch.OutOfMemoryError:
        return True
    return False


@program(says=OUT_OF_MEMORY)
def test_the_fraction_of_a_process_is_kept() -> None:
    torch.cuda.set_per_process_memory_fraction(0.25)
    assert torch.cuda.get_per_process_memory_fraction() == 0.25
    fits = block(19 * GIB)
    assert refused(2 * GIB)
    assert simcuda.used_bytes() <= 20 * GIB
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert not refused(2 * GIB)
    del fits


@program()
def test_a_fraction_counts_what_is_reserved() -> None:
    """Cached memory is released before the limit is exceeded."""
    torch.cuda.set_per_process_memory_fraction(0.5)
    for gib in (10, 20, 30, 38, 12):
        block(gib * GIB)
        assert simcuda.used_bytes() <= 40 * GIB


@program()
def test_a_wrong_fraction_is_refused() -> None:
    for wrong in (-0.1, 1.5):
        try:
            torch.cuda.set_per_process_memory_fraction(wrong)
        except ValueError:
            continue
        raise AssertionError(wrong)


@program()
def test_the_cache_is_emptied() -> None:
    kept = block(30 * MIB)
    blocks = [block(30 * MIB) for _ in range(4)]
    del blocks
    # Memory comes in extents, which are not cut where blocks end.
    assert 150 * MIB <= torch.cuda.memory_reserved() <= 192 * MIB
    torch.cuda.empty_cache()
    assert 30 * MIB <= torch.cuda.memory_reserved() == simcuda.used_bytes() <= 64 * MIB
    del kept


@program()
def test_cached_memory_is_said_to_be_free() -> None:
    free_before, total = torch.cuda.mem_get_info()
    assert total == 80 * GIB
    tensor = block(10 * GIB)
    assert torch.cuda.mem_get_info() == (free_before - 10 * GIB, total)
    del tensor
    assert torch.cuda.memory_reserved() == 10 * GIB
    assert torch.cuda.mem_get_info(torch.device("cuda", 0)) == (free_before, total)


@program(
    modes=("two_symbols", "enabled"), env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
)
def test_expandable_segments_in_the_environment() -> None:
    """A setting for PyTorch's own allocator, found in many users' environments."""
    tensors = [block(n * MIB) for n in (1, 3, 30, 300)]
    del tensors[1]
    tensors.append(block(2 * MIB))
    assert genesis.stats(0).allocated_bytes.current == 333 * MIB
