"""CUDA graph trees: what `torch.compile(mode="reduce-overhead")` records and replays.

The compiler and its kernels need a GPU, so the trees' own classes are driven with plain functions
(:mod:`support.graph_trees`). Each program runs under Genesis and under PyTorch's own allocator, and
must return the same.
"""

from __future__ import annotations

import functools
import traceback
from typing import Any

import pytest
import torch

from support.graph_trees import MIB, PROGRAMS, end, zeros
from support.program import program, run


def every_program() -> dict[str, Any]:
    """What each program returned, or how it failed."""
    results: dict[str, Any] = {}
    for one in PROGRAMS:
        try:
            results[one.__name__] = one()
        except Exception:
            results[one.__name__] = traceback.format_exc()
            end()
    return results


@functools.cache
def results(mode: str, strategy: str = "Elastic") -> Any:
    env = {"GENESIS_POOL_TYPE": strategy, "SIMCUDA_DEVICES": "2"}
    return run(every_program, mode, env)


@pytest.mark.parametrize("strategy", ["Elastic", "Caching"])
@pytest.mark.parametrize("one", [one.__name__ for one in PROGRAMS])
def test_trees_do_what_they_do_with_pytorchs_allocator(one: str, strategy: str) -> None:
    own, pytorchs = results("enabled", strategy)[one], results("native")[one]
    assert isinstance(pytorchs, list), f"with PyTorch's allocator: {pytorchs}"
    assert own == pytorchs


@program()
def test_a_state_that_cannot_be_set_changes_nothing() -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        kept = zeros(3 * MIB)
        state = torch._C._cuda_getCheckpointState(0, pool.id)
        more = zeros(MIB)
    own = kept.untyped_storage()._cdata
    before = pool.snapshot()
    with pytest.raises(RuntimeError, match="must be passed as stale"):
        torch._C._cuda_setCheckpointPoolState(0, state, [], [])
    with pytest.raises(RuntimeError, match="has a deleter"):
        torch._C._cuda_setCheckpointPoolState(0, state, [more.untyped_storage()._cdata], [own])
    assert pool.snapshot() == before
    kept.zero_()
    more.zero_()


@program()
def test_a_request_that_no_device_can_serve_still_fails() -> None:
    """Blocks are made known to PyTorch by such a request; no other gets one."""
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError):
            torch._C._cuda_cudaCachingAllocator_raw_alloc(1 << 62, 0)
    torch._C._cuda_cudaCachingAllocator_raw_delete(
        torch._C._cuda_cudaCachingAllocator_raw_alloc(512, 0)
    )


@program()
def test_without_genesis_functions_are_pytorchs_again() -> None:
    import genesis.torch

    genesis.torch.restore()
    with pytest.raises(RuntimeError, match="getCheckpointState"):
        torch._C._cuda_getCheckpointState(0, torch.cuda.graph_pool_handle())
