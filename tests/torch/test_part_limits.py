"""Limits of tags and of private pools, as PyTorch's programs meet them."""

from __future__ import annotations

import threading
from typing import Any, Callable

import pytest
import torch

import genesis
import genesis.torch
from genesis import _sizes
from support import simcuda
from support.memory import MIB, block
from support.program import program, run

GIB = 1 << 30
#: What Genesis writes when a limit stops a request.
LIMIT = "genesis: limit reached: "

_programs: list[Callable[[], Any]] = []


def limited(function: Callable[[], Any]) -> Callable[[], Any]:
    """A program for both strategies."""
    _programs.append(function)
    return function


def refusal(size: int) -> str:
    try:
        block(size)
    except torch.OutOfMemoryError as error:
        return str(error)
    raise AssertionError(f"{size} bytes were served")


def usage(name: str) -> genesis.Tag:
    (found,) = (tag for tag in genesis.tags(0) if tag.name == name)
    return found


@limited
def a_tag_has_a_limit() -> None:
    with genesis.tag("task", limit="64MB"):
        held = [block(32 * MIB) for _ in range(2)]
        text = refusal(2 * MIB)
        assert text.startswith("CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total")
        assert 'The tag "task" may have 64.00 MiB live on GPU 0, and has 64.00 MiB (blocks: 2)' in (
            text
        )
        assert "Genesis holds" not in text, "the device is not short"
    other = block(GIB)
    with genesis.tag("other"):
        another = block(GIB)
    assert torch.cuda.memory_stats()["num_ooms"] == 1
    assert torch.cuda.memory_stats()["num_alloc_retries"] == 0
    assert (usage("task").limit_bytes, usage("task").live_bytes) == (64 * MIB, 64 * MIB)
    assert (usage("task").live_blocks, usage("task").refusals) == (2, 1)
    assert usage("other").limit_bytes is None
    del held[0]
    with genesis.tag("task"):
        held.append(block(32 * MIB))
        refusal(512)
    del held, other, another
    assert usage("task").live_bytes == usage("task").live_blocks == 0


@limited
def nested_tags_and_changes() -> None:
    genesis.limit_tag("job", 48 * MIB)
    with genesis.tag("job"), genesis.tag("step", limit=16 * MIB):
        first = block(16 * MIB)
        assert '"step"' in refusal(MIB)
        genesis.limit_tag("step", None)
        second = block(32 * MIB)
        assert '"job"' in refusal(MIB)
    with genesis.tag("job", limit=None):
        third = block(64 * MIB)
    assert usage("job").limit_bytes is None
    assert usage("job").live_bytes == 112 * MIB
    assert usage("step").live_bytes == 48 * MIB
    del first, second, third


@limited
def threads_and_backward() -> None:
    """A tag counts what any thread allocates under it; blocks keep it wherever they are freed."""
    genesis.limit_tag("task", "96MiB")
    kept: list[torch.Tensor] = []
    refused: list[str] = []

    def work() -> None:
        with genesis.tag("task"):
            for _ in range(3):
                try:
                    kept.append(block(16 * MIB))
                except torch.OutOfMemoryError as error:
                    refused.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(kept), len(refused)) == (6, 6)
    assert usage("task").live_bytes == 96 * MIB
    freeing = threading.Thread(target=kept.clear)
    freeing.start()
    freeing.join()
    assert usage("task").live_bytes == 0


@limited
def the_neighbour_keeps_its_memory() -> None:
    neighbour = [block(256 * MIB) for _ in range(4)]
    del neighbour[1:3]
    reserved, used = torch.cuda.memory_reserved(), simcuda.used_bytes()
    with genesis.tag("task", limit="1MB"):
        for size in (2 * MIB, 512 * MIB, 100 * GIB):
            refusal(size)
    assert (torch.cuda.memory_reserved(), simcuda.used_bytes()) == (reserved, used)
    assert torch.cuda.memory_stats()["num_sync_all_streams"] == 0
    del neighbour


@limited
def observers_are_called() -> None:
    seen: list[tuple[int, int]] = []
    torch._C._cuda_attach_out_of_memory_observer(
        lambda device, alloc, *_: seen.append((device, alloc))
    )
    with genesis.tag("task", limit=MIB):
        refusal(2 * MIB)
    assert seen == [(0, 2 * MIB)]


@limited
def a_pool_has_a_limit() -> None:
    outside = block(256 * MIB)
    with genesis.torch.pool(limit="64MB") as pool:
        held = [block(16 * MIB) for _ in range(4)]
        text = refusal(16 * MIB)
        first, second = pool.id
        assert f"The private pool ({first}, {second}) may reserve 64.00 MiB on GPU 0" in text
        found = genesis.torch.pool_usage(pool)
        assert (found.limit_bytes, found.reserved_bytes) == (64 * MIB, 64 * MIB)
        assert (found.live_bytes, found.refusals) == (64 * MIB, 1)
        del held[2]
        held.append(block(16 * MIB))
        genesis.torch.limit_pool(pool, "80MB")
        held.append(block(16 * MIB))
        genesis.torch.limit_pool(pool, None)
        held.append(block(256 * MIB))
    assert torch.cuda.memory_stats()["num_ooms"] == 1
    with pytest.raises(genesis.InvalidArgumentError):
        genesis.torch.pool_usage(pool)
    del held, outside
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0


@limited
def a_pool_returns_its_own_memory_first() -> None:
    outside = block(64 * MIB)
    del outside
    reserved = torch.cuda.memory_reserved()
    with genesis.torch.pool(limit="48MB") as pool:
        first, second, third = (block(16 * MIB) for _ in range(3))
        del first, third
        large = block(32 * MIB)
        assert genesis.torch.pool_usage(pool).reserved_bytes == 48 * MIB
        assert torch.cuda.memory_reserved() == reserved + 48 * MIB
        refusal(16 * MIB)
    del second, large


@limited
def a_mem_pool_has_a_limit() -> None:
    pool = torch.cuda.MemPool()
    genesis.torch.limit_pool(pool, 32 * MIB)
    with torch.cuda.use_mem_pool(pool):
        tensor = block(32 * MIB)
        refusal(32 * MIB)
        del tensor
        tensor = block(32 * MIB)
    assert genesis.torch.pool_usage(pool).reserved_bytes == 32 * MIB
    del tensor


@program()
def test_wrong_limits() -> None:
    for wrong, error in [(0.5, TypeError), ("much", ValueError), (-1, ValueError)]:
        with pytest.raises(error), genesis.tag("task", limit=wrong):
            raise AssertionError(wrong)
    with pytest.raises(ValueError):
        genesis.limit_tag("task", 1 << 64)
    with pytest.raises(genesis.InvalidArgumentError):
        genesis.limit_tag("", 1)
    assert _sizes.to_bytes("4GB") == 4 * GIB


@program(modes=("two_symbols",), says=LIMIT)
def test_without_direct_mode_a_limit_is_also_pytorchs_own_error() -> None:
    with genesis.tag("task", limit="64MB"):
        held = block(64 * MIB)
        assert '"task"' in refusal(2 * MIB)
    del held


@pytest.mark.parametrize("strategy", ["Elastic", "Caching"])
@pytest.mark.parametrize("one", _programs, ids=[one.__name__ for one in _programs])
def test_limits(one: Callable[[], Any], strategy: str) -> None:
    run(one, "enabled", {"GENESIS_POOL_TYPE": strategy}, says=LIMIT)
