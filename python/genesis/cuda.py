"""Limits for the memory that Genesis holds and caches on a device."""

from __future__ import annotations

import ctypes
from typing import Optional

from . import _library, _sizes, options

__all__ = ["set_cache_size", "set_memory_fraction"]

_NO_LIMIT = ctypes.c_size_t(-1).value


def set_memory_fraction(fraction: float, device: Optional[int] = None) -> None:
    """Limits the physical memory held on ``device`` (``None``: on every device) to ``fraction`` of
    its memory, 0 < ``fraction`` ≤ 1. Cached memory counts.

    Memory already held above the limit stays until it is freed. Raises
    :class:`genesis.InvalidArgumentError`, a ``ValueError``, for any other fraction.
    """
    if device is None:
        options.set("memory_fraction", fraction)
    else:
        _library.call("genesis_memory_fraction_set", device, fraction)


def set_cache_size(size: Optional[_sizes.Size], device: Optional[int] = None) -> None:
    """Limits the cached memory (reserved and not live) of ``device`` (``None``: of every device) to
    ``size``: bytes, or a text such as ``"2GB"`` (2 × 2³⁰ bytes). With 0 nothing stays cached;
    ``None`` or ``"unlimited"`` removes the limit.

    Cached memory above the limit returns to the driver. Raises ``ValueError`` if ``size`` is not a
    size.
    """
    is_limited = size is not None and size != "unlimited"
    limit_bytes = _sizes.to_bytes(size) if size is not None and is_limited else _NO_LIMIT
    if device is None:
        options.set("cache_size", limit_bytes if is_limited else "unlimited")
    else:
        _library.call("genesis_cache_limit_set", device, limit_bytes)
