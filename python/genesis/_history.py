"""Annotations in the history of a profile.

In JSON the history's events are columns of little-endian integers, deflated (zlib) and in
base64: time, action, device, stream, address, requested bytes, block bytes, call site, name. A
column begins at a multiple of 8 bytes:

    width of a stored value (u32) | entries of the table (u32) | table (u64 each) | values

With a table, values are indices into it. Times are differences, modulo 2^64. Four of these
columns are needed here.
"""

from __future__ import annotations

import base64
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Optional

_COLUMNS = ("time", "action", "device", "stream", "address", "requested", "block", "site", "name")
#: The type codes of arrays of values by their width.
_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
_RANGE_PUSH, _RANGE_POP, _MARK = 14, 15, 16


@dataclass(frozen=True)
class Annotation:
    """A range of the program, or a mark."""

    #: The program's name for it.
    name: str
    #: When it began, in seconds from the start of the profile.
    begin: float
    #: When it ended. Equal to ``begin`` for a mark; the profile's end for an open range.
    end: float
    #: The number of its thread.
    thread: int
    #: The number of ranges around it.
    depth: int


def annotations_of(packed: dict[str, Any], names: Sequence[str], end: float) -> list[Annotation]:
    """The annotations among ``packed`` events, in the order of their beginnings. Ranges that began
    before the first event are left out."""
    found: list[Annotation] = []
    open_ranges: dict[int, list[tuple[float, str]]] = {}
    for seconds, action, thread, name in _annotating(packed):
        ranges = open_ranges.setdefault(thread, [])
        if action == _RANGE_PUSH:
            ranges.append((seconds, names[name]))
        elif action == _MARK:
            found.append(Annotation(names[name], seconds, seconds, thread, len(ranges)))
        elif ranges:
            begin, range_name = ranges.pop()
            found.append(Annotation(range_name, begin, seconds, thread, len(ranges)))
    for thread, ranges in open_ranges.items():
        for depth, (begin, range_name) in enumerate(ranges):
            found.append(Annotation(range_name, begin, end, thread, depth))
    return sorted(found, key=lambda one: (one.begin, one.depth))


def _annotating(packed: dict[str, Any]) -> Iterator[tuple[float, int, int, int]]:
    """Yields seconds, action, thread and name number of each range and mark."""
    columns = _unpacked(packed)
    threads, names = columns["address"], columns["name"]
    times_ns = accumulate(columns["time"].all())
    annotating = (_RANGE_PUSH, _RANGE_POP, _MARK)
    for row, (time_ns, action) in enumerate(zip(times_ns, columns["action"].all())):
        if action in annotating:
            yield time_ns % (1 << 64) / 1e9, action, threads[row], names[row]


class _Column:
    """The values of one column, looked up in its table only when needed: most are not."""

    def __init__(self, stored: Sequence[int], table: Optional[Sequence[int]]) -> None:
        self._stored = stored
        self._table = table

    def __getitem__(self, row: int) -> int:
        stored = self._stored[row]
        return stored if self._table is None else self._table[stored]

    def all(self) -> Iterable[int]:
        if self._table is None:
            return self._stored
        return map(self._table.__getitem__, self._stored)


def _unpacked(packed: dict[str, Any]) -> dict[str, _Column]:
    count: int = packed["count"]
    data = zlib.decompress(base64.b64decode(packed["deflated"]))
    columns: dict[str, _Column] = {}
    at = 0
    for column in _COLUMNS:
        width, entries = struct.unpack_from("<II", data, at)
        values_at = at + 8 + 8 * entries
        end = values_at + width * count
        table = _values(data[at + 8 : values_at], 8) if entries else None
        stored = _values(data[values_at:end], width) if width else bytes(count)
        columns[column] = _Column(stored, table)
        at = (end + 7) // 8 * 8
    return columns


def _values(data: bytes, width: int) -> array[int]:
    values = array(_CODES[width])
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return values
