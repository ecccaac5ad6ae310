"""The processes that share a device (``GENESIS_SHARE``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from . import _library, _prototypes, _structs


@dataclass(frozen=True)
class Neighbour:
    """A process that shares a device with this one. Sizes are in bytes."""

    #: The process's number.
    process: int
    #: Whether it is this process itself.
    is_own: bool
    #: Its program's name.
    program: str
    #: What is live in it, as it has last said, at most a second ago.
    live_bytes: int
    #: What it has cached.
    cached_bytes: int
    #: What it holds of the device.
    held_bytes: int
    #: What the others leave to it.
    guarantee_bytes: int
    #: The most that it may hold; ``None``: no limit.
    limit_bytes: Optional[int]
    #: Its part of the device by its weight; ``None``: it has none.
    part_bytes: Optional[int]


def neighbours(device: int = 0) -> list[Neighbour]:
    """The processes that share ``device`` with this one, itself first; none if it is not shared."""
    found: list[Neighbour] = []

    def visit(_user: Any, raw: Any) -> None:
        found.append(_neighbour(raw.contents))

    _library.call("genesis_neighbours_visit", device, _prototypes.NeighbourVisitor(visit), None)
    return found


def _neighbour(raw: _structs.CNeighbour) -> Neighbour:
    return Neighbour(
        process=raw.process,
        is_own=bool(raw.is_own),
        program=raw.program.decode(errors="replace"),
        live_bytes=raw.live_bytes,
        cached_bytes=raw.cached_bytes,
        held_bytes=raw.held_bytes,
        guarantee_bytes=raw.guarantee_bytes,
        limit_bytes=None if raw.limit_bytes == _prototypes.NO_LIMIT else raw.limit_bytes,
        part_bytes=raw.part_bytes or None,
    )
