"""Snapshots go through ``torch.cuda._memory_viz``, unmodified, and agree with the statistics."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import torch

import genesis
import genesis.torch
from support import memory_viz
from support.memory import MIB, block
from support.models import Shape, train
from support.own_allocator import driver
from support.program import program, run


def snapshots() -> dict[str, int]:
    """Writes two snapshots of a program that trains, with its history and Python's frames. Returns
    the statistics at the second."""
    folder = Path(os.environ["SNAPSHOTS"])
    genesis.memory_profiler.start()
    train(Shape(layers=2), lengths=[64, 128])
    genesis.snapshot(folder / "before.pickle")
    train(Shape(layers=1), lengths=[256])
    genesis.snapshot(folder / "after.pickle")
    stats = genesis.memory_stats()
    return {"allocated": stats.allocated_bytes, "reserved": stats.reserved_bytes}


def test_pytorchs_viewer_reads_it(tmp_path: Path) -> None:
    stats = run(snapshots, "enabled", env={"SNAPSHOTS": str(tmp_path)})
    before, after = str(tmp_path / "before.pickle"), str(tmp_path / "after.pickle")
    memory_viz.check(before, after)
    memory_viz.check(after, before)
    snapshot = pickle.loads(Path(after).read_bytes())
    segments = snapshot["segments"]
    assert sum(segment["allocated_size"] for segment in segments) == stats["allocated"]
    assert sum(segment["total_size"] for segment in segments) == stats["reserved"]
    files = {
        frame["filename"]
        for trace in snapshot["device_traces"]
        for entry in trace
        for frame in entry["frames"]
    }
    assert any(file.endswith("models.py") for file in files), sorted(files)[:20]


@program(env={"GENESIS_POOL_TYPE": "Elastic"})
def test_segments_and_free_blocks_say_what_they_are() -> None:
    """Extents are expandable segments, and those of a pool's own allocator are not. A free block
    has the size that it was last requested with."""
    with driver() as own:
        pool = torch.cuda.MemPool(own.allocator)
        with torch.cuda.use_mem_pool(pool):
            inside = block(3 * MIB)
        outside, freed = block(3 * MIB), block(5 * MIB - 100)
        del freed
        segments = torch.cuda.memory_snapshot()
        expandable = {one["segment_pool_id"] == pool.id: one["is_expandable"] for one in segments}
        assert expandable == {True: False, False: True}
        blocks = [one for segment in segments for one in segment["blocks"]]
        free = [one["requested_size"] for one in blocks if one["state"] == "inactive"]
        assert 5 * MIB - 100 in free, free
        del inside, outside, pool
