"""Genesis, a GPU memory allocator, from Python.

``genesis.torch.enable()`` makes it PyTorch's allocator; what stands here works without PyTorch.
"""

from __future__ import annotations

from . import options, trace
from ._library import (
    BusyError,
    ConfigurationError,
    GenesisError,
    InvalidArgumentError,
    LibraryNotFoundError,
    OutOfMemoryError,
    function as _function,
    path as library_path,
)
from ._statistics import Gauge, PoolStats, Stats, empty_cache, memory_info, pool_stats, stats
from ._tags import enable_peer_access, generation, pause, resume, tag

__all__ = [
    "BusyError",
    "ConfigurationError",
    "Gauge",
    "GenesisError",
    "InvalidArgumentError",
    "LibraryNotFoundError",
    "OutOfMemoryError",
    "PoolStats",
    "Stats",
    "empty_cache",
    "enable_peer_access",
    "generation",
    "library_path",
    "memory_info",
    "options",
    "pause",
    "pool_stats",
    "resume",
    "stats",
    "tag",
    "trace",
    "version",
]


def version() -> str:
    """The version of the library that is loaded."""
    text: bytes = _function("genesis_version_get")()
    return text.decode()
