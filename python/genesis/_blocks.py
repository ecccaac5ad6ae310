"""Blocks by address, for the adapters of other packages."""

from __future__ import annotations

import ctypes
from typing import Any, Union

from . import _library

#: A stream: its handle, or a stream object of another package.
Stream = Union[int, None, Any]

#: Attributes under which packages keep a stream's handle: CuPy, PyTorch, Numba.
_HANDLES = ("ptr", "cuda_stream", "handle")


def handle_of(stream: Stream) -> int:
    """The handle of a stream; ``None`` is the legacy default stream."""
    if stream is None or isinstance(stream, int):
        return stream or 0
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int(protocol()[1])
    for name in _HANDLES:
        handle = getattr(stream, name, None)
        if handle is not None:
            # A number of ctypes has the attribute `value`.
            return int(getattr(handle, "value", handle) or 0)
    raise TypeError(f"{stream!r} is no stream: it has no __cuda_stream__")


def allocate(size: int, device: int, stream: int) -> int:
    """Returns the address of a block of ``size`` bytes, 0 for size 0. Raises on failure."""
    address: Union[int, None] = _library.function("genesis_malloc")(size, device, stream)
    if address is None and size:
        raise_last()
    return address or 0


def free(address: int) -> None:
    """Frees the block at ``address``; never raises, not even while the process ends."""
    _library.function("genesis_free")(address, 0, 0, None)


def record_stream(address: int, stream: int) -> None:
    """Records that work on ``stream`` uses the block at ``address``."""
    _library.call("genesis_block_record_stream", address, stream)


def raise_last() -> None:
    """Raises the error of this thread's last failed call."""
    _library.check(_library.function("genesis_last_error_get")())


def backend() -> str:
    """The backend in force: ``"cuda"``, ``"host"`` or ``"sim"``."""
    name = ctypes.c_char_p()
    _library.call("genesis_backend_get", ctypes.byref(name))
    return (name.value or b"").decode()


def device_count() -> int:
    """The number of devices."""
    count = ctypes.c_int()
    _library.call("genesis_device_count_get", ctypes.byref(count))
    return count.value
