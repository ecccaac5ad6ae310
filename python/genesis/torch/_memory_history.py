"""The history of memory that ``torch.cuda.memory._record_memory_history`` asks for, and the
snapshots that show it, in PyTorch's own form.

The library records (``genesis_torch_history_start``); here is what PyTorch's arguments mean, and
what only PyTorch's form has. A profile of :mod:`genesis.memory_profiler` goes on beside it.

What differs from PyTorch's own allocator:

- After recording has ended, blocks no longer have the stacks of their allocations.
- Frames of C++ have the file of the object where its debug information is missing.
- A free block made of several has the size of the last request of one of them.
- With stacks for allocations only, entries about the end of segments have none.
- Where entries name a pool, those about a pool's memory that has gone say (0, 0).
"""

from __future__ import annotations

import bisect
import pickle
import re
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Optional

import torch

from .. import _library
from . import _alloc_conf, _say

_ACTIONS = frozenset(
    (
        "alloc",
        "free_requested",
        "free_completed",
        "segment_alloc",
        "segment_free",
        "segment_map",
        "segment_unmap",
        "snapshot",
        "oom",
    )
)
#: The value of PyTorch's ``context`` → that of ``genesis_torch_history_start``.
_STACKS = {None: 0, "state": 1, "alloc": 1, "all": 2}
#: The value of PyTorch's ``stacks`` → that of the option ``call_sites``.
_CALL_SITES = {"python": "python", "all": "all"}
#: Frees are two entries, and skipped actions take room: so many more events are kept.
_EVENTS_FOR_SKIPPED = 16
_MOST_EVENTS = 2**62


@dataclass
class _Recording:
    """What is being recorded."""

    context: Optional[str]
    #: Of each device.
    max_entries: int
    skipped: frozenset[str]
    #: The entries about snapshots, by device.
    snapshots: dict[int, list[dict[str, Any]]] = field(default_factory=dict)


_lock = threading.RLock()
_recording: Optional[_Recording] = None
_of_thread = threading.local()


@dataclass(frozen=True)
class _Request:
    """The arguments of ``torch._C._cuda_record_memory_history``."""

    enabled: Optional[str]
    context: Optional[str]
    stacks: str
    max_entries: int
    clear_history: bool = False
    compile_context: bool = False
    global_record_annotations: bool = False
    skip_actions: Sequence[str] = ()
    record_pinned_host_memory: bool = False
    record_cuda: bool = True


@dataclass(frozen=True)
class _LegacyRequest:
    """The arguments of ``torch._C._cuda_record_memory_history_legacy``."""

    enabled: bool
    record_context: bool = True
    trace_alloc_max_entries: int = 1
    trace_alloc_record_context: bool = False
    record_context_cpp: bool = False
    clear_history: bool = False
    compile_context: bool = False
    global_record_annotations: bool = False
    skip_actions: Sequence[str] = ()
    record_pinned_host_memory: bool = False
    record_cuda: bool = True


def record(*arguments: Any, **named: Any) -> None:
    """``torch._C._cuda_record_memory_history``."""
    _record(_Request(*_known_arguments(_Request, arguments), **named))


def _known_arguments(request: type[Any], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments without those that only a later PyTorch has; they are named in a warning."""
    known = len(fields(request))
    if any(arguments[known:]):
        _say.once(
            f"torch.cuda.memory._record_memory_history of PyTorch {torch.__version__} has "
            f"arguments that Genesis does not know; they are ignored: {arguments[known:]}"
        )
    return arguments[:known]


def record_legacy(*arguments: Any, **named: Any) -> None:
    """``torch._C._cuda_record_memory_history_legacy``."""
    asked = _LegacyRequest(*_known_arguments(_LegacyRequest, arguments), **named)
    context = "state" if asked.record_context else None
    request = _Request(
        enabled="all" if asked.enabled else None,
        context="alloc" if asked.trace_alloc_record_context else context,
        stacks="all" if asked.record_context_cpp else "python",
        max_entries=asked.trace_alloc_max_entries,
        clear_history=asked.clear_history,
        compile_context=asked.compile_context,
        global_record_annotations=asked.global_record_annotations,
        skip_actions=asked.skip_actions,
        record_pinned_host_memory=asked.record_pinned_host_memory,
        record_cuda=asked.record_cuda,
    )
    _record(request)


def is_enabled() -> bool:
    """``torch._C._cuda_isHistoryEnabled``."""
    return _recording is not None


def snapshot(wanted: Optional[tuple[int, ...]] = None) -> dict[str, Any]:
    """``torch._C._cuda_memorySnapshot``: of the private pool with these two numbers, (0, 0) for
    everything; a third, which PyTorch has from 2.11 on, tells whether entries of the history are
    wanted."""
    first, second, has_traces = (*(wanted or (0, 0)), True)[:3]
    with _lock:
        taken = _taken()
        segments = sorted(taken["segments"], key=lambda one: (one["device"], one["address"]))
        traces = taken["device_traces"]
        traces += [[] for _ in range(len(traces), _device_count())]
        if _is_documented("pool_id"):
            for entries in traces:
                _name_pools(segments, entries)
        histories = [_history(device, entries) for device, entries in enumerate(traces)]
        if _recording is not None:
            _note_snapshot(_recording, segments, len(histories))
    if (first, second) != (0, 0):
        segments = [one for one in segments if one["segment_pool_id"] == (first, second)]
    own = taken["allocator_settings"]
    hosts = ("host_segments", "host_traces") if _is_documented("host_segments") else ()
    return {
        **{name: [] for name in hosts},
        "segments": segments,
        "device_traces": histories if has_traces else [],
        "allocator_settings": {**own, **_alloc_conf.described()},
        "external_annotations": taken["external_annotations"] if has_traces else [],
    }


def _is_documented(name: str) -> bool:
    """Returns true if snapshots of this PyTorch have something of that name."""
    functions = (torch.cuda.memory._snapshot, torch.cuda.memory._record_memory_history)
    words = " ".join(function.__doc__ or "" for function in functions)
    return re.search(rf"\b{name}\b", words) is not None


def _name_pools(segments: list[dict[str, Any]], entries: list[dict[str, Any]]) -> None:
    """Gives each entry the numbers of its pool, as far as memory is still where it was."""
    starts = sorted((one["address"], one["total_size"], one["segment_pool_id"]) for one in segments)
    addresses = [start for start, _, _ in starts]
    for entry in entries:
        index = bisect.bisect_right(addresses, entry.get("addr", 0)) - 1
        start, size, pool = starts[index] if index >= 0 else (0, 0, (0, 0))
        entry["pool_id"] = pool if entry.get("addr", 0) < start + size else (0, 0)


def call_site(address: int) -> Optional[list[dict[str, Any]]]:
    """``torch._C._cuda_allocationTraceback``: where the live block at ``address`` was allocated;
    ``None`` if that was not recorded."""
    recording = _recording
    if recording is None or recording.context is None:
        return None
    with _lock:
        segments = _taken()["segments"]
    blocks = (block for segment in segments for block in segment["blocks"])
    found = (one for one in blocks if one["address"] == address)
    live = (one for one in found if one["state"] == "active_allocated")
    return next((one.get("frames") or None for one in live), None)


def annotate(_address: int, _metadata: str) -> None:
    """``torch._C._cuda_annotateMemory``."""
    if _recording is not None:
        _say.once("torch.cuda.memory._annotate_tensor: annotations of tensors are not recorded")


def is_metadata_recorded() -> bool:
    """``torch._C._cuda_memoryMetadataSupported``."""
    return True


def set_metadata(metadata: str) -> None:
    """``torch._C._cuda_setMemoryMetadata``, for this thread."""
    _library.call("genesis_torch_metadata_set", metadata.encode())
    _of_thread.metadata = metadata


def metadata() -> str:
    """``torch._C._cuda_getMemoryMetadata``."""
    return getattr(_of_thread, "metadata", "")


def _record(asked: _Request) -> None:
    _check(asked.enabled in (None, "state", "all"), "state", "'state', 'all', or None")
    _check(asked.context in _STACKS, "context", "'state', 'alloc', 'all', or None")
    _check(asked.stacks in _CALL_SITES, "stacks", "'python', or 'all'")
    if asked.compile_context:
        _say.once("torch.cuda.memory: compile_context is not recorded: it stays 'N/A'")
    if asked.global_record_annotations:
        _say.once(
            "torch.cuda.memory: global_record_annotations does not record torch.profiler's ranges; "
            "genesis.annotate and NVTX's ranges (genesis.torch.enable(nvtx=True)) are recorded"
        )
    if asked.record_pinned_host_memory:
        _say.once("torch.cuda.memory: record_pinned_host_memory: pinned memory is not recorded")
    if asked.enabled is None or not asked.record_cuda:
        _stop()
        return
    # As in PyTorch's allocator, the state alone has a history of one entry.
    most = 1 if asked.enabled == "state" else asked.max_entries
    recording = _Recording(asked.context, most, _known(asked.skip_actions))
    _start(recording, asked.stacks, asked.clear_history)


def _check(is_right: bool, argument: str, values: str) -> None:
    if not is_right:
        raise RuntimeError(f"expected {argument} to be {values}")


def _known(actions: Sequence[str]) -> frozenset[str]:
    for action in actions:
        if action not in _ACTIONS:
            raise RuntimeError(f"Unknown TraceEntry action: {action}")
    return frozenset(actions)


def _start(recording: _Recording, stacks: str, clears: bool) -> None:
    global _recording
    torch.cuda.init()
    devices = max(_device_count(), 1)
    factor = _EVENTS_FOR_SKIPPED if recording.skipped else 1
    events = min(max(recording.max_entries, 1) * devices * factor, _MOST_EVENTS)
    with _lock:
        _library.call(
            "genesis_torch_history_start",
            events,
            _STACKS[recording.context],
            _CALL_SITES[stacks].encode(),
            clears,
        )
        if _recording is not None and not clears:
            recording.snapshots = _recording.snapshots
        _recording = recording


def _stop() -> None:
    global _recording
    with _lock:
        _library.call("genesis_torch_history_stop")
        _recording = None


def _taken() -> dict[str, Any]:
    """The library's own snapshot."""
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        path = Path(folder, "snapshot.pickle")
        _library.call("genesis_torch_history_write", str(path).encode())
        taken: dict[str, Any] = pickle.loads(path.read_bytes())
    return taken


def _device_count() -> int:
    return torch.cuda.device_count() if torch.cuda.is_initialized() else 0


def _history(device: int, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries of a device as they were asked for."""
    recording = _recording
    if recording is None:
        return []
    del entries[-1:]  # the library's own about this snapshot
    snapshots = recording.snapshots.get(device, [])
    if snapshots and entries:
        first = entries[0]["time_us"] if len(entries) >= recording.max_entries else 0
        entries += [dict(one) for one in snapshots if one["time_us"] >= first]
        entries.sort(key=lambda one: one["time_us"])
    else:
        entries += [dict(one) for one in snapshots]
    if recording.skipped:
        entries = [one for one in entries if one["action"] not in recording.skipped]
    if len(entries) > recording.max_entries:
        entries = entries[len(entries) - recording.max_entries :]
    if recording.context != "all":
        has_frames = recording.context == "alloc"
        for entry in entries:
            if not has_frames or not entry.get("frames"):
                entry.pop("frames", None)
    return entries


def _note_snapshot(
    recording: _Recording, segments: list[dict[str, Any]], device_count: int
) -> None:
    for device in range(device_count):
        active = sum(one["active_size"] for one in segments if one["device"] == device)
        entry = {
            "action": "snapshot",
            "addr": 0,
            "size": active,
            "stream": 0,
            "time_us": time.time_ns() // 1000,
            "compile_context": "N/A",
            "user_metadata": metadata(),
            **({"pool_id": (0, 0)} if _is_documented("pool_id") else {}),
        }
        if "snapshot" not in recording.skipped:
            kept = recording.snapshots.setdefault(device, [])
            kept.append(entry)
            del kept[: -recording.max_entries]
