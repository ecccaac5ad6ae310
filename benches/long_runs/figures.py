"""The figures that a page has for a run."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from recording import Recording

#: The part of the steps at the start, and at the end, that creep is measured between.
PART = 10


def held_over_live(recording: Recording) -> list[float]:
    """For each step: the memory held, over the most that was live in a step so far."""
    most_live = itertools.accumulate(recording.live_bytes, max)
    return [held / live for held, live in zip(recording.held_bytes, most_live)]


@dataclass(frozen=True)
class Figures:
    """Ratios are of :func:`held_over_live`; first and last are means over a tenth of the steps."""

    live_bytes: int
    allocations: int
    end: float
    worst: float
    first: float
    last: float
    start_ms: float
    first_tenth_ms: float
    median_ms: float
    worst_ms: float
    #: After the first tenth.
    warm_ms: float
    steps_with_calls: float
    moves_first: int
    moves_last: int
    mappings_first: int
    mappings_last: int

    @property
    def creep(self) -> float:
        return self.last / self.first

    @staticmethod
    def of(recording: Recording) -> Figures:
        ratios = held_over_live(recording)
        part = max(len(ratios) // PART, 1)
        times_ms = [nanoseconds / 1e6 for nanoseconds in recording.driver_nanoseconds]
        warm_calls = recording.memory_calls[part:]
        return Figures(
            live_bytes=max(recording.live_bytes),
            allocations=round(statistics.median(recording.allocations)),
            end=ratios[-1],
            worst=max(ratios),
            first=statistics.fmean(ratios[:part]),
            last=statistics.fmean(ratios[-part:]),
            start_ms=times_ms[0],
            first_tenth_ms=sum(times_ms[1:part]),
            median_ms=statistics.median(times_ms[part:]),
            worst_ms=max(times_ms[part:]),
            warm_ms=statistics.fmean(times_ms[part:]),
            steps_with_calls=_share_above_zero(warm_calls),
            moves_first=sum(recording.moves[:part]),
            moves_last=sum(recording.moves[-part:]),
            mappings_first=recording.mappings[part - 1],
            mappings_last=recording.mappings[-1],
        )


def _share_above_zero(counts: Sequence[int]) -> float:
    return sum(count > 0 for count in counts) / len(counts)
