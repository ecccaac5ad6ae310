"""Private pools."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from support.memory import MIB, block, mixed
from support.own_allocator import driver
from support.program import OUT_OF_MEMORY
from support.rows import row

ACTIVE = "active_allocated"


def shape(segments: list[dict[str, Any]]) -> list[Any]:
    """What does not depend on addresses."""
    return sorted(
        [
            segment["total_size"],
            segment["allocated_size"],
            segment["active_size"],
            segment["requested_size"],
            segment["segment_type"],
            segment["is_expandable"],
            segment["stream"],
            [
                [one["size"], one["requested_size"] if one["state"] == ACTIVE else 0, one["state"]]
                for one in segment["blocks"]
            ],
        ]
        for segment in segments
    )


def levels() -> list[int]:
    return [torch.cuda.memory_allocated(), torch.cuda.memory_reserved()]


@row(
    "torch.cuda.MemPool",
    "torch.cuda.MemPool.id",
    "torch.cuda.MemPool.use_count",
    "torch.cuda.MemPool.snapshot",
    "torch.cuda.use_mem_pool",
    "torch._C._cuda_beginAllocateCurrentThreadToPool",
    "torch._C._cuda_endAllocateToPool",
    "torch._C._cuda_releasePool",
)
def pools() -> list[Any]:
    pool = torch.cuda.MemPool()
    found = [pool.use_count(), pool.snapshot(), len(pool.id), pool.id != torch.cuda.MemPool().id]
    outside = block(5 * MIB)
    with torch.cuda.use_mem_pool(pool):
        found.append(pool.use_count())
        kept = mixed()
    found += [pool.use_count(), shape(pool.snapshot()), levels()]
    found.append(shape(torch.cuda.memory_snapshot(pool.id)))
    torch.cuda.empty_cache()
    found.append(levels())
    with torch.cuda.use_mem_pool(pool, 0):
        torch.cuda.empty_cache()
        more = block(30 * MIB)
    found.append(levels())
    del kept[1:], more
    found.append(shape(pool.snapshot(include_traces=False)))
    del pool
    gc.collect()
    found.append(levels())
    del kept, outside
    torch.cuda.empty_cache()
    return [*found, levels()]


@row("torch.cuda.MemPool.snapshot(include_traces=…)")
def snapshot_of_a_pool() -> list[Any]:
    torch.cuda.memory._record_memory_history(context="all", stacks="python")
    pool = torch.cuda.MemPool()
    outside = block(3 * MIB)
    with torch.cuda.use_mem_pool(pool):
        inside = block(3 * MIB)
    found = []
    for has_traces in (True, False):
        segments = pool.snapshot(include_traces=has_traces)
        blocks = [one for segment in segments for one in segment["blocks"]]
        live = [one for one in blocks if one["state"] == ACTIVE]
        found.append(
            [sorted(segments[0]), sorted(live[0]), live[0]["address"] == inside.data_ptr()]
        )
        found.append([frame["name"] for frame in live[0]["frames"]][:2])
        found.append([frame["name"] for frame in segments[0]["frames"]][:2])
    torch.cuda.memory._record_memory_history(enabled=None)
    assert outside.nbytes == inside.nbytes
    return found


@row("torch.cuda.MemPool(use_on_oom=…)", env={"SIMCUDA_MEMORY": "1GiB"}, says=OUT_OF_MEMORY)
def pools_that_help() -> list[Any]:
    half = torch.cuda.mem_get_info()[1] // 2 // MIB * MIB
    pool = torch.cuda.MemPool(use_on_oom=True)
    with torch.cuda.use_mem_pool(pool):
        address = block(half).data_ptr()
    other = block(half - 64 * MIB)
    helped = block(half - 32 * MIB)
    found = [helped.data_ptr() == address, torch.cuda.memory_stats()["num_ooms"], levels()]
    with pytest.raises(torch.OutOfMemoryError):
        block(half + 64 * MIB)
    del other, helped
    return [*found, torch.cuda.memory_stats()["num_ooms"], levels()]


@row("torch.cuda.MemPool(no_split=…)")
def pools_that_do_not_split() -> list[Any]:
    pool = torch.cuda.MemPool(no_split=True)
    found = []
    for sizes in ((700, 700, 3 * MIB, 33 * MIB), (500, 3 * MIB, 33 * MIB)):
        with torch.cuda.use_mem_pool(pool):
            tensors = [block(size) for size in sizes]
        found.append(shape(pool.snapshot()))
        del tensors
    return found


@row("torch.cuda.MemPool(allocator=…)")
def pools_of_another_allocator() -> list[Any]:
    with driver() as source:
        pool = torch.cuda.MemPool(source.allocator)
        with torch.cuda.use_mem_pool(pool):
            tensors = [block(size) for size in (700, MIB, 3 * MIB, 32 * MIB)]
        found = [sorted(source.live.values()), shape(pool.snapshot()), levels()]
        del tensors
        found.append(sorted(source.live.values()))
        del pool
        gc.collect()
        torch.cuda.empty_cache()
        return [*found, sorted(source.live.values()), levels()]


@row(
    "torch._C._cuda_beginAllocateToPool",
    "torch._C._cuda_beginAllocateCurrentStreamToPool",
)
def whose_requests_come_from_a_pool() -> list[Any]:
    torch.cuda.init()
    side = torch.cuda.Stream()
    found = []
    for begin in (
        torch._C._cuda_beginAllocateToPool,
        torch._C._cuda_beginAllocateCurrentStreamToPool,
        torch._C._cuda_beginAllocateCurrentThreadToPool,
    ):
        pool = torch.cuda.graph_pool_handle()
        with torch.cuda.stream(side):
            begin(0, pool)
        main = block(3 * MIB)
        with torch.cuda.stream(side):
            aside = block(5 * MIB)
        torch._C._cuda_endAllocateToPool(0, pool)
        after = block(7 * MIB)
        found.append(sorted(one[0] for one in shape(torch.cuda.memory_snapshot(pool))))
        found.append(sorted(one[3] for one in shape(torch.cuda.memory_snapshot(pool))))
        torch._C._cuda_releasePool(0, pool)
        del main, aside, after
        torch.cuda.empty_cache()
        found.append(levels())
    return found


@row("torch._C._cuda_endAllocateToPool(…) where nothing is begun")
def misuse_of_pools() -> list[str]:
    torch.cuda.init()
    pool = torch.cuda.graph_pool_handle()
    found = []
    torch._C._cuda_beginAllocateCurrentThreadToPool(0, pool)
    torch._C._cuda_endAllocateToPool(0, pool)
    try:
        torch._C._cuda_endAllocateToPool(0, pool)
        found.append("ended twice")
    except RuntimeError:
        found.append("RuntimeError")
    torch._C._cuda_releasePool(0, pool)
    return found
