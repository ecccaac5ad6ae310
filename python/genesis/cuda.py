"""Limits for the memory that Genesis holds and caches on a device; memory made ready beforehand."""

from __future__ import annotations

import ctypes
import os
from typing import Optional, Union

from . import _blocks, _library, _sizes, options

__all__ = ["preallocate", "set_cache_size", "set_memory_fraction", "wait_for_plan", "write_plan"]

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


def preallocate(size: _sizes.Size, device: int = 0, stream: _blocks.Stream = None) -> None:
    """Takes ``size`` (bytes, or a text such as ``"2GB"``) of ``device`` from the driver beforehand,
    all of it or nothing. It is cached then, for requests on ``stream`` (``None``: the default
    stream) and, as any cached memory, for those on others.

    Raises :class:`genesis.OutOfMemoryError` if there is not so much within the limits, and
    :class:`genesis.GenesisError` under the strategies Naive, Round and Exact.
    """
    handle = _blocks.handle_of(stream)
    _library.call("genesis_memory_preallocate", device, _sizes.to_bytes(size), handle)


def wait_for_plan() -> None:
    """Waits until the memory that the plan of an earlier run names (option ``plan``) is ready, or
    as much of it as there is; without a plan it returns at once. A program need not wait: where
    nothing is ready yet, memory grows as always.
    """
    _library.call("genesis_plan_wait")


def write_plan(path: Union[str, os.PathLike[str]]) -> None:
    """Writes what this run needs to ``path``, for the option ``plan`` of the next run: what is
    held now, or was when most was held. With that option this is done at exit.

    Raises :class:`genesis.GenesisError` if the file cannot be written.
    """
    _library.call("genesis_plan_write", os.fsencode(path))
