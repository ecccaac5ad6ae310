"""The recorder: every allocation and free of this process, written to a file that
``genesis replay`` and ``genesis compare`` read.

``GENESIS_TRACE`` in the environment records a whole process; these functions a part of it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Union

from . import _library

_Path = Union[str, "os.PathLike[str]"]


def available() -> bool:
    """Returns true if the loaded library can record."""
    return _library.has("genesis_trace_start")


def start(path: _Path) -> None:
    """Begins to record to ``path``, compressed if it ends in ``.zst``. ``%p`` in it is replaced by
    the process's number."""
    _library.call("genesis_trace_start", os.fsencode(path))


def flush() -> None:
    """Writes everything recorded so far to the file."""
    _library.call("genesis_trace_flush")


def iteration(number: int) -> None:
    """Marks that iteration ``number`` of the program has ended: in the recording and the profile,
    if there are, and as a step of :func:`genesis.forecast`."""
    _library.call("genesis_trace_iteration", number)


def stop() -> None:
    """Ends the recording and closes its file."""
    _library.call("genesis_trace_stop")


@contextlib.contextmanager
def recording(path: _Path) -> Iterator[None]:
    """Records to ``path`` while the block runs."""
    start(path)
    try:
        yield
    finally:
        stop()
