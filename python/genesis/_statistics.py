"""Statistics of a device as plain values, and calls that concern all of its memory."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, fields
from typing import Any

from . import _library, _structs


@dataclass(frozen=True)
class Gauge:
    """One quantity of a device."""

    #: The value now.
    current: int
    #: The highest value since the start or the last reset of peaks.
    peak: int
    #: The sum of all increases since the start.
    total: int

    @property
    def freed(self) -> int:
        """The sum of all decreases since the start."""
        return self.total - self.current


@dataclass(frozen=True)
class Stats:
    """The statistics of one device, explained in genesis.h; sizes in bytes."""

    requested_bytes: Gauge
    allocated_bytes: Gauge
    reserved_bytes: Gauge
    active_bytes: Gauge
    inactive_bytes: Gauge
    allocations: int
    frees: int
    hits: int
    misses: int
    driver_calls: int
    driver_memory_calls: int
    driver_nanoseconds: int
    retries: int
    out_of_memory_events: int
    cross_stream_reuses: int
    free_bytes: int
    largest_free_bytes: int
    hit_rate: float
    fragmentation_ratio: float
    fragmentation_index: float
    cache_empties: int
    managed_bytes: int
    oversubscribed_bytes: int
    peak_oversubscribed_bytes: int


@dataclass(frozen=True)
class PoolStats:
    """Sums over one kind of blocks of a device; sizes in bytes, the last four are counts."""

    allocated_bytes: Gauge
    reserved_bytes: Gauge
    active_bytes: Gauge
    inactive_split_bytes: Gauge
    requested_bytes: Gauge
    allocation: Gauge
    segment: Gauge
    active: Gauge
    inactive_split: Gauge


#: The kinds of blocks, as PyTorch names them, with the numbers of ``genesis_pool``.
POOLS = {"all": 0, "small_pool": 1, "large_pool": 2}


def stats(device: int = 0) -> Stats:
    """The statistics of ``device``."""
    return stats_by("genesis_stats_get", device)


def stats_by(function: str, which: int) -> Stats:
    """The statistics that a function of the library has of ``which``: a device, or another kind of
    memory."""
    raw = _structs.CStats(struct_size=ctypes.sizeof(_structs.CStats))
    _library.call(function, which, ctypes.byref(raw))
    return Stats(**{field.name: _value(getattr(raw, field.name)) for field in fields(Stats)})


def pool_stats(device: int, pool: str) -> PoolStats:
    """The statistics of one kind of blocks of ``device``: a key of :data:`POOLS`."""
    raw = _structs.CPoolStats(struct_size=ctypes.sizeof(_structs.CPoolStats))
    _library.call("genesis_pool_stats_get", device, POOLS[pool], ctypes.byref(raw))
    names = [field.name for field in fields(PoolStats)]
    return PoolStats(**{name: _value(getattr(raw, name)) for name in names})


def reset_peak_stats(device: int = 0) -> None:
    """Sets every peak of ``device`` to the value now."""
    _library.call("genesis_stats_reset_peak", device)


def empty_cache(device: int = -1) -> None:
    """Returns everything cached on ``device`` (−1: on every device in use) to the driver."""
    _library.call("genesis_cache_empty", device)


def memory_info(device: int = 0) -> tuple[int, int]:
    """Free and total bytes of ``device``, within its limits. Cached memory counts as free."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _library.call("genesis_memory_info_get", device, ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def memory_fraction(device: int = 0) -> float:
    """The part of the memory of ``device`` that may be reserved."""
    fraction = ctypes.c_double()
    _library.call("genesis_memory_fraction_get", device, ctypes.byref(fraction))
    return fraction.value


def _value(raw: Any) -> Any:
    return Gauge(raw.current, raw.peak, raw.total) if isinstance(raw, _structs.Gauge) else raw
