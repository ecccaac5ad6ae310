"""Genesis's statistics in the form, and with the keys, of PyTorch's own allocator.

PyTorch's ``allocated`` and ``freed`` are sums since the start or since
``reset_accumulated_memory_stats``. Genesis counts only from the start, so a reset stores the sums,
and later results are differences from them. Nothing else is affected.

Two keys are always 0, as with cudaMallocAsync: the ``oversize_…``, which Genesis does not count.
Keys that only later versions of PyTorch have are there if this one's documentation has them:
``num_oom_rejections`` is 0, because Genesis asks the driver before it refuses a request, and
``reserved_bytes_by_private_pools`` is empty, because Genesis counts for all pools together.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, fields
from typing import Any, Callable

import torch
import torch.accelerator

from .. import _statistics
from .._statistics import Gauge, PoolStats
from . import _alloc_conf

_METRICS = [metric.name for metric in fields(PoolStats)]


@dataclass(frozen=True)
class _Figures:
    """All statistics of one device at one moment."""

    pools: dict[str, PoolStats]
    device: _statistics.Stats


@dataclass(frozen=True)
class _Sums:
    """The sums of a device at its last reset."""

    retries: int = 0
    out_of_memory_events: int = 0
    collections: int = 0
    #: By kind of blocks and metric: all increases and all decreases.
    gauges: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)


_lock = threading.Lock()
_sums_at_reset: dict[int, _Sums] = {}


def nested(device: int) -> dict[str, Any]:
    """The result of ``torch.cuda.memory_stats_as_nested_dict``."""
    return _nested(device, torch.cuda.memory.memory_stats)


def of_accelerator(device: int) -> dict[str, Any]:
    """The same with the keys of ``torch.accelerator.memory_stats``."""
    return _nested(device, torch.accelerator.memory_stats)


def _nested(device: int, flat: Callable[..., Any]) -> dict[str, Any]:
    """The statistics of which ``flat`` is the flat form: it documents the keys."""
    figures = _read(device)
    with _lock:
        base = _sums_at_reset.get(device, _Sums())
    result: dict[str, Any] = {
        metric: {
            pool: _in_torch_words(getattr(stats, metric), base.gauges.get((pool, metric), (0, 0)))
            for pool, stats in figures.pools.items()
        }
        for metric in _METRICS
    }
    segments = result["segment"]["all"]
    result["num_alloc_retries"] = figures.device.retries - base.retries
    result["num_ooms"] = figures.device.out_of_memory_events - base.out_of_memory_events
    result["num_device_alloc"] = segments["allocated"]
    result["num_device_free"] = segments["freed"]
    result["max_split_size"] = _alloc_conf.max_split_bytes()
    result["num_sync_all_streams"] = _collections(figures.device) - base.collections
    later: dict[str, Any] = {"num_oom_rejections": 0, "reserved_bytes_by_private_pools": {}}
    documented = flat.__doc__ or ""
    result.update({name: value for name, value in later.items() if f'"{name}"' in documented})
    for name in ("oversize_allocations", "oversize_segments"):
        result[name] = dict.fromkeys(("current", "peak", "allocated", "freed"), 0)
    return result


def reset_peak(device: int) -> None:
    """Sets every peak to the value now."""
    _statistics.reset_peak_stats(device)


def reset_accumulated(device: int) -> None:
    """Makes all sums start from now."""
    figures = _read(device)
    gauges = {
        (pool, metric): (getattr(stats, metric).total, getattr(stats, metric).freed)
        for pool, stats in figures.pools.items()
        for metric in _METRICS
    }
    device_stats = figures.device
    sums = _Sums(
        device_stats.retries,
        device_stats.out_of_memory_events,
        _collections(device_stats),
        gauges,
    )
    with _lock:
        _sums_at_reset[device] = sums


def _read(device: int) -> _Figures:
    pools = {pool: _statistics.pool_stats(device, pool) for pool in _statistics.POOLS}
    return _Figures(pools, _statistics.stats(device))


def _collections(stats: _statistics.Stats) -> int:
    """How often everything cached was collected, for which PyTorch's allocator waits for all
    streams: when the cache was emptied, and before a request was tried again."""
    return stats.cache_empties + stats.retries


def _in_torch_words(gauge: Gauge, base: tuple[int, int]) -> dict[str, int]:
    allocated, freed = base
    return {
        "current": gauge.current,
        "peak": gauge.peak,
        "allocated": gauge.total - allocated,
        "freed": gauge.freed - freed,
    }
