"""`torch.cuda.MemPool` and `torch.cuda.use_mem_pool` in direct mode. Where PyTorch's own allocator
does the same, the program runs under both."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
import torch
from torch.cuda import MemPool as imported_early

import genesis
import genesis.torch
from support.own_allocator import driver
from support.program import OUT_OF_MEMORY, program, run

MIB = 1 << 20

BOTH = ("enabled", "native")


def block(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def live(pool: torch.cuda.MemPool) -> list[tuple[int, int]]:
    """Addresses and requested sizes of the live blocks of a pool."""
    blocks = [block for segment in pool.snapshot() for block in segment["blocks"]]
    return sorted(
        (block["address"], block["requested_size"])
        for block in blocks
        if block["state"] == "active_allocated"
    )


def held(pool: torch.cuda.MemPool) -> int:
    return sum(segment["total_size"] for segment in pool.snapshot())


@program(modes=BOTH)
def test_a_pools_memory_is_apart() -> None:
    pool = torch.cuda.MemPool()
    assert isinstance(pool, torch.cuda.MemPool)
    assert pool.use_count() == 1
    assert pool.snapshot() == []
    outside = block(32 * MIB)
    cached = outside.data_ptr()
    del outside
    with torch.cuda.use_mem_pool(pool):
        assert pool.use_count() == 2
        inside = block(32 * MIB)
    assert pool.use_count() == 1
    assert inside.data_ptr() != cached
    assert live(pool) == [(inside.data_ptr(), 32 * MIB)]
    again = block(32 * MIB)
    assert again.data_ptr() == cached
    assert len(live(pool)) == 1
    address = inside.data_ptr()
    del inside
    assert live(pool) == []
    assert held(pool) >= 32 * MIB
    torch.cuda.empty_cache()
    assert held(pool) >= 32 * MIB, "memory of a pool that lives is kept"
    with torch.cuda.use_mem_pool(pool):
        inside = block(32 * MIB)
    assert inside.data_ptr() == address


@program(modes=BOTH)
def test_ids_are_used_once() -> None:
    pools = [torch.cuda.MemPool() for _ in range(3)]
    ids = [pool.id for pool in pools]
    ids.append(torch.cuda.graph_pool_handle())
    del pools
    ids.append(torch.cuda.MemPool().id)
    assert len(set(ids)) == 5
    assert all(isinstance(part, int) for pair in ids for part in pair)


@program(modes=BOTH)
def test_tensors_outlive_their_pool() -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        kept, dropped = block(32 * MIB), block(48 * MIB)
    before = torch.cuda.memory_reserved()
    del dropped
    assert torch.cuda.memory_reserved() == before
    del pool
    gc.collect()
    assert torch.cuda.memory_reserved() <= before - 48 * MIB, "free memory went with the pool"
    kept.zero_()
    torch.cuda.synchronize()
    assert torch.cuda.memory_reserved() >= 32 * MIB
    del kept
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0


@program(modes=BOTH)
def test_of_nested_pools_the_inner_one_serves() -> None:
    outer, inner = torch.cuda.MemPool(), torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(outer):
        first = block(3 * MIB)
        with torch.cuda.use_mem_pool(inner):
            second = block(3 * MIB)
        third = block(3 * MIB)
    fourth = block(3 * MIB)
    assert [address for address, _ in live(inner)] == [second.data_ptr()]
    assert [address for address, _ in live(outer)] == sorted([first.data_ptr(), third.data_ptr()])
    del fourth


@program(modes=BOTH)
def test_a_pool_is_not_begun_within_itself() -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        with pytest.raises(RuntimeError), torch.cuda.use_mem_pool(pool):
            pass
        tensor = block(MIB)
    assert live(pool) == [(tensor.data_ptr(), MIB)]
    if torch.cuda.get_allocator_backend() == "native":
        # PyTorch's allocator counts the use that failed.
        torch._C._cuda_releasePool(0, pool.id)
    assert pool.use_count() == 1


@program(modes=BOTH)
def test_each_thread_has_its_pool() -> None:
    found: list[Any] = []
    meeting = threading.Barrier(5)

    def work() -> None:
        pool = torch.cuda.MemPool()
        meeting.wait()
        with torch.cuda.use_mem_pool(pool):
            tensors = [block(3 * MIB) for _ in range(20)]
            meeting.wait()
        addresses = sorted(tensor.data_ptr() for tensor in tensors)
        found.append((addresses, [address for address, _ in live(pool)]))
        meeting.wait()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    meeting.wait()
    meeting.wait()
    outside = [block(3 * MIB) for _ in range(20)]
    meeting.wait()
    for thread in threads:
        thread.join()
    everything = {tensor.data_ptr() for tensor in outside}
    for used, known in found:
        assert used == known
        everything.update(used)
    assert len(everything) == 100


@program(modes=BOTH)
def test_a_graph_in_a_pool() -> None:
    pool = torch.cuda.MemPool()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool.id):
        result = torch.zeros(3 * MIB, device="cuda") + 1
    assert pool.use_count() == 2
    assert live(pool) == [(result.data_ptr(), 12 * MIB)]
    graph.replay()
    torch.cuda.synchronize()
    del result
    identifier = pool.id
    del pool
    gc.collect()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.cuda.memory_reserved() >= 12 * MIB, f"the graph still uses {identifier}"
    graph.reset()


@program(modes=BOTH, env={"SIMCUDA_MEMORY": "1GiB", "GENESIS_LOG": "off"})
def test_memory_of_a_pool_helps_when_it_runs_out() -> None:
    total = torch.cuda.mem_get_info()[1]
    half = total // 2 // MIB * MIB
    pool = torch.cuda.MemPool(use_on_oom=True)
    with torch.cuda.use_mem_pool(pool):
        address = block(half).data_ptr()
    other = block(half - 64 * MIB)
    helped = block(half - 32 * MIB)
    assert helped.data_ptr() == address
    assert live(pool) == [(address, half - 32 * MIB)]
    del helped
    assert live(pool) == []
    with pytest.raises(torch.OutOfMemoryError):
        block(half + 64 * MIB)
    del other
    torch.cuda.empty_cache()


@program(modes=("enabled",), env={"SIMCUDA_MEMORY": "1GiB"}, says=OUT_OF_MEMORY)
def test_memory_of_other_pools_does_not() -> None:
    total = torch.cuda.mem_get_info()[1]
    half = total // 2 // MIB * MIB
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        block(half)
    other = block(half - 64 * MIB)
    with pytest.raises(torch.OutOfMemoryError):
        block(half - 32 * MIB)
    del other, pool
    gc.collect()
    block(half + 64 * MIB)


@pytest.mark.parametrize("strategy", ["Caching", "Elastic"])
def test_segments_stay_whole_with_no_split(strategy: str) -> None:
    assert run(no_split, "enabled", {"GENESIS_POOL_TYPE": strategy}) == run(no_split, "native")


def no_split() -> list[int]:
    pool = torch.cuda.MemPool(no_split=True)
    counts = []
    for sizes in ((700, 700, 3 * MIB, 33 * MIB), (500, 3 * MIB, 33 * MIB)):
        with torch.cuda.use_mem_pool(pool):
            tensors = [block(size) for size in sizes]
        segments = pool.snapshot()
        assert all(len(segment["blocks"]) == 1 for segment in segments)
        counts.append(len(segments))
        counts.append(len(live(pool)))
        del tensors
    return counts


@program(modes=BOTH)
def test_memory_comes_from_the_pools_allocator() -> None:
    with driver() as source:
        pool = torch.cuda.MemPool(source.allocator)
        outside = block(32 * MIB)
        with torch.cuda.use_mem_pool(pool):
            tensors = [block(size) for size in (700, MIB, 3 * MIB, 32 * MIB)]
        assert all(source.has(tensor) for tensor in tensors)
        assert not source.has(outside)
        assert source.streams == {0}
        assert [size for _, size in live(pool)] != []
        assert sorted(size for _, size in live(pool)) == [700, MIB, 3 * MIB, 32 * MIB]
        assert torch.cuda.memory_allocated() >= 68 * MIB
        assert torch.cuda.memory_reserved() >= sum(source.live.values())
        segments = len(source.live)
        del tensors
        assert len(source.live) == segments, "it is cached"
        with torch.cuda.use_mem_pool(pool):
            kept = block(32 * MIB)
        assert len(source.live) == segments
        del pool
        gc.collect()
        assert source.has(kept)
        assert len(source.live) == 1
        kept.zero_()
        del kept
        torch.cuda.empty_cache()
        assert source.live == {}


@program(modes=BOTH, env={"GENESIS_LOG": "off"})
def test_an_allocator_without_memory_is_a_shortage() -> None:
    with driver() as source:
        pool = torch.cuda.MemPool(source.allocator)
        source.refuses = True
        with torch.cuda.use_mem_pool(pool), pytest.raises(torch.OutOfMemoryError):
            block(MIB)
        outside = block(MIB)
        source.refuses = False
        with torch.cuda.use_mem_pool(pool):
            inside = block(MIB)
        assert source.has(inside)
        del outside, inside


@program()
def test_genesis_as_the_allocator_of_a_pool_is_genesis() -> None:
    from genesis.torch import _plug

    pool = torch.cuda.MemPool(_plug.allocator().allocator(), use_on_oom=True)
    with torch.cuda.use_mem_pool(pool):
        tensor = block(MIB)
    assert live(pool) == [(tensor.data_ptr(), MIB)]


@program()
def test_what_is_no_allocator_is_an_error() -> None:
    for wrong in ("libcuda.so", 3, object()):
        with pytest.raises(TypeError, match="allocator must be"):
            torch.cuda.MemPool(wrong)  # type: ignore[arg-type]


@program()
def test_the_class_that_was_imported_early_makes_pools() -> None:
    assert imported_early is not torch.cuda.MemPool
    pool = imported_early(use_on_oom=True)
    assert isinstance(pool, torch.cuda.MemPool)
    with torch.cuda.use_mem_pool(pool):
        tensor = block(MIB)
    assert live(pool) == [(tensor.data_ptr(), MIB)]
    genesis.torch.restore()
    assert torch.cuda.MemPool is torch.cuda.memory.MemPool is imported_early
    with pytest.raises(RuntimeError):
        imported_early()
    assert pool.use_count() == 1, "pools that are there go on"


@program(env={"SIMCUDA_DEVICES": "2"})
def test_a_pool_is_of_the_device_that_was_current() -> None:
    with torch.cuda.device(1):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            tensor = torch.empty(MIB, dtype=torch.uint8, device="cuda:1")
            elsewhere = torch.empty(MIB, dtype=torch.uint8, device="cuda:0")
    assert live(pool) == [(tensor.data_ptr(), MIB)]
    assert [segment["device"] for segment in pool.snapshot()] == [1]
    # On another device the pool lasts as long as its use.
    with torch.cuda.use_mem_pool(pool, 0):
        other = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda:0")
    assert live(pool) == [(tensor.data_ptr(), MIB)]
    del other, elsewhere
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved(0) == 0
    assert genesis.stats(1).reserved_bytes.current >= MIB
