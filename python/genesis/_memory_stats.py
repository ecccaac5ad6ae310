"""A device's memory in a few figures, and in a few more."""

from __future__ import annotations

from dataclasses import dataclass

from . import _live, _sizes, _statistics, memory_profiler


@dataclass(frozen=True)
class MemoryStats:
    """The memory of one device, or of one kind of host memory, at one moment; sizes in bytes."""

    #: Bytes of live blocks.
    allocated_bytes: int
    #: Physical memory held from the driver.
    reserved_bytes: int
    #: Reserved and not live: ready for reuse, or freed and still in use by other streams.
    cached_bytes: int
    #: Bytes of live blocks and of freed ones that other streams may still use.
    active_bytes: int
    #: Reserved and not active: ready for reuse.
    inactive_bytes: int
    #: The highest that ``allocated_bytes`` has been since the start or the last reset of peaks.
    peak_allocated: int
    #: Blocks handed out since the start.
    num_allocs: int
    #: Blocks freed since the start.
    num_frees: int

    def fragmentation_ratio(self) -> float:
        """The part of the reserved memory that is not live, from 0 to 1."""
        if self.reserved_bytes == 0:
            return 0.0
        return max(self.reserved_bytes - self.allocated_bytes, 0) / self.reserved_bytes


@dataclass(frozen=True)
class DetailedMemoryStats:
    """How well the memory of one device is used."""

    #: Bytes of all live blocks together.
    total_allocated: int
    #: The highest that ``total_allocated`` has been since the start or the last reset of peaks.
    peak_allocated: int
    #: The part of the reserved memory that is not live, from 0 to 1.
    fragmentation_ratio: float
    #: The part of all allocations served from their own stream's free blocks, from 0 to 1; 0
    #: before the first.
    cache_hit_rate: float
    #: The ordinal of the device.
    device: int

    def get_large_allocations(self, min_size: _sizes.Size = 0) -> list[_live.Allocation]:
        """Returns the blocks live now of at least ``min_size`` requested bytes (or a text such as
        ``"100MB"``), largest first.

        Ages and locations are known for blocks allocated while memory debugging was on, or during
        the profile that is being made now. Time is linear in the number of blocks; a long profile
        adds a second or two.
        """
        return memory_profiler.located(_live.allocations(self.device, _sizes.to_bytes(min_size)))


def memory_stats(device: int = 0) -> MemoryStats:
    """The memory of ``device`` now, in a few figures; :func:`genesis.stats` has them all."""
    return summary(_statistics.stats(device))


def summary(stats: _statistics.Stats) -> MemoryStats:
    """``stats`` in a few figures."""
    allocated, active = stats.allocated_bytes, stats.active_bytes
    inactive = stats.inactive_bytes.current
    return MemoryStats(
        allocated_bytes=allocated.current,
        reserved_bytes=stats.reserved_bytes.current,
        cached_bytes=inactive + active.current - allocated.current,
        active_bytes=active.current,
        inactive_bytes=inactive,
        peak_allocated=allocated.peak,
        num_allocs=stats.allocations,
        num_frees=stats.frees,
    )


def detailed_memory_stats(device: int = 0) -> DetailedMemoryStats:
    """How well the memory of ``device`` is used now."""
    stats = _statistics.stats(device)
    return DetailedMemoryStats(
        total_allocated=stats.allocated_bytes.current,
        peak_allocated=stats.allocated_bytes.peak,
        fragmentation_ratio=stats.fragmentation_ratio,
        cache_hit_rate=stats.hit_rate,
        device=device,
    )
