"""What a program's steps need of memory and of the driver, in this process.

Every allocator is measured by the same counters. *Live* is what the program has asked for, as
PyTorch counts it. *Held* is the device's physical memory in use, as simcuda counts it. Both are
peaks within a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from support import simcuda

#: The driver's calls that get, give back, map or unmap memory.
MEMORY_CALLS = (
    "cuMemAlloc",
    "cuMemFree",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemUnmap",
)


@dataclass
class Recording:
    """One number for each step; the first step includes making the model."""

    live_bytes: list[int] = field(default_factory=list)
    held_bytes: list[int] = field(default_factory=list)
    #: The time of all the driver's calls, by simcuda's prices.
    driver_nanoseconds: list[int] = field(default_factory=list)
    memory_calls: list[int] = field(default_factory=list)
    #: Mappings of memory that had been mapped elsewhere before.
    moves: list[int] = field(default_factory=list)
    #: Mappings that there are at the step's end.
    mappings: list[int] = field(default_factory=list)
    #: Calls of the allocator.
    allocations: list[int] = field(default_factory=list)


def record(steps: Iterator[None]) -> Recording:
    """Runs a program's steps. Genesis is enabled, if it is to be."""
    torch.cuda.init()
    # Kernels of these libraries do not exist without a GPU.
    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_cudnn_sdp(False)
    recording, before = Recording(), _counters()
    torch.cuda.reset_peak_memory_stats()
    simcuda.reset_peak(0)
    for _ in steps:
        after, statistics = _counters(), torch.cuda.memory_stats()
        made = {name: count - before[name] for name, count in after.items()}
        recording.live_bytes.append(statistics["requested_bytes.all.peak"])
        recording.held_bytes.append(simcuda.peak_bytes(0))
        recording.driver_nanoseconds.append(made["nanoseconds"])
        recording.memory_calls.append(sum(made[name] for name in MEMORY_CALLS))
        recording.moves.append(max(made["cuMemMap"] - made["cuMemCreate"], 0))
        recording.mappings.append(simcuda.mappings())
        recording.allocations.append(statistics["allocation.all.allocated"])
        torch.cuda.reset_peak_memory_stats()
        simcuda.reset_peak(0)
        before = _counters()
    totals = [0, *recording.allocations]
    recording.allocations = [now - then for then, now in zip(totals, totals[1:])]
    if simcuda.violations():
        raise RuntimeError(simcuda.violations_text())
    return recording


def _counters() -> dict[str, int]:
    counts = {name: simcuda.calls(name) for name in MEMORY_CALLS}
    return {**counts, "nanoseconds": simcuda.driver_nanoseconds()}
