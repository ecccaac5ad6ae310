"""Replaces functions of PyTorch that do not work with a pluggable allocator.

``torch.cuda.memory_stats`` and everything built on it call functions of ``torch._C`` that raise
unless PyTorch's own allocator is current. Exactly those are replaced, where all callers look them
up, so the Python functions above them, and names imported earlier, work unchanged.
``mem_get_info`` is the exception: it asks the driver, which counts cached memory as used. It is
replaced where it is defined and where it is exported.

Functions that Genesis's hooks serve already (``empty_cache``,
``set_per_process_memory_fraction``) are not replaced. :func:`remove` undoes all replacements.
"""

from __future__ import annotations

from typing import Any, Callable, Union

import torch
from torch.cuda._utils import _get_device_index

from .. import _statistics
from . import (
    _alloc_conf,
    _caching,
    _graph_trees,
    _mem_pool,
    _memory_history,
    _observers,
    _sharing,
    _torch_stats,
)

_Device = Union[torch.device, int, str, None]

_originals: list[tuple[Any, str, Any]] = []


def install() -> None:
    """Replaces the functions; does nothing if they are replaced already."""
    if _originals:
        return
    for owner, name, replacement in [*_replacements(), *_wrappers()]:
        if hasattr(owner, name):
            _originals.append((owner, name, getattr(owner, name)))
            setattr(owner, name, replacement)


def remove() -> None:
    """Restores the original functions."""
    while _originals:
        owner, name, original = _originals.pop()
        setattr(owner, name, original)


def mem_get_info(device: _Device = None) -> tuple[int, int]:
    """Free and total memory of a device in bytes, within the limits in force; memory that Genesis
    has cached counts as free."""
    torch.cuda.init()
    return _statistics.memory_info(_get_device_index(device, optional=True))


def _wrappers() -> list[tuple[Any, str, Callable[..., Any]]]:
    """Functions that PyTorch's own are a part of."""
    settings = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    trace = getattr(torch._C, "_activate_gpu_trace", None)
    wrapped: list[tuple[Any, str, Callable[..., Any]]] = []
    if settings is not None:
        wrapper = _alloc_conf.setter(settings)
        wrapped.append((torch._C, "_accelerator_setAllocatorSettings", wrapper))
    if trace is not None:
        wrapped.append((torch._C, "_activate_gpu_trace", _observers.activate_trace(trace)))
    return wrapped


def _replacements() -> list[tuple[Any, str, Callable[..., Any]]]:
    return [
        *_sharing.replacements(),
        (torch._C, "_cuda_memoryStats", _torch_stats.nested),
        (torch._C, "_cuda_resetPeakMemoryStats", _torch_stats.reset_peak),
        (torch._C, "_cuda_resetAccumulatedMemoryStats", _torch_stats.reset_accumulated),
        (torch._C, "_cuda_getMemoryFraction", _alloc_conf.memory_fraction),
        (torch._C, "_cuda_record_memory_history", _memory_history.record),
        (torch._C, "_cuda_record_memory_history_legacy", _memory_history.record_legacy),
        (torch._C, "_cuda_isHistoryEnabled", _memory_history.is_enabled),
        (torch._C, "_cuda_memorySnapshot", _memory_history.snapshot),
        (torch._C, "_cuda_setMemoryMetadata", _memory_history.set_metadata),
        (torch._C, "_cuda_getMemoryMetadata", _memory_history.metadata),
        (torch._C, "_cuda_memoryMetadataSupported", _memory_history.is_metadata_recorded),
        (torch._C, "_cuda_allocationTraceback", _memory_history.call_site),
        (torch._C, "_cuda_annotateMemory", _memory_history.annotate),
        (torch._C, "_cuda_attach_out_of_memory_observer", _observers.attach),
        (torch._C, "_cuda_cudaCachingAllocator_enable", _caching.enable),
        (torch._C, "_cuda_cudaCachingAllocator_is_enabled", _caching.is_enabled),
        # torch.accelerator's names for the same; it always asks PyTorch's own allocator.
        (torch._C, "_accelerator_isAllocatorInitialized", torch.cuda.is_initialized),
        (torch._C, "_accelerator_emptyCache", torch.cuda.empty_cache),
        (torch._C, "_accelerator_getDeviceStats", _torch_stats.of_accelerator),
        (torch._C, "_accelerator_resetPeakStats", _torch_stats.reset_peak),
        (torch._C, "_accelerator_resetAccumulatedStats", _torch_stats.reset_accumulated),
        (torch._C, "_accelerator_getMemoryInfo", _statistics.memory_info),
        # Private pools: torch.cuda.MemPool, and what CUDA graph trees ask.
        (torch.cuda.memory.MemPool, "__new__", _mem_pool.new),
        (torch.cuda.memory, "MemPool", _mem_pool.MemPool),
        (torch.cuda, "MemPool", _mem_pool.MemPool),
        *_mem_pool.retention(),
        (torch._C, "_cuda_getCheckpointState", _graph_trees.get_state),
        (torch._C, "_cuda_setCheckpointPoolState", _graph_trees.set_state),
        (torch._C, "_cuda_checkPoolLiveAllocations", _graph_trees.has_only),
        (torch.cuda.memory, "mem_get_info", mem_get_info),
        (torch.cuda, "mem_get_info", mem_get_info),
    ]
