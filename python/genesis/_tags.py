"""Tags: names for allocations, whose memory can then be paused and resumed by name."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

from . import _library


@contextlib.contextmanager
def tag(name: str) -> Iterator[None]:
    """Within the block, this thread's allocations get the tag ``name``. Tags nest; the innermost
    counts. Allocations keep their tag after the block. Only Elastic has tags."""
    _library.call("genesis_tag_push", name.encode())
    try:
        yield
    finally:
        _library.call("genesis_tag_pop")


def pause(name: str, *, keep: bool = True) -> None:
    """Returns the physical memory of the tag ``name`` to the driver, on all devices.

    Tensors keep their addresses. With ``keep`` their contents are kept in pinned host memory until
    :func:`resume`. Until then nothing may use them; they may be freed. Memory allocated under the
    tag in the meantime is not paused. Waits for all devices. Pausing a paused tag does nothing.

    Raises :class:`genesis.InvalidArgumentError` for a name never used as a tag, and
    :class:`genesis.BusyError` while a graph is being captured or another thread pauses. A failure
    changes nothing.
    """
    _library.call("genesis_tag_pause", name.encode(), int(keep))


def resume(name: str) -> None:
    """Restores the memory of the tag ``name``, at the same addresses and with the kept contents.
    Does nothing if it is not paused.

    Raises :class:`genesis.OutOfMemoryError` if memory is short even after the cache was emptied;
    the tag then stays paused, with its kept contents.
    """
    _library.call("genesis_tag_resume", name.encode())


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
