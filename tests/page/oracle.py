"""Levels and blocks of a profile, computed from its JSON in the simplest way, to compare with the
page."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LEVELS = ("requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes")
ALLOCATE, MISS, FREE, PENDING, READY, RESERVE, RELEASE = range(1, 8)


@dataclass
class Event:
    time: int
    action: int
    device: int
    stream: int
    address: int
    requested: int
    block: int
    site: int
    name: int


def unpack(packed: dict[str, Any]) -> list[Event]:
    """The history's events; the layout is described in genesis-profile's ``packed.rs``."""
    count = packed["count"]
    data = zlib.decompress(base64.b64decode(packed["deflated"]))
    at = 0
    columns = []
    for _ in range(9):
        width, entries = struct.unpack_from("<II", data, at)
        table = struct.unpack_from(f"<{entries}Q", data, at + 8)
        at += 8 + 8 * entries
        code = {0: "x", 1: "B", 2: "H", 4: "I", 8: "Q"}[width]
        values = struct.unpack_from(f"<{count}{code}", data, at) if width else (0,) * count
        at += -(-width * count // 8) * 8
        columns.append([table[value] for value in values] if table else list(values))
    assert at == len(data)
    time, events = 0, []
    for row in zip(*columns):
        time += row[0]
        events.append(Event(time, *row[1:]))
    return events


class Profile:
    """A profile, and its levels and blocks at any moment."""

    def __init__(self, path: Path):
        self.document = json.loads(path.read_text())
        self.events = unpack(self.document["history"]["events"])
        self.duration = self.document["duration_ns"]

    def levels(self, ordinal: int, by_events: bool = False) -> list[tuple[int, tuple[int, ...]]]:
        """(time, levels) of a device: at the start, then after each event that changes them. With
        `by_events` time is the number of events instead of nanoseconds."""
        row = [device["ordinal"] for device in self.document["devices"]].index(ordinal)
        history = self.document["history"]
        start = history["start"][row]
        now = [start[level] for level in LEVELS]
        is_late = history["dropped_events"] and self.events and not by_events
        begin = self.events[0].time if is_late else 0
        result = [(begin, tuple(now))]
        for index, event in enumerate(self.events):
            if event.device != ordinal or event.action > RELEASE:
                continue
            after = self.events[index + 1] if index + 1 < len(self.events) else None
            before = self.events[index - 1] if index else None
            if event.action in (ALLOCATE, MISS):
                change = [event.requested, event.block, event.block, 0]
            elif event.action == FREE:
                stays = after and after.action == PENDING and after.address == event.address
                change = [-event.requested, -event.block, 0 if stays else -event.block, 0]
            elif event.action == PENDING:
                if before and before.action == FREE and before.address == event.address:
                    continue
                change = [0, 0, event.block, 0]
            elif event.action == READY:
                change = [0, 0, -event.block, 0]
            else:
                change = [0, 0, 0, event.block if event.action == RESERVE else -event.block]
            now = [level + by for level, by in zip(now, change)]
            result.append((index + 1 if by_events else event.time, tuple(now)))
        return result

    def live(self, ordinal: int, time: float) -> dict[int, tuple[int, int]]:
        """Address → (bytes, call site) of a device's live blocks after the events of `time`."""
        started = self.document["history"]["start_live"]
        live = {
            block["address"]: (block["block_bytes"], block["site"])
            for block in started
            if block["device"] == ordinal
        }
        for event in self.events:
            if event.time > time:
                break
            if event.device == ordinal and event.action in (ALLOCATE, MISS):
                live[event.address] = (event.block, event.site)
            elif event.device == ordinal and event.action == FREE:
                live.pop(event.address, None)
        return live

    def holders(self, ordinal: int, time: float) -> list[int]:
        """Bytes by call site, largest first."""
        sums: Counter[int] = Counter()
        for size, site in self.live(ordinal, time).values():
            sums[site] += size
        return sorted(sums.values(), reverse=True)


def bounds(
    levels: list[tuple[int, tuple[int, ...]]], level: int, start: float, end: float
) -> tuple[int, int]:
    """The lowest and the highest value of a level from just before `start` to `end`."""
    values = [values[level] for time, values in levels if start < time <= end]
    before = [values[level] for time, values in levels if time <= start]
    values += before[-1:]
    return min(values), max(values)
