"""Genesis, a GPU memory allocator, from Python.

``genesis.torch.enable()`` makes it PyTorch's allocator; what stands here works without PyTorch.
"""

from __future__ import annotations

from . import options, trace
from ._library import (
    ConfigurationError,
    GenesisError,
    InvalidArgumentError,
    LibraryNotFoundError,
    OutOfMemoryError,
    function as _function,
    path as library_path,
)
from ._statistics import Gauge, PoolStats, Stats, empty_cache, memory_info, pool_stats, stats

__all__ = [
    "ConfigurationError",
    "Gauge",
    "GenesisError",
    "InvalidArgumentError",
    "LibraryNotFoundError",
    "OutOfMemoryError",
    "PoolStats",
    "Stats",
    "empty_cache",
    "library_path",
    "memory_info",
    "options",
    "pool_stats",
    "stats",
    "trace",
    "version",
]


def version() -> str:
    """The version of the library that is loaded."""
    text: bytes = _function("genesis_version_get")()
    return text.decode()
