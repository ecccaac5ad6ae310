"""Host memory: pageable, the process's own, and pinned, whose pages are locked for a GPU's copies::

    genesis.cpu.preallocate("8GB", pinned=True, wait=False)
    batch = genesis.cpu.empty((256, 1024), "float32", pinned=True)
    numpy.asarray(batch)[:] = 1

Each kind has a pool of its own. Sizes are not rounded to powers of two. Functions that take
``pinned`` mean pageable memory with ``False``, and with ``None`` what :func:`enable_pinned_memory`
says. Any thread may call them.
"""

from __future__ import annotations

import ctypes
from typing import Any, Optional, Union

from . import _blocks, _library, _memory_stats, _prototypes, _sizes, _statistics
from .dlpack import Buffer

__all__ = [
    "HostBuffer",
    "empty",
    "empty_cache",
    "enable_pinned_memory",
    "is_pinned",
    "is_pinned_memory_enabled",
    "memory_stats",
    "preallocate",
    "record_stream",
    "reset_peak_stats",
    "set_cache_size",
    "set_memory_limit",
    "stats",
    "wait_for_preallocation",
]

#: ``genesis_host_kind``.
_PAGEABLE, _PINNED = 0, 1

_is_pinned_by_default = False


class HostBuffer(Buffer):
    """Host memory for an array of ``shape`` and ``dtype``; use :func:`empty` to make one."""

    def __init__(self, shape: Union[int, tuple[int, ...]], dtype: Any, kind: int) -> None:
        self._describe(shape, dtype, 0, None)
        #: Whether the pages are locked.
        self.is_pinned = kind == _PINNED
        handle = ctypes.c_void_p()
        _library.call("genesis_dlpack_host_buffer_create", self.nbytes, kind, ctypes.byref(handle))
        self._own(handle, True)

    def record_stream(self, stream: _blocks.Stream) -> None:
        """Records that a copy or a kernel on ``stream`` uses the memory: it is not reused before
        the work queued there until it is freed is complete. The stream must exist until then."""
        super().record_stream(stream)


def enable_pinned_memory(enabled: bool = True) -> None:
    """From now on, functions of this module that are not told which memory they are about take
    pinned memory, or pageable again with ``False``. Nothing is locked before it is asked for."""
    global _is_pinned_by_default
    _is_pinned_by_default = bool(enabled)


def is_pinned_memory_enabled() -> bool:
    """Returns true if :func:`enable_pinned_memory` is in force."""
    return _is_pinned_by_default


def empty(
    shape: Union[int, tuple[int, ...]], dtype: Any = "uint8", *, pinned: Optional[bool] = None
) -> HostBuffer:
    """Memory for an array, which NumPy, PyTorch and others make without a copy; its bytes are
    ``.view``. Contents are undefined. It is freed when the buffer and all its arrays are gone.

    A copy to or from a GPU that the host does not wait for must be told of by
    :func:`record_stream` or ``buffer.record_stream(stream)``.

    Raises :class:`genesis.OutOfMemoryError`.
    """
    return HostBuffer(shape, dtype, _kind(pinned))


def is_pinned(memory: Any) -> bool:
    """Returns true if ``memory`` is pinned memory of Genesis: an address, a buffer of this package,
    or an array or tensor in host memory."""
    if isinstance(memory, int):
        return bool(_library.function("genesis_host_is_pinned")(memory))
    return is_pinned(_address_of(memory))


def record_stream(memory: Any, stream: _blocks.Stream) -> None:
    """Records that a copy or a kernel on ``stream`` uses ``memory``, as ``buffer.record_stream``
    does: an address, an array or a tensor that begins a block of Genesis's host memory."""
    address = memory if isinstance(memory, int) else _address_of(memory)
    _library.call("genesis_host_record_stream", address, _blocks.handle_of(stream))


def preallocate(size: _sizes.Size, *, pinned: Optional[bool] = None, wait: bool = True) -> None:
    """Takes ``size`` (bytes, or a text such as ``"8GB"``) beforehand, all of it or nothing; it is
    cached then. Locking the pages takes about 0.1 s a GB: with ``wait=False`` a thread of the
    library does it, and :func:`wait_for_preallocation` tells how it ended.

    Raises :class:`genesis.OutOfMemoryError` if there is not so much within the limits.
    """
    _library.call("genesis_host_preallocate", _kind(pinned), _sizes.to_bytes(size), not wait)


def wait_for_preallocation() -> None:
    """Waits until all that :func:`preallocate` was asked for without waiting is there. Raises the
    first error since the last wait."""
    _library.call("genesis_host_preallocate_wait")


def set_memory_limit(size: Optional[_sizes.Size], *, pinned: Optional[bool] = None) -> None:
    """Limits what is held from the system to ``size``; ``None`` or ``"unlimited"`` removes the
    limit. Memory already held stays."""
    is_limited = size is not None and size != "unlimited"
    limit_bytes = _sizes.to_bytes(size) if size is not None and is_limited else 0
    if is_limited and limit_bytes == 0:
        raise ValueError("a limit of 0 bytes would leave no memory")
    _library.call("genesis_host_memory_limit_set", _kind(pinned), limit_bytes)


def set_cache_size(size: Optional[_sizes.Size], *, pinned: Optional[bool] = None) -> None:
    """Limits what stays cached to ``size``: 0 keeps nothing, ``None`` or ``"unlimited"`` removes
    the limit. What is above it returns to the system."""
    is_limited = size is not None and size != "unlimited"
    limit_bytes = _sizes.to_bytes(size) if size is not None and is_limited else _prototypes.NO_LIMIT
    _library.call("genesis_host_cache_limit_set", _kind(pinned), limit_bytes)


def empty_cache(*, pinned: Optional[bool] = None) -> None:
    """Returns everything cached to the system."""
    _library.call("genesis_host_cache_empty", _kind(pinned))


def memory_stats(*, pinned: Optional[bool] = None) -> _memory_stats.MemoryStats:
    """The pool now, in a few figures; :func:`stats` has them all."""
    return _memory_stats.summary(stats(pinned=pinned))


def stats(*, pinned: Optional[bool] = None) -> _statistics.Stats:
    """The statistics of the pool. Driver calls are requests to the system, or to the driver."""
    return _statistics.stats_by("genesis_host_stats_get", _kind(pinned))


def reset_peak_stats(*, pinned: Optional[bool] = None) -> None:
    """Sets every peak of the pool to the value now."""
    _library.call("genesis_host_stats_reset_peak", _kind(pinned))


def _kind(pinned: Optional[bool]) -> int:
    is_pinned = _is_pinned_by_default if pinned is None else pinned
    return _PINNED if is_pinned else _PAGEABLE


def _address_of(memory: Any) -> int:
    """The address of the first byte of an array."""
    pointer = getattr(memory, "data_ptr", None)
    if pointer is not None:
        return int(pointer() if callable(pointer) else pointer)
    interface = getattr(memory, "__array_interface__", None)
    if interface is not None:
        return int(interface["data"][0])
    raise TypeError(f"{memory!r} has no address")
