"""Finding blocks that nobody frees, and frees that are wrong."""

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

    ``checks``, one or several, or a comma list:

    ``"leaks"``       what is still live when the process ends is told on standard error
    ``"poison"``      memory is filled when it is handed out and when it is freed
    ``"quarantine"``  what was freed is kept out of reuse for a while, and looked at then
    ``"guard"``       each block ends at an unmapped page
    ``"all"``         all of them but ``"guard"``

    With any of them, blocks allocated from now on are known with their ages and the places that
    allocated them. Raises :class:`genesis.InvalidArgumentError` for any other check, and for
    ``"guard"`` once a device is in use.
    """
    names = checks if isinstance(checks, str) else ",".join(checks)
    options.set("debug", names if enabled else _OFF)


def check_memory_leaks(device: int = -1, min_size: _sizes.Size = 0) -> list[_live.Allocation]:
    """The blocks that are live on ``device`` (−1: on every device in use) and for which at least
    ``min_size`` (bytes, or a text such as ``"1MB"``) was asked, largest first.

    Where a program should have let go of everything, what is live has leaked; each item says
    where it was allocated (``location``), how much was asked for (``size``, in bytes), and how
    long ago (``age``, in seconds). Objects that only Python's cycle collector would free are
    no leaks: it runs first.
    """
    gc.collect()
    return memory_profiler.located(_live.allocations(device, _sizes.to_bytes(min_size)))
