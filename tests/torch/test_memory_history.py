"""``torch.cuda.memory._record_memory_history`` beyond what ``test_answers`` compares: other
strategies, several devices and threads, beside a profile, and what is named in a warning."""

from __future__ import annotations

import os
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import genesis
import genesis.torch
from support import memory_viz, tier
from support.memory import MIB, block
from support.models import Shape, train
from support.program import program, run

record = torch.cuda.memory._record_memory_history
snapshot = torch.cuda.memory._snapshot


def dumped() -> list[int]:
    """Trains, and dumps two snapshots."""
    folder = Path(os.environ["SNAPSHOTS"])
    record()
    train(Shape(layers=2), lengths=[64, 128])
    torch.cuda.memory._dump_snapshot(str(folder / "before.pickle"))
    train(Shape(layers=1), lengths=[256])
    torch.cuda.memory._dump_snapshot(str(folder / "after.pickle"))
    segments = torch.cuda.memory_snapshot()
    reserved = sum(segment["total_size"] for segment in segments)
    allocated = sum(segment["allocated_size"] for segment in segments)
    assert reserved == torch.cuda.memory_reserved()
    assert allocated == torch.cuda.memory_allocated()
    return [reserved, allocated]


@pytest.mark.parametrize(
    "pool_type",
    tier.some_or_all(["Elastic"], ["Elastic", "Caching", "Exact", "Round", "Naive"]),
)
def test_pytorchs_viewer_reads_every_strategys(pool_type: str, tmp_path: Path) -> None:
    env = {"SNAPSHOTS": str(tmp_path), "GENESIS_POOL_TYPE": pool_type}
    run(dumped, "enabled", env=env)
    before, after = str(tmp_path / "before.pickle"), str(tmp_path / "after.pickle")
    memory_viz.check(before, after)
    taken = memory_viz.read(after)
    trace = taken["device_traces"][0]
    assert sum(entry["action"] == "snapshot" for entry in trace) == 1, "the first one's"
    names = {frame["name"] for entry in trace for frame in entry.get("frames", [])}
    assert "train" in names, sorted(names)[:50]
    assert any("apply" in name for name in names), "the backward pass has native frames"


@program(env={"SIMCUDA_DEVICES": "2"})
def test_every_device_has_its_history() -> None:
    record(stacks="python", max_entries=4)
    kept = [block(100), torch.empty(200, dtype=torch.uint8, device="cuda:1")]
    for _ in range(20):
        block(5000)
    first, second = snapshot()["device_traces"]
    actions = [entry["action"] for entry in first]
    assert actions == ["free_completed", "alloc", "free_requested", "free_completed"]
    assert (second[-1]["action"], second[-1]["size"]) == ("alloc", 200)
    del kept


@program(modes=("enabled",))
def test_a_pool_is_named_as_before_2_11_too() -> None:
    """Without a word on the history, which is then there."""
    record()
    held, pool = block(MIB), torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        pooled = block(MIB)
    taken = torch._C._cuda_memorySnapshot(pool.id)
    addresses = [one["address"] for one in taken["segments"]]
    assert addresses and all(one["segment_pool_id"] == pool.id for one in taken["segments"])
    assert taken["device_traces"][0]
    assert torch._C._cuda_memorySnapshot((0, 0))["segments"] != taken["segments"]
    del held, pooled


@program()
def test_beside_a_profile() -> None:
    genesis.memory_profiler.start()
    record(stacks="python")
    kept = block(5 * MIB)
    record(None)
    block(7 * MIB)
    report = genesis.memory_profiler.get_report()
    assert report.devices[0].allocations == 2
    assert all(site.location.endswith("(block)") for site in report.call_sites), report.call_sites
    genesis.memory_profiler.stop()
    assert snapshot()["device_traces"] == [[]]
    record(stacks="python")
    del kept
    assert snapshot()["device_traces"][0][0]["action"] == "free_requested"


@program()
def test_threads_record_and_take_snapshots() -> None:
    """Each thread has its own metadata; snapshots in between lose nothing."""
    record(stacks="python")
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            torch.cuda.memory._set_memory_metadata(name)
            for n in range(50):
                block(1000 + n)
                if n % 20 == 0:
                    snapshot()
            assert torch.cuda.memory._get_memory_metadata() == name
        except BaseException as failure:  # seen by the program
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(f"thread {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    (trace,) = snapshot()["device_traces"]
    for n in range(4):
        own = [one["action"] for one in trace if one["user_metadata"] == f"thread {n}"]
        assert own.count("alloc") == own.count("free_requested") == 50, own
    assert sum(one["action"] == "snapshot" for one in trace) == 12
    times = [one["time_us"] for one in trace]
    assert times == sorted(times)


@program()
def test_what_is_not_recorded_is_named_once() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            record(compile_context=True, global_record_annotations=True)
    texts = [str(one.message) for one in caught]
    assert [("compile_context" in text, "annotations" in text) for text in texts] == [
        (True, False),
        (False, True),
    ], texts
    with genesis.annotate("a part"):
        block(100)
    stages: list[Any] = [(one["stage"], one["name"]) for one in snapshot()["external_annotations"]]
    assert stages == [("START", "a part"), ("END", "a part")]


@program()
def test_the_history_ends_with_the_process() -> None:
    """Nobody has ended it, and the program still ends as it should."""
    record()
    train(Shape(layers=1), lengths=[64])


@program()
def test_a_short_history_is_never_shorter() -> None:
    """The library keeps its events in pieces."""
    record(stacks="python", max_entries=5, skip_actions=["snapshot", "segment_map"])
    for n in range(3 * 8192 + 100):
        block(600)
        if n % 8192 in (0, 1, 8190, 8191):
            actions = [entry["action"] for entry in snapshot()["device_traces"][0]]
            expected = ["free_requested", "free_completed"] * (n > 0) + ["alloc"]
            assert actions == [*expected, "free_requested", "free_completed"][-5:], (n, actions)
