"""Tags: allocations named by the code that makes them, whose memory is paused and resumed."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

from . import _library


@contextlib.contextmanager
def tag(name: str) -> Iterator[None]:
    """Within the block, this thread's allocations are of the tag ``name``; tags nest, and the
    innermost counts. What is allocated keeps its tag after the block. Only Elastic has tags."""
    _library.call("genesis_tag_push", name.encode())
    try:
        yield
    finally:
        _library.call("genesis_tag_pop")


def pause(name: str, *, keep: bool = True) -> None:
    """Gives the physical memory of the tag ``name`` back to the driver, on all devices.

    Tensors keep their addresses and, with ``keep``, their contents, in pinned host memory, for
    :func:`resume`; until then nothing may use them, though they may go. What is allocated under
    the tag meanwhile is not paused. Waits for all devices. A tag that is paused stays so.

    Raises :class:`genesis.InvalidArgumentError` for a name never used as a tag, and
    :class:`genesis.BusyError` while a graph is being captured or another thread pauses. After a
    failure everything is as it was.
    """
    _library.call("genesis_tag_pause", name.encode(), int(keep))


def resume(name: str) -> None:
    """Brings the memory of the tag ``name`` back, at the same addresses and with the contents that
    were kept. Does nothing if it is not paused.

    Raises :class:`genesis.OutOfMemoryError` if as much cannot be had, after what is cached has
    gone back; the tag is still paused then, with what was kept.
    """
    _library.call("genesis_tag_resume", name.encode())


def generation(name: str) -> int:
    """How often memory of the tag ``name`` has come back: what was registered with NCCL or for
    RDMA is to be registered again when this has changed."""
    value = ctypes.c_uint64()
    _library.call("genesis_tag_generation_get", name.encode(), ctypes.byref(value))
    return value.value


def enable_peer_access(device: int, peer: int) -> None:
    """From now on work on device ``peer`` may access all memory of ``device`` that Genesis holds
    or will hold. Only Elastic does this."""
    _library.call("genesis_peer_access_enable", device, peer)
