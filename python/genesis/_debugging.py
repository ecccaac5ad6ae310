"""Finds blocks that are never freed, and wrong frees."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Union

from . import _live, _sizes, memory_profiler, options

_OFF = "off"


def enable_memory_debugging(
    enabled: bool = True, checks: Union[str, Iterable[str]] = "leaks"
) -> None:
    """Turns debugging on or off from now on: the option ``debug`` (``GENESIS_DEBUG``).

    ``checks`` is one of these, several, or a comma-separated list:

    ``"leaks"``       blocks still live when the process ends are listed on standard error
    ``"poison"``      memory is filled when it is handed out and when it is freed
    ``"quarantine"``  freed memory is kept out of reuse for a while, then checked for writes
    ``"guard"``       each block ends at an unmapped page
    ``"all"``         all of them except ``"guard"``

    With any of them, the age and the call site of blocks allocated from now on are known. Raises
    :class:`genesis.InvalidArgumentError` for any other check, and for ``"guard"`` once a device
    is in use.
    """
    names = checks if isinstance(checks, str) else ",".join(checks)
    options.set("debug", names if enabled else _OFF)


def check_memory_leaks(device: int = -1, min_size: _sizes.Size = 0) -> list[_live.Allocation]:
    """Returns the live blocks of at least ``min_size`` requested bytes (or a text such as
    ``"1MB"``) on ``device`` (−1: on every device in use), largest first.

    At a point where the program should have freed everything, these blocks have leaked. Each has
    the place that allocated it (``location``), the requested bytes (``size``), and the seconds
    since then (``age``). Objects that only Python's cycle collector would free are no leaks: it
    runs first.
    """
    gc.collect()
    return memory_profiler.located(_live.allocations(device, _sizes.to_bytes(min_size)))
