"""How much memory Genesis may hold on a device, and keep cached there."""

from __future__ import annotations

import ctypes
from typing import Optional

from . import _library, _sizes, options

__all__ = ["set_cache_size", "set_memory_fraction"]

_NO_LIMIT = ctypes.c_size_t(-1).value


def set_memory_fraction(fraction: float, device: Optional[int] = None) -> None:
    """Limits the physical memory held on ``device`` (``None``: on every device) to the part
    ``fraction``, above 0 and at most 1, of all its memory. Cached memory counts.

    What is held above a lower limit stays until it is freed. Raises
    :class:`genesis.InvalidArgumentError`, a ``ValueError``, for any other fraction.
    """
    if device is None:
        options.set("memory_fraction", fraction)
    else:
        _library.call("genesis_memory_fraction_set", device, fraction)


def set_cache_size(size: Optional[_sizes.Size], device: Optional[int] = None) -> None:
    """Limits the memory that ``device`` (``None``: every device) keeps cached, that is reserved
    and not live, to ``size``: bytes, or a text such as ``"2GB"`` (2 × 2³⁰ bytes). 0 keeps
    nothing cached, ``None`` or ``"unlimited"`` takes the limit away.

    What is cached above goes back to the driver. Raises ``ValueError`` for what is no size.
    """
    is_limited = size is not None and size != "unlimited"
    limit_bytes = _sizes.to_bytes(size) if size is not None and is_limited else _NO_LIMIT
    if device is None:
        options.set("cache_size", limit_bytes if is_limited else "unlimited")
    else:
        _library.call("genesis_cache_limit_set", device, limit_bytes)
