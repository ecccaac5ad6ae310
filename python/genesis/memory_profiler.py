"""Where the memory goes, over time and by call site.

A profile records everything that the allocator does between :func:`start` and :func:`stop`, in
this process and on all devices. ``GENESIS_PROFILE=page.html`` makes a profile of a whole process
without a change to the program. While a profile is being made, an allocation costs some ten
nanoseconds more and, with call sites (the option ``call_sites``), a walk over the Python stack.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Optional, Union

from . import _library, _live, _nvtx, options
from ._profile import Document
from ._report import Report
from ._timeline import Timeline

__all__ = ["Report", "Timeline", "get_report", "get_timeline", "record", "start", "stop", "write"]

_Path = Union[str, "os.PathLike[str]"]

#: True if this module has started a profile that has not ended; ``None`` if it was never asked,
#: so that the environment decides.
_is_on: Optional[bool] = None


def start() -> None:
    """Begins a profile, and discards the previous one.

    NVTX ranges count as annotations if their library has not used NVTX before (see
    ``docs/python.md``). Raises :class:`genesis.InvalidArgumentError` while a profile is being made.
    """
    global _is_on
    _nvtx.listen()
    _library.call("genesis_profile_start")
    _is_on = True


def stop() -> None:
    """Ends the profile; it can still be written and read.

    Raises :class:`genesis.InvalidArgumentError` if no profile is being made.
    """
    global _is_on
    _is_on = False
    _library.call("genesis_profile_stop")


def write(path: _Path) -> None:
    """Writes the profile so far, or the one that has ended, in the format of the path's suffix:

    ``.html``        a page for any browser, in one file
    ``.json``        everything, for programs and for ``genesis report``
    ``.trace.json``  for Perfetto and ``chrome://tracing``
    ``.txt``         the text of :meth:`Report.summary`

    ``%p`` in the path is replaced by the process's number. Raises
    :class:`genesis.InvalidArgumentError` if there is no profile.
    """
    _library.call("genesis_profile_write", os.fsencode(path))


@contextlib.contextmanager
def record() -> Iterator[None]:
    """Makes a profile while the block runs, also if the block raises. If a profile is already being
    made, that one continues, and the block is a part of it."""
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
    """The memory levels over time of the profile so far, or of the one that has ended.

    Raises :class:`genesis.InvalidArgumentError` if there is none.
    """
    return Timeline(_document(), write)


def enable_memory_profiling(enabled: bool = True) -> None:
    """Begins a profile unless one is being made. With ``False``, ends the one being made, which
    :func:`get_report` and :func:`get_timeline` can then still read."""
    if enabled:
        _started()
    else:
        _stopped()


def located(blocks: list[_live.Allocation]) -> list[_live.Allocation]:
    """``blocks`` with their missing ages and call sites filled in from the profile being made."""
    if all(block.stack for block in blocks) or not _is_being_made():
        return blocks
    known = {(block.device, block.address): block for block in _document().live()}
    return [_filled(block, known.get((block.device, block.address))) for block in blocks]


def _filled(block: _live.Allocation, known: Optional[_live.Allocation]) -> _live.Allocation:
    if block.stack or known is None or known.size != block.size:
        return block
    age = known.age if block.age is None else block.age
    return replace(block, location=known.location, stack=known.stack, age=age)


def _is_being_made() -> bool:
    if _is_on is None and _library.has("genesis_profile_start"):
        return options.get("profile") != "off"
    return bool(_is_on)


def _document() -> Document:
    with tempfile.TemporaryDirectory(prefix="genesis-") as folder:
        path = Path(folder, "profile.json")
        write(path)
        return _read(path)


def _read(path: Path) -> Document:
    return Document(json.loads(path.read_bytes()))


def _started() -> bool:
    """Begins a profile. Returns false if one is being made already."""
    try:
        start()
    except _library.InvalidArgumentError:
        global _is_on
        _is_on = True
        return False
    return True


def _stopped() -> None:
    """Ends the profile if one is being made."""
    with contextlib.suppress(_library.InvalidArgumentError):
        stop()
