"""Genesis, a GPU memory allocator, from Python.

``genesis.torch.enable()`` makes it PyTorch's allocator; the names here work without PyTorch. The
adapters ``genesis.torch``, ``cupy``, ``rmm``, ``numba`` and ``onnxruntime`` import their frameworks
when they are first used. All sizes are in bytes, all times in seconds. ``docs/python.md`` has every
name on one page.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from . import (
    _adapters,
    cpu,
    cuda,
    dlpack,
    managed,
    memory_manager,
    memory_profiler,
    options,
    trace,
)
from ._annotations import annotate, mark
from ._arenas import (
    Arena,
    ArenaStats,
    FixedPool,
    FixedPoolStats,
    MemoryManager,
    MemoryManagerStats,
)
from ._debugging import check_memory_leaks, enable_memory_debugging
from ._forecast import Forecast, forecast, on_forecast
from ._library import (
    BusyError,
    ConfigurationError,
    GenesisError,
    InvalidArgumentError,
    LibraryNotFoundError,
    LimitReachedError,
    OutOfHostMemoryError,
    OutOfMemoryError,
    function as _function,
    path as library_path,
)
from ._live import Allocation
from ._memory_stats import (
    DetailedMemoryStats,
    MemoryStats,
    detailed_memory_stats,
    memory_stats,
)
from ._neighbours import Neighbour, neighbours
from ._snapshot import snapshot
from ._statistics import (
    Gauge,
    PoolStats,
    Stats,
    empty_cache,
    memory_info,
    pool_stats,
    reset_peak_stats,
    stats,
)
from ._tags import Tag, enable_peer_access, generation, limit_tag, pause, resume, tag, tags
from .memory_profiler import enable_memory_profiling

if TYPE_CHECKING:  # at run time, __getattr__ imports them
    from . import (
        cupy as cupy,
        numba as numba,
        onnxruntime as onnxruntime,
        rmm as rmm,
        torch as torch,
        torch_memory_saver as torch_memory_saver,
    )

__all__ = [
    "Allocation",
    "Arena",
    "ArenaStats",
    "BusyError",
    "ConfigurationError",
    "DetailedMemoryStats",
    "FixedPool",
    "FixedPoolStats",
    "Forecast",
    "Gauge",
    "GenesisError",
    "InvalidArgumentError",
    "LibraryNotFoundError",
    "LimitReachedError",
    "MemoryManager",
    "MemoryManagerStats",
    "MemoryStats",
    "Neighbour",
    "OutOfHostMemoryError",
    "OutOfMemoryError",
    "PoolStats",
    "Stats",
    "Tag",
    "annotate",
    "check_memory_leaks",
    "cpu",
    "cuda",
    "detailed_memory_stats",
    "dlpack",
    "empty_cache",
    "enable_memory_debugging",
    "enable_memory_profiling",
    "enable_peer_access",
    "forecast",
    "generation",
    "library_path",
    "limit_tag",
    "managed",
    "mark",
    "memory_info",
    "memory_manager",
    "memory_profiler",
    "memory_stats",
    "neighbours",
    "on_forecast",
    "options",
    "pause",
    "pool_stats",
    "reset_peak_stats",
    "resume",
    "snapshot",
    "stats",
    "tag",
    "tags",
    "trace",
    "version",
]


def version() -> str:
    """The version of the loaded library."""
    text: bytes = _function("genesis_version_get")()
    return text.decode()


def __getattr__(name: str) -> ModuleType:
    if name in _adapters.ADAPTERS:
        return _adapters.load(__name__, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_adapters.ADAPTERS})
