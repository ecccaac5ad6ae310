"""History, snapshots, the profiler and everybody else who wants to know."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.cuda._gpu_trace
import torch.cuda._memory_viz as viz
from torch.utils.viz import _cycles

from support.memory import MIB, block, mixed
from support.program import OUT_OF_MEMORY
from support.rows import row

HERE = Path(__file__).name
record = torch.cuda.memory._record_memory_history
snapshot = torch.cuda.memory._snapshot


class Relative:
    """Addresses by the order of their first use, because two allocators have different ones."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

    def of(self, address: int) -> int:
        return self._seen.setdefault(address, len(self._seen))


def frames(of: dict[str, Any]) -> Any:
    """The frames in this file; "none" where there is no such key."""
    if "frames" not in of:
        return "none"
    names = [[Path(one["filename"]).name, one["name"], one["line"]] for one in of["frames"]]
    return [one for one in names if one[0] == HERE]


def plain(taken: dict[str, Any]) -> dict[str, Any]:
    """What two allocators must agree about."""
    relative = Relative()
    traces = [
        [
            [
                *(
                    [entry["action"], sorted(set(entry) - {"frames"}), entry["size"]]
                    if entry["action"] != "snapshot"
                    else [entry["action"], sorted(entry)]
                ),
                relative.of(entry["addr"]) if entry.get("addr") else entry.get("device_free"),
                relative.of(-entry["stream"]),
                entry["user_metadata"],
                entry["compile_context"],
                frames(entry),
            ]
            for entry in trace
        ]
        for trace in taken["device_traces"]
    ]
    return {"keys": sorted(taken), "segments": shapes(taken["segments"]), "traces": traces}


def shapes(segments: list[dict[str, Any]]) -> list[Any]:
    """Segments and their blocks without addresses. Of free blocks PyTorch's allocator has kept what
    they were last."""
    return [
        [
            {
                key: value
                for key, value in segment.items()
                if key not in ("address", "blocks", "stream")
            },
            [
                [block["size"], block["state"], sorted(block), frames(block)]
                + ([] if block["state"] == "inactive" else [block["requested_size"]])
                for block in segment["blocks"]
            ],
        ]
        for segment in segments
    ]


def work() -> list[torch.Tensor]:
    """Everything that has entries: two streams, a block used by both, a shortage."""
    kept = mixed()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        other = block(3 * MIB)
    kept[0].record_stream(side)
    del other, kept[0]
    torch.cuda.synchronize()
    kept.append(block(700))
    with contextlib.suppress(torch.OutOfMemoryError):
        block(200 << 30)
    torch.cuda.empty_cache()
    return kept


@row(
    "torch.cuda.memory._snapshot",
    "torch.cuda.memory._record_memory_history",
    "torch._C._cuda_memorySnapshot",
    "torch._C._cuda_record_memory_history",
    "torch._C._cuda_isHistoryEnabled",
    differs="the same; frames of C++ without debug information have the file of their object, a "
    "free block made of several tells the last request of one of them, and after recording has "
    "ended blocks have no frames; `compile_context` and `global_record_annotations` are named in a "
    "warning",
    says=OUT_OF_MEMORY,
)
def history() -> list[Any]:
    torch.cuda.init()  # PyTorch's own crashes without
    found: list[Any] = [torch._C._cuda_isHistoryEnabled()]
    record(stacks="python")
    kept = work()
    found += [plain(snapshot()), plain(snapshot()), torch._C._cuda_isHistoryEnabled()]
    record(None)
    after = plain(snapshot())
    assert kept
    return [*found, after["traces"], torch._C._cuda_isHistoryEnabled()]


@row("torch.cuda.memory._record_memory_history(context=…, stacks=…)")
def contexts() -> list[Any]:
    found = []
    for context in (None, "state", "alloc", "all"):
        record(context=context, stacks="python", clear_history=True)
        kept = [block(5000), block(100)]
        del kept[0]
        taken = plain(snapshot())
        found.append([taken["traces"], [one[1] for one in taken["segments"]]])
        del kept
        record(None)
    return found


@row("torch.cuda.memory._record_memory_history(enabled=…, max_entries=…, clear_history=…)")
def bounded() -> list[Any]:
    def entries() -> Any:
        return [[entry["action"] for entry in trace] for trace in snapshot()["device_traces"]]

    found = []
    record("state", stacks="python")
    kept = [block(5000), block(100)]
    del kept[0]
    found.append(entries())
    record("all", stacks="python", max_entries=5, clear_history=True)
    for _ in range(10):
        block(7000)
    found.append(entries())
    record("all", stacks="python", clear_history=True)
    kept.append(block(100))
    return [*found, entries()]


@row("torch.cuda.memory._record_memory_history(skip_actions=…)", says=OUT_OF_MEMORY)
def skipped() -> list[Any]:
    record(stacks="python", skip_actions=["free_requested", "segment_alloc", "snapshot"])
    work()
    snapshot()
    found: list[Any] = [plain(snapshot())["traces"]]
    for wrong in (
        {"skip_actions": ["nothing"]},
        {"context": "some"},
        {"stacks": "lua"},
        {"enabled": "maybe"},
    ):
        try:
            record(**wrong)  # type: ignore[arg-type]
        except RuntimeError as error:
            found.append(str(error).splitlines()[0])
    return found


contexts_of_legacy = (
    {"record_context": False},
    {"trace_alloc_max_entries": 100},
    {"trace_alloc_max_entries": 100, "trace_alloc_record_context": True},
)


@row(
    "torch.cuda.memory._record_memory_history_legacy",
    "torch._C._cuda_record_memory_history_legacy",
)
def legacy() -> list[Any]:
    found = []
    for arguments in contexts_of_legacy:
        record(True, clear_history=True, **arguments)
        kept = [block(5000), block(100)]
        del kept[0]
        taken = plain(snapshot())
        found.append([taken["traces"], [one[1] for one in taken["segments"]]])
        del kept
        record(False)
    return found


@row(
    "torch.cuda.memory._set_memory_metadata",
    "torch.cuda.memory._get_memory_metadata",
    "torch._C._cuda_setMemoryMetadata",
    "torch._C._cuda_getMemoryMetadata",
)
def metadata() -> list[Any]:
    record(stacks="python")
    found: list[Any] = [torch.cuda.memory._get_memory_metadata()]
    torch.cuda.memory._set_memory_metadata("the first part")
    kept = block(100)
    found.append(torch.cuda.memory._get_memory_metadata())
    torch.cuda.memory._set_memory_metadata("")
    del kept
    return [*found, torch.cuda.memory._get_memory_metadata(), plain(snapshot())["traces"]]


@row("torch.cuda.memory_snapshot")
def segments() -> list[Any]:
    kept = mixed()
    found = shapes(torch.cuda.memory_snapshot())
    assert kept and torch.cuda.memory_snapshot(include_traces=False)
    return [found, torch.cuda.memory_snapshot(mempool_id=(7, 7))]


@row("torch.cuda.memory_snapshot(mempool_id=…)")
def segments_of_a_pool() -> list[Any]:
    graph = torch.cuda.CUDAGraph()
    kept = [block(100)]
    with torch.cuda.graph(graph):
        kept.append(torch.ones(3 * MIB, dtype=torch.uint8, device="cuda"))
    everything = torch.cuda.memory_snapshot()
    of_pool = torch.cuda.memory_snapshot(mempool_id=graph.pool())
    found = [sorted(one["segment_pool_id"] for one in everything), shapes(of_pool)]
    return [*found, list(graph.pool()), len(kept)]


@row("torch.cuda.memory._dump_snapshot", says=OUT_OF_MEMORY)
def dumped() -> Any:
    record(stacks="python")
    kept = work()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "snapshot.pickle")
        torch.cuda.memory._dump_snapshot(path)
        taken = pickle.loads(Path(path).read_bytes())
    assert kept
    return plain(taken)["traces"]


@row(
    "torch.cuda._memory_viz",
    "torch.cuda.memory._save_segment_usage",
    "torch.cuda.memory._save_memory_usage",
    differs="the same, except that of free blocks it does not tell what they were last",
    of_answer=lambda answer: [[line for line in part if "inactive" not in line] for part in answer],
)
def viewed() -> list[Any]:
    record(stacks="python")
    kept = mixed()
    taken = snapshot()
    for function in (viz.segments, viz.memory):  # without a script from the network
        function.__defaults__ = (lambda lines: lines,)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for save in (torch.cuda.memory._save_segment_usage, torch.cuda.memory._save_memory_usage):
            path = os.path.join(folder, "usage.svg")
            save(path, taken)
            found.append(Path(path).read_text().splitlines())
    for make in (viz.trace_plot, viz.segment_plot):
        assert "MemoryViz.js" in make(taken)
    found.append([line for line in viz.segsum(taken).splitlines() if line.startswith("total_")])
    found.append([str(len(viz.trace(taken).splitlines())), str(len(kept))])
    return found


@row(
    "torch.profiler.profile(profile_memory=True)",
    env={"KINETO_LOG_LEVEL": "99"},
    says=OUT_OF_MEMORY,
)
def profiled() -> list[Any]:
    torch.cuda.init()
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, profile_memory=True, acc_events=True) as profile:
        kept = work()
    del kept
    results = profile.profiler.kineto_results.events()  # type: ignore[union-attr]
    return [
        [event.name(), event.device_index(), event.nbytes()]
        for event in results
        if event.name() in ("[memory]", "[OutOfMemory]") and "CUDA" in str(event.device_type())
    ]


@row("torch._C._cuda_attach_out_of_memory_observer", says=OUT_OF_MEMORY)
def observed() -> list[Any]:
    seen: list[list[int]] = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *shortage: seen.append(list(shortage)))
    torch._C._cuda_attach_out_of_memory_observer(lambda *shortage: seen.append([7]))
    kept = block(60 << 30)
    for n in (200 << 30, (30 << 30) + 5):
        try:
            block(n)
        except torch.OutOfMemoryError:
            continue
    torch.cuda.set_per_process_memory_fraction(0.75)
    with contextlib.suppress(torch.OutOfMemoryError):
        block(10 << 30)
    assert kept.nbytes
    return seen


@row("torch.cuda._gpu_trace", "torch._C._activate_gpu_trace")
def traced() -> list[Any]:
    relative, seen = Relative(), []
    trace = torch.cuda._gpu_trace
    trace.register_callback_for_memory_allocation(lambda at: seen.append(["+", relative.of(at)]))
    trace.register_callback_for_memory_deallocation(lambda at: seen.append(["-", relative.of(at)]))
    kept = [block(10)]
    torch._C._activate_gpu_trace()
    kept += mixed()
    del kept[2], kept[0]
    kept.append(torch.ones(3, device="cuda").requires_grad_())
    (kept[-1] * 2).sum().backward()
    return seen


@row("torch.utils.viz._cycles.observe_tensor_cycles")
def cycles() -> list[Any]:
    logging.getLogger(_cycles.__name__).setLevel(logging.ERROR)
    record(stacks="python")
    gc.collect()
    seen: list[bool] = []
    stop = _cycles.observe_tensor_cycles(lambda html: seen.append("cycles" in html))
    tensor = block(1 << 20)
    around: list[Any] = [tensor]
    around.append(around)
    del tensor, around
    gc.collect()
    stop()
    return [seen, torch.cuda.memory_allocated()]
