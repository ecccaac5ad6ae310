"""Cleans up the allocator's cache on request. A program works without it: when memory is short, a
request does all of this before it fails."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

from . import _library, _prototypes, _structs

__all__ = [
    "Compaction",
    "Optimization",
    "collect_garbage",
    "compact",
    "on_compaction",
    "optimize",
]


def collect_garbage(device: int = -1) -> int:
    """Returns to the driver the memory that ``device`` (−1: every device in use) has cached and not
    used for a while: for as long as the options ``gc_age_allocations`` and ``gc_age_seconds`` say,
    or without them since the previous collection. Returns the number of these bytes.

    May wait for the device. :func:`genesis.empty_cache` returns everything cached.
    """
    released_bytes = ctypes.c_size_t()
    _library.call("genesis_garbage_collect", device, ctypes.byref(released_bytes))
    return released_bytes.value


def compact(device: int = -1) -> int:
    """Makes freed blocks of ``device`` (−1: of every device in use) reusable if other streams have
    finished with them, and joins free neighbours. Returns the bytes that became reusable.

    Returns nothing to the driver, moves no live block, and does not wait.
    """
    reusable_bytes = ctypes.c_size_t()
    _library.call("genesis_memory_compact", device, ctypes.byref(reusable_bytes))
    return reusable_bytes.value


@dataclass(frozen=True)
class Optimization:
    """What :func:`optimize` did; sizes in bytes, times in nanoseconds."""

    #: Held before.
    reserved_bytes: int
    #: Given back to the driver.
    released_bytes: int
    #: Freed, and finished with by other streams: they are usable again.
    compacted_bytes: int
    #: Calls of the driver meanwhile; also those of other threads.
    driver_calls: int
    #: Time in them.
    driver_nanoseconds: int
    #: Time of it all.
    nanoseconds: int


def optimize(device: int = -1) -> Optimization:
    """Puts the cache of ``device`` (−1: of every device in use) in order, and returns what it did:
    makes what is free usable, as :func:`compact` does, and gives back to the driver what was not
    used since the previous call, and what is held beyond the most that was ever live.

    May wait for the device; during a capture it gives nothing back.
    """
    struct = _structs.COptimization()
    struct.struct_size = ctypes.sizeof(struct)
    _library.call("genesis_memory_optimize", device, ctypes.byref(struct))
    names = Optimization.__dataclass_fields__
    return Optimization(**{name: getattr(struct, name) for name in names})


@dataclass(frozen=True)
class Compaction:
    """What the fragmentation watch (option ``compact_above``) did; in bytes."""

    #: Held before.
    reserved_bytes: int
    #: Free of it: neither live nor pending.
    free_bytes: int
    #: Returned to the driver.
    released_bytes: int


#: All of them: a call of one that was replaced may still be under way.
_callbacks: list[Any] = []


def on_compaction(callback: Optional[Callable[[int, Compaction], None]]) -> None:
    """Has ``callback(device, compaction)`` called after the fragmentation watch has returned
    memory, in place of the callback before; ``None``: none. Any thread may call it."""
    function = _prototypes.CompactionCallback()
    if callback is not None:
        told = callback

        def tell(_: Any, device: int, struct: Any) -> None:
            done = struct.contents
            told(device, Compaction(done.reserved_bytes, done.free_bytes, done.released_bytes))

        function = _prototypes.CompactionCallback(tell)
    _callbacks.append(function)
    _library.call("genesis_compaction_callback_set", function, None)
