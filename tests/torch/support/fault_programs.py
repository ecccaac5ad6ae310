"""Programs in which every call of the driver fails in turn (``tests/torch/test_faults.py``).

Each drops whatever it has made, also when it ends with an error of PyTorch's.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Callable

import torch

from support.graph_trees import Function, doubled, end, joined, step, zeros
from support.memory import MIB, block

#: A device on which the programs find too little memory once, in bytes.
DEVICE = "192MiB"


def pools() -> None:
    """MemPools: blocks inside, outside, of two streams; a pool that goes before its blocks; a
    request that a pool lends memory for; and one for which there is none."""
    pool, lender = torch.cuda.MemPool(), torch.cuda.MemPool(use_on_oom=True)
    other = torch.cuda.Stream()
    with torch.cuda.use_mem_pool(pool):
        kept = [block(3 * MIB), block(700), block(21 * MIB)]
        with torch.cuda.stream(other):
            kept.append(block(MIB))
    with torch.cuda.use_mem_pool(lender):
        lent = block(48 * MIB)
    lent.record_stream(other)
    del lent
    outside = [block(16 * MIB) for _ in range(3)]
    pool.snapshot()
    kept[0].record_stream(other)
    del kept[0], pool
    try:
        outside.append(block(60 * MIB))
        outside.append(block(400 * MIB))
    except torch.OutOfMemoryError:
        outside.clear()
    torch.cuda.empty_cache()
    kept.append(block(5 * MIB))


def graph_trees() -> None:
    """CUDA graph trees: a warm-up, recordings, replays, a branch behind a restored state."""
    trunk = Function(doubled, 2)
    branches = [Function(joined, 1) for _ in range(2)]
    try:
        for index in (0, 0, 0, 1, 1, 0):
            one_generation(trunk, branches[index])
    finally:
        end(trunk, *branches)


def one_generation(trunk: Function, branch: Function) -> None:
    step()
    first, second = trunk(zeros(3 * MIB))
    branch(first, second)


def history() -> None:
    """The history of memory: recorded, read as a snapshot, written to a file, switched off."""
    record = torch.cuda.memory._record_memory_history
    record(max_entries=200, stacks="python")
    try:
        tensors = [block(size) for size in (700, MIB, 11 * MIB, 30 * MIB)]
        del tensors[1]
        torch.cuda.empty_cache()
        tensors.append(block(2 * MIB))
        with tempfile.TemporaryDirectory() as folder:
            torch.cuda.memory._dump_snapshot(str(Path(folder, "snapshot.pickle")))
        torch.cuda.memory_snapshot()
    finally:
        record(None)


def profiled() -> None:
    """PyTorch's profiler, which is told of each block and of a shortage."""
    # What it finds out about kernels, it asks of a real driver.
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, profile_memory=True) as profile:
        tensors = [block(size) for size in (700, MIB, 11 * MIB, 30 * MIB)]
        del tensors[2]
        try:
            block(400 * MIB)
        except torch.OutOfMemoryError:
            tensors.clear()
    profile.events()


def graphs() -> None:
    """Graphs that share a pool, replayed, with memory of another stream, and dropped in turn."""
    stream, other = torch.cuda.Stream(), torch.cuda.Stream()
    made = [torch.cuda.CUDAGraph() for _ in range(2)]
    source = zeros(2 * MIB)
    pool = torch.cuda.graph_pool_handle()
    results = []
    for graph in made:
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            scratch = source + 1
            other.wait_stream(stream)
            with torch.cuda.stream(other):
                results.append(scratch * 2)
            scratch.record_stream(other)
            stream.wait_stream(other)
            del scratch
    for graph in made:
        graph.replay()
    made[0].reset()
    del results[0]
    torch.cuda.empty_cache()
    results.append(block(40 * MIB))


PROGRAMS: list[Callable[[], Any]] = [pools, graph_trees, history, profiled, graphs]
