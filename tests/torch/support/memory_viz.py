"""Runs a snapshot through PyTorch's own viewer:
``python memory_viz.py SNAPSHOT.pickle [OTHER.pickle]``.

Needs a Python with torch, of which only ``torch/cuda/_memory_viz.py`` is loaded, unmodified. Every
function that does not need the network is run, and the sums that it prints are compared with the
snapshot's own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import pickle
import sys
from types import ModuleType
from typing import Any

KEYS = {
    "segment": "device address total_size allocated_size active_size requested_size stream "
    "segment_type segment_pool_id is_expandable frames blocks",
    "block": "address size requested_size state frames",
    "entry": "action size stream time_us compile_context user_metadata",
}


def viewer() -> ModuleType:
    """``torch.cuda._memory_viz``, without importing the rest of torch."""
    torch = importlib.util.find_spec("torch")
    assert torch is not None and torch.submodule_search_locations, "torch is not installed"
    path = f"{torch.submodule_search_locations[0]}/cuda/_memory_viz.py"
    spec = importlib.util.spec_from_file_location("memory_viz", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        return pickle.load(file)


def check_keys(snapshot: dict[str, Any]) -> None:
    for segment in snapshot["segments"]:
        assert list(segment) == KEYS["segment"].split(), segment
        assert isinstance(segment["segment_pool_id"], tuple)
        assert segment["segment_type"] in ("small", "large")
        for block in segment["blocks"]:
            assert list(block) == KEYS["block"].split(), block
            assert block["state"] in ("active_allocated", "active_pending_free", "inactive")
    for trace in snapshot["device_traces"]:
        for entry in trace:
            assert set(KEYS["entry"].split()) <= set(entry), entry
            assert ("device_free" if entry["action"] == "oom" else "addr") in entry, entry
            # PyTorch's own entries about snapshots have none.
            frames = entry.get("frames", []) if entry["action"] == "snapshot" else entry["frames"]
            assert all(set(frame) == {"filename", "name", "line"} for frame in frames)


def check(path: str, other: str) -> None:
    viz = viewer()
    snapshot = read(path)
    check_keys(snapshot)

    summary = viz.segsum(snapshot)
    reserved = sum(segment["total_size"] for segment in snapshot["segments"])
    requested = sum(segment["requested_size"] for segment in snapshot["segments"])
    assert f"total_reserved: {viz.Bytes(reserved)}\n" in summary, summary
    assert f"total_allocated: {viz.Bytes(requested)}\n" in summary, summary

    text = viz.trace(snapshot)
    for trace in snapshot["device_traces"]:
        assert not trace or f"{len(trace)} entries\n" in text

    def unchanged(lines: str) -> str:
        return lines

    by_segment = viz.segments(snapshot, unchanged)
    by_place = viz.memory(snapshot, unchanged)
    allocated = [b for s in snapshot["segments"] for b in s["blocks"] if b["state"] != "inactive"]
    assert by_segment.count(";active_") >= len(allocated), by_segment
    assert by_place or snapshot["segments"] == []
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert viz.compare(snapshot["segments"], read(other)["segments"], unchanged) is not None
    assert "only_before" in said.getvalue()

    for make in (viz.trace_plot, viz.segment_plot):
        assert "MemoryViz.js" in make(snapshot)
    assert "MemoryViz.js" in viz.trace_plot(snapshot, plot_segments=True)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        viz.trace_plot(snapshot, filter_freed=True)
    assert "free_completed without free_requested" not in said.getvalue(), said.getvalue()[:500]
    entries = sum(len(trace) for trace in snapshot["device_traces"])
    print(
        f"{path}: {len(snapshot['segments'])} segments, {viz.Bytes(reserved)} reserved, "
        f"{entries} entries left of the trace without what was freed"
    )


if __name__ == "__main__":
    check(sys.argv[1], sys.argv[-1])
