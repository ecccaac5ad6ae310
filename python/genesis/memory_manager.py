"""Asking the allocator to tidy up. None of this is needed for a program to work: when memory is
short, a request does all of it before it fails."""

from __future__ import annotations

import ctypes

from . import _library

__all__ = ["collect_garbage", "compact"]


def collect_garbage(device: int = -1) -> int:
    """Gives back to the driver what ``device`` (−1: every device in use) has cached and not used
    for as long as the options ``gc_age_allocations`` and ``gc_age_seconds`` say or, where they
    say nothing, since the previous collection. Returns the bytes given back.

    May wait for the device. :func:`genesis.empty_cache` gives everything cached back.
    """
    released_bytes = ctypes.c_size_t()
    _library.call("genesis_garbage_collect", device, ctypes.byref(released_bytes))
    return released_bytes.value


def compact(device: int = -1) -> int:
    """Takes in the freed blocks of ``device`` (−1: of every device in use) with which other
    streams have finished, and joins free neighbours. Returns the bytes that became reusable.

    Gives nothing back to the driver, moves no live block, and does not wait.
    """
    reusable_bytes = ctypes.c_size_t()
    _library.call("genesis_memory_compact", device, ctypes.byref(reusable_bytes))
    return reusable_bytes.value
