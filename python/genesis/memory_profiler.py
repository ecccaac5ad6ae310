"""Where the memory goes, over time and by call site.

A profile is made of everything that the allocator does between :func:`start` and :func:`stop`,
in this process and on all devices; ``GENESIS_PROFILE=page.html`` makes one of a whole process
without a change to the program. While one is being made, an allocation costs some ten
nanoseconds more and, with call sites (the option ``call_sites``), a walk over the Python stack.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Iterator, Union

from . import _library, _nvtx
from ._profile import Document
from ._report import Report
from ._timeline import Timeline

__all__ = ["Report", "Timeline", "get_report", "get_timeline", "record", "start", "stop", "write"]

_Path = Union[str, "os.PathLike[str]"]


def start() -> None:
    """Begins a profile, and forgets the one before.

    NVTX ranges count as annotations where their library has not been used before (see
    ``docs/python.md``). Raises :class:`genesis.InvalidArgumentError` while one is being made.
    """
    _nvtx.listen()
    _library.call("genesis_profile_start")


def stop() -> None:
    """Ends the profile; it can still be written and looked at.

    Raises :class:`genesis.InvalidArgumentError` if none is being made.
    """
    _library.call("genesis_profile_stop")


def write(path: _Path) -> None:
    """Writes the profile so far, or the one that has ended, in the form that ``path`` ends in:

    ``.html``        a page for any browser, in one file
    ``.json``        everything, for programs and for ``genesis report``
    ``.trace.json``  for Perfetto and ``chrome://tracing``
    ``.txt``         what :meth:`Report.summary` says

    ``%p`` in it stands for the process's number. Raises
    :class:`genesis.InvalidArgumentError` if there is no profile.
    """
    _library.call("genesis_profile_write", os.fsencode(path))


@contextlib.contextmanager
def record() -> Iterator[None]:
    """Makes a profile for as long as the block runs, also if it ends by an error. If one is being
    made already, that one goes on, and the block is a part of it."""
    is_own = _started()
    try:
        yield
    finally:
        if is_own:
            _stopped()


def get_report() -> Report:
    """The profile so far, or the one that has ended.

    Raises :class:`genesis.InvalidArgumentError` if there is none. Takes a second or two for a
    history of a million events.
    """
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        document, text = Path(folder, "profile.json"), Path(folder, "profile.txt")
        write(document)
        write(text)
        return Report(_read(document), text.read_text(encoding="utf-8"))


def get_timeline() -> Timeline:
    """How the memory of the profile so far, or of the one that has ended, went over time.

    Raises :class:`genesis.InvalidArgumentError` if there is none.
    """
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        document = Path(folder, "profile.json")
        write(document)
        return Timeline(_read(document), write)


def enable_memory_profiling(enabled: bool = True) -> None:
    """Begins a profile unless one is being made or, with ``False``, ends the one being made; it
    can then still be looked at, by :func:`get_report` and :func:`get_timeline`."""
    if enabled:
        _started()
    else:
        _stopped()


def _read(path: Path) -> Document:
    return Document(json.loads(path.read_bytes()))


def _started() -> bool:
    """Begins a profile unless one is being made; says whether it did."""
    try:
        start()
    except _library.InvalidArgumentError:
        return False
    return True


def _stopped() -> None:
    """Ends the profile if one is being made."""
    with contextlib.suppress(_library.InvalidArgumentError):
        stop()
