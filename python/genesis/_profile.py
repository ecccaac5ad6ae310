"""A profile that the library wrote as JSON, as plain values.

| bytes     | meaning                                                        |
|-----------|----------------------------------------------------------------|
| requested | as the callers asked for                                       |
| allocated | of the blocks that serve the requests                          |
| active    | allocated, and of freed blocks that other streams may still use |
| reserved  | physical memory held from the driver                           |

Members that a newer library adds are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Optional, TypeVar

from . import _history, _live

_FORMAT = "genesis profile 1"
_SECOND_NS = 1e9

_T = TypeVar("_T")


@dataclass(frozen=True)
class Levels:
    """The memory of each kind at one moment, in bytes."""

    requested_bytes: int
    allocated_bytes: int
    active_bytes: int
    reserved_bytes: int


@dataclass(frozen=True)
class DeviceSummary:
    """One device over a whole profile."""

    ordinal: int
    name: str
    #: Its memory, in bytes.
    total_bytes: int
    #: The most that may be reserved, in bytes.
    usable_bytes: int
    #: Levels at the end of the profile.
    now: Levels
    #: The highest value of each level.
    peak: Levels
    #: Blocks handed out.
    allocations: int
    #: Blocks freed.
    frees: int
    #: Allocations served from what their own stream had free.
    hits: int
    #: Allocations that failed because memory was short.
    out_of_memory_events: int
    #: 1 − largest free run ∕ all free bytes, at the end.
    fragmentation_index: float


@dataclass(frozen=True)
class Counts:
    """Counts for a group of blocks, on all devices."""

    #: Blocks handed out.
    allocations: int
    #: Blocks freed.
    frees: int
    #: Allocations served from what their own stream had free.
    hits: int
    #: The sum of all requested bytes.
    requested_bytes: int
    #: Bytes of blocks live at the end.
    live_bytes: int
    #: The most bytes of blocks live at one time.
    peak_bytes: int
    #: The sum of the lifetimes of the freed blocks, in nanoseconds.
    lifetime_ns: int


@dataclass(frozen=True)
class SizeSummary:
    """The blocks of one size."""

    #: The size of the blocks, in bytes.
    block_bytes: int
    counts: Counts


@dataclass(frozen=True)
class CallSiteSummary:
    """The blocks allocated at one call site."""

    #: As ``"train.py:12 (forward)"``: see :attr:`genesis.Allocation.location`.
    location: str
    #: The whole stack, innermost frame first.
    stack: tuple[str, ...]
    counts: Counts


@dataclass(frozen=True)
class DeviceLevels:
    """The levels of one device in equal intervals from the start of the profile."""

    device: int
    #: The length of an interval, in seconds.
    interval: float
    #: The highest value of each level within each interval.
    peaks: tuple[Levels, ...]


class Document:
    """A profile, read from JSON."""

    def __init__(self, document: dict[str, Any]) -> None:
        if document.get("format") != _FORMAT:
            raise ValueError(f"not a profile that this package reads: {document.get('format')!r}")
        self._document = document
        self._stacks = [_stack(site) for site in document["sites"]]

    @property
    def duration(self) -> float:
        """From the start of the profile to its end, in seconds."""
        return float(self._document["duration_ns"]) / _SECOND_NS

    def devices(self) -> list[DeviceSummary]:
        return [
            _made(
                DeviceSummary, raw, now=_made(Levels, raw["now"]), peak=_made(Levels, raw["peak"])
            )
            for raw in self._document["devices"]
        ]

    def sizes(self) -> list[SizeSummary]:
        return [
            SizeSummary(raw["block_bytes"], _made(Counts, raw["counts"]))
            for raw in self._document["sizes"]
        ]

    def call_sites(self) -> list[CallSiteSummary]:
        return [
            CallSiteSummary(
                _live.location_of(self._stacks[raw["site"]]),
                self._stacks[raw["site"]],
                _made(Counts, raw["counts"]),
            )
            for raw in self._document["call_sites"]
        ]

    def live(self) -> list[_live.Allocation]:
        return [self._allocation(raw) for raw in self._document["live"]]

    def timelines(self) -> list[DeviceLevels]:
        return [
            DeviceLevels(
                raw["device"],
                raw["interval_ns"] / _SECOND_NS,
                tuple(_made(Levels, levels) for levels in raw["peaks"]),
            )
            for raw in self._document["timelines"]
        ]

    def annotations(self) -> list[_history.Annotation]:
        events = self._document["history"]["events"]
        return _history.annotations_of(events, self._document["names"], self.duration)

    def _allocation(self, raw: dict[str, Any]) -> _live.Allocation:
        stack = self._stacks[raw["site"]]
        age_ns: Optional[int] = raw["age_ns"]
        tag: Optional[int] = raw["tag"]
        return _live.Allocation(
            location=_live.location_of(stack),
            size=raw["requested_bytes"],
            allocated_bytes=raw["block_bytes"],
            address=raw["address"],
            device=raw["device"],
            stream=self._document["streams"][raw["stream"]]["key"],
            age=None if age_ns is None else age_ns / _SECOND_NS,
            tag=None if tag is None else self._document["names"][tag],
            stack=stack,
        )


def _made(kind: type[_T], raw: dict[str, Any], **others: Any) -> _T:
    """Makes a dataclass from those members of ``raw`` that are its fields, and from ``others``."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: others.get(name, raw.get(name)) for name in names})


def _stack(site: dict[str, Any]) -> tuple[str, ...]:
    return tuple(_lines(site["frames"]))


def _lines(frames: list[dict[str, Any]]) -> Iterator[str]:
    """The frames as lines, in the form that the library uses for live blocks."""
    for frame in frames:
        place = f"{frame['file']}:{frame['line']}" if frame["line"] else frame["file"]
        function = f"({frame['function']})" if frame["function"] else ""
        yield " ".join(part for part in (place, function) if part)
