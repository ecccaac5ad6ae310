"""Tags: names for allocations, whose memory can then be limited, paused and resumed by name."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Optional, Union

from . import _library, _progress, _prototypes, _sizes

_ALL_DEVICES = -1
_UNCHANGED: Final[Any] = object()


@dataclass(frozen=True)
class Tag:
    """What a tag holds on a device."""

    #: The tag.
    name: str
    #: The device.
    device: int
    #: The most that may be live, in bytes; ``None``: no limit.
    limit_bytes: Optional[int]
    #: What is live or paused, in bytes; each block with the size to which its request is rounded.
    live_bytes: int
    #: How many blocks these are.
    live_blocks: int
    #: How many requests the limit has stopped.
    refusals: int


#: What is kept of paused memory, by the number of its ``genesis_backup``.
_BACKUPS: Final = ("none", "pinned", "pageable", "disk")
#: As the memory's tag was begun.
_AS_TAGGED: Final = -1


@contextlib.contextmanager
def tag(
    name: str, *, limit: Optional[_sizes.Size] = _UNCHANGED, backup: str = "none"
) -> Iterator[None]:
    """Within the block, this thread's allocations get the tag ``name``. Tags nest: a block is
    paused with the innermost, and counts against the limits of all. Allocations keep their tags
    after the block, whichever thread frees them.

    ``limit``, in bytes or as text such as ``"4GB"``, is that of :func:`limit_tag`, on each device.
    It stays after the block. Without ``limit`` the tag's limit stays as it is; ``None`` removes it.

    ``backup`` is what is kept of these allocations by a :func:`pause` that does not say:
    ``"none"``, or the contents in host memory, page-locked always (``"pinned"``) or only while it
    is copied (``"pageable"``), or in a file (``"disk"``). Under the empty name allocations have no
    tag.
    """
    if limit is not _UNCHANGED:
        limit_tag(name, limit)
    _library.call("genesis_tag_push_with", name.encode(), backup_number(backup))
    try:
        yield
    finally:
        _library.call("genesis_tag_pop")


def limit_tag(name: str, limit: Optional[_sizes.Size], device: int = _ALL_DEVICES) -> None:
    """Limits what is live under the tag ``name``, in all threads, on ``device`` or on each device;
    ``None`` removes the limit.

    A request beyond the limit fails: PyTorch raises ``torch.OutOfMemoryError``, which names the
    tag, its limit and what it holds. Nothing outside the tag is released, waited for or refused
    because of it. What is live stays when the limit is lowered.
    """
    _library.call("genesis_tag_limit_set", name.encode(), device, limit_bytes(limit))


def tags(device: int = _ALL_DEVICES) -> list[Tag]:
    """What each tag holds on ``device``, or on each device in turn."""
    found: list[Tag] = []

    def visit(_user_data: Optional[int], usage: Any) -> None:
        raw = usage.contents
        found.append(
            Tag(
                name=raw.tag.decode(),
                device=raw.device,
                limit_bytes=limit_of(raw.limit_bytes),
                live_bytes=raw.live_bytes,
                live_blocks=raw.live_blocks,
                refusals=raw.refusals,
            )
        )

    _library.call("genesis_tags_visit", device, _prototypes.TagVisitor(visit), None)
    return found


def limit_bytes(limit: Optional[_sizes.Size]) -> int:
    """A limit as the library takes it."""
    if limit is None:
        return _prototypes.NO_LIMIT
    if not isinstance(limit, (int, str)):
        raise TypeError(f"a limit is a number of bytes or a text such as '4GB', not {limit!r}")
    found = _sizes.to_bytes(limit)
    if found >= _prototypes.NO_LIMIT:
        raise ValueError(f"a limit of {limit!r} is larger than any memory")
    return found


def limit_of(limit: int) -> Optional[int]:
    """A limit as the library returns it."""
    return None if limit == _prototypes.NO_LIMIT else limit


def backup_number(backup: str) -> int:
    """The number of the ``genesis_backup`` of this name."""
    if backup not in _BACKUPS:
        raise ValueError(f"{backup!r} is not one of {', '.join(_BACKUPS)}")
    return _BACKUPS.index(backup)


def pause(
    name: Optional[str] = None,
    *,
    keep: Union[bool, str, None] = True,
    version: int = 0,
    progress: _progress.Progress = False,
) -> None:
    """Returns the physical memory of the tag ``name``, or of all tags, to the driver, on all
    devices: all of it, or none if that fails. Memory of private pools with the tag goes as well
    (``genesis.torch.tag_pool``).

    Tensors keep their addresses. With ``keep`` their contents are kept until :func:`resume`:
    ``True`` is ``"pinned"`` and ``None`` is the backup that their tag was begun with; see
    :func:`tag`. Until then nothing may use them; they may be freed. Memory allocated under the tag
    in the meantime is not paused. Waits for all devices. Pausing a paused tag does nothing.

    ``version``, if it is not 0, is the program's number for the contents. What is saved then stays
    in host memory after :func:`resume`, and the next pause with the same number copies nothing,
    unless tensors of the tag have come or gone. With another number it copies into the same memory.

    With ``progress`` a terminal or a notebook shows how far it is, by tqdm if that is installed,
    once it takes longer than a second; or ``progress(done, total)`` is called, in bytes: with 0,
    after each piece of at most 256 MiB, and with all.

    Raises :class:`genesis.InvalidArgumentError` for a name never used as a tag, and
    :class:`genesis.BusyError` while a graph is being captured or another thread pauses. A failure
    changes nothing.
    """
    if keep is None:
        number = _AS_TAGGED
    else:
        number = backup_number(keep) if isinstance(keep, str) else int(keep)
    with _progress.during("pausing", progress):
        _library.call("genesis_tag_pause_with", (name or "").encode(), number, version)


def resume(name: Optional[str] = None, *, progress: _progress.Progress = False) -> None:
    """Restores the memory of the tag ``name``, or of all tags, at the same addresses and with the
    kept contents. Does nothing if it is not paused. ``progress`` is that of :func:`pause`.

    Raises :class:`genesis.OutOfMemoryError` if memory is short even after the cache was emptied;
    the tag then stays paused, with its kept contents.
    """
    with _progress.during("resuming", progress):
        if name:
            _library.call("genesis_tag_resume", name.encode())
        else:
            _library.call("genesis_tags_resume")


def generation(name: str) -> int:
    """The number of times that memory of the tag ``name`` was restored. When it changes, register
    the memory again with NCCL or for RDMA."""
    value = ctypes.c_uint64()
    _library.call("genesis_tag_generation_get", name.encode(), ctypes.byref(value))
    return value.value


def enable_peer_access(device: int, peer: int) -> None:
    """Lets work on device ``peer`` access all memory of ``device`` that Genesis holds now or later.
    Only Elastic does this."""
    _library.call("genesis_peer_access_enable", device, peer)
