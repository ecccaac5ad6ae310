"""Statistics, limits and the cache."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from support.memory import MIB, block, mixed
from support.program import OUT_OF_MEMORY
from support.rows import row


@row(
    "torch.cuda.memory_allocated",
    "torch.cuda.max_memory_allocated",
    "torch.cuda.memory_reserved",
    "torch.cuda.max_memory_reserved",
    "torch.cuda.memory_cached",
    "torch.cuda.max_memory_cached",
    "torch.accelerator.memory_allocated",
    "torch.accelerator.max_memory_allocated",
    "torch.accelerator.memory_reserved",
    "torch.accelerator.max_memory_reserved",
)
def levels() -> list[int]:
    warnings.simplefilter("ignore")  # two of the names are old
    kept = mixed()
    cuda, accelerator = torch.cuda, torch.accelerator
    found = [
        ask()
        for ask in (
            cuda.memory_allocated,
            cuda.max_memory_allocated,
            cuda.memory_reserved,
            cuda.max_memory_reserved,
            cuda.memory_cached,
            cuda.max_memory_cached,
            accelerator.memory_allocated,
            accelerator.max_memory_allocated,
            accelerator.memory_reserved,
            accelerator.max_memory_reserved,
        )
    ]
    assert kept and found[0] > 0
    return found


def without_parts(stats: dict[str, Any]) -> dict[str, Any]:
    """For parts of segments PyTorch counts the sum of an operation, Genesis each block that is cut
    or joined; its peak over small and large blocks is only a bound."""
    return {
        key: value
        for key, value in stats.items()
        if not key.startswith("inactive_split") or key.endswith("current")
    }


@row(
    "torch.cuda.memory_stats",
    "torch.accelerator.memory_stats",
    "torch._C._cuda_memoryStats",
    differs="the same keys and values, except for the history of `inactive_split…`: PyTorch counts "
    "an operation, Genesis each block that is cut or joined; `oversize_…` is 0",
    of_answer=without_parts,
)
def statistics() -> dict[str, Any]:
    kept = mixed()
    torch.cuda.empty_cache()
    stats = dict(torch.cuda.memory_stats())
    accelerator = torch.accelerator.memory_stats()
    assert kept and {key: accelerator[key] for key in stats if key in accelerator} == {
        key: stats[key] for key in stats if key in accelerator
    }
    return stats


@row("torch.cuda.memory_stats_as_nested_dict")
def nested() -> list[Any]:
    kept = mixed()
    found = torch.cuda.memory_stats_as_nested_dict()
    assert kept
    return [sorted(found), found["allocated_bytes"], found["segment"], found["num_device_alloc"]]


@row(
    "torch.cuda.memory_summary",
    differs="the same, with the history of `inactive_split…` as above",
    of_answer=lambda text: [line for line in text.splitlines() if "Non-releasable" not in line][:9],
)
def summary() -> str:
    kept = [block(30 * MIB), block(100)]
    text = torch.cuda.memory_summary()
    assert kept
    return text


@row(
    "torch.cuda.reset_peak_memory_stats",
    "torch.cuda.reset_max_memory_allocated",
    "torch.cuda.reset_max_memory_cached",
    "torch.cuda.reset_accumulated_memory_stats",
    "torch.accelerator.reset_peak_memory_stats",
    "torch.accelerator.reset_accumulated_memory_stats",
    "torch._C._cuda_resetPeakMemoryStats",
    "torch._C._cuda_resetAccumulatedMemoryStats",
)
def resets() -> list[Any]:
    warnings.simplefilter("ignore")  # two of the names are old
    found = []
    for reset in (
        torch.cuda.reset_peak_memory_stats,
        torch.cuda.reset_max_memory_allocated,
        torch.cuda.reset_max_memory_cached,
        torch.cuda.reset_accumulated_memory_stats,
        torch.accelerator.reset_peak_memory_stats,
        torch.accelerator.reset_accumulated_memory_stats,
    ):
        block(30 * MIB)
        kept = block(7 * MIB)
        reset()
        stats = torch.cuda.memory_stats()
        keys = ("allocated_bytes", "requested_bytes", "allocation", "reserved_bytes", "segment")
        found.append(
            [
                stats[f"{key}.all.{value}"]
                for key in keys
                for value in ("current", "peak", "allocated", "freed")
            ]
        )
        found.append(stats["num_device_alloc"])
        del kept
    return found


@row("torch.cuda.empty_cache", "torch.accelerator.empty_cache", "torch._C._cuda_emptyCache")
def emptied() -> list[int]:
    found = []
    for empty in (torch.cuda.empty_cache, torch.accelerator.empty_cache):
        kept = mixed()
        empty()
        found += [torch.cuda.memory_reserved(), torch.cuda.memory_allocated()]
        del kept
        empty()
        stats = torch.cuda.memory_stats()
        found += [torch.cuda.memory_reserved(), stats["num_sync_all_streams"]]
    return found


@row(
    "torch.cuda.mem_get_info",
    "torch.accelerator.get_memory_info",
    differs="memory that is cached counts as free, within the limits in force; the same where none "
    "is cached",
)
def free_and_total() -> list[Any]:
    kept = block(512 * MIB)
    found = [torch.cuda.mem_get_info(), torch.cuda.mem_get_info("cuda:0")]
    assert kept.nbytes
    return [*found, torch.accelerator.get_memory_info()]


@row(
    "torch.cuda.set_per_process_memory_fraction",
    "torch.cuda.get_per_process_memory_fraction",
    "torch._C._cuda_setMemoryFraction",
    "torch._C._cuda_getMemoryFraction",
    says=OUT_OF_MEMORY,
)
def fraction() -> list[Any]:
    found: list[Any] = [torch.cuda.get_per_process_memory_fraction()]
    torch.cuda.set_per_process_memory_fraction(0.25)
    found.append(torch.cuda.get_per_process_memory_fraction())
    kept = block(15 << 30)
    try:
        block(10 << 30)
    except torch.OutOfMemoryError:
        found.append("refused")
    torch.cuda.set_per_process_memory_fraction(1.0)
    found.append(block(10 << 30).nbytes + kept.nbytes)
    return found


@row(
    "torch.cuda.host_memory_stats",
    "torch.cuda.host_memory_stats_as_nested_dict",
    "torch.cuda.reset_accumulated_host_memory_stats",
    "torch.cuda.reset_peak_host_memory_stats",
    "torch._C._cuda_hostMemoryStats",
    "torch._C._cuda_resetAccumulatedHostMemoryStats",
    "torch._C._cuda_resetPeakHostMemoryStats",
)
def pinned() -> list[Any]:
    torch.cuda.init()
    kept = torch.empty(1 << 20, pin_memory=True)
    found = [torch.cuda.host_memory_stats()["allocated_bytes.current"]]
    torch.cuda.reset_accumulated_host_memory_stats()
    torch.cuda.reset_peak_host_memory_stats()
    nested = torch.cuda.host_memory_stats_as_nested_dict()
    assert kept.is_pinned()
    return [*found, nested["allocated_bytes"], sorted(nested)]


@row(
    "torch.cuda.memory.list_gpu_processes",
    "torch.cuda.device_memory_used",
    "torch.cuda.memory_usage",
    differs="the same: they ask NVML, never the allocator",
)
def of_nvml() -> list[str]:
    found = []
    for ask in (torch.cuda.list_gpu_processes, torch.cuda.device_memory_used):
        try:
            found.append(str(ask()))
        except Exception as error:  # whatever NVML says where there is none
            found.append(f"{type(error).__name__}: {error}")
    return found


@row(
    "torch.cuda.caching_allocator_alloc",
    "torch.cuda.caching_allocator_delete",
    "torch._C._cuda_cudaCachingAllocator_raw_alloc",
    "torch._C._cuda_cudaCachingAllocator_raw_delete",
)
def raw() -> list[int]:
    address = torch.cuda.caching_allocator_alloc(3 * MIB)
    found = [torch.cuda.memory_allocated(), address % 512]
    torch.cuda.caching_allocator_delete(address)
    return [*found, torch.cuda.memory_allocated()]


@row(
    "torch.cuda.caching_allocator_enable",
    "torch._C._cuda_cudaCachingAllocator_enable",
    differs="the same memory goes back to the driver; blocks still share segments, and statistics "
    "count what PyTorch's do not: named once in a warning",
)
def without_a_cache() -> list[int]:
    warnings.simplefilter("ignore")
    torch.cuda.init()
    torch.cuda.caching_allocator_enable(False)
    block(30 * MIB)
    found = [torch.cuda.memory_reserved()]
    torch.cuda.caching_allocator_enable(True)
    block(30 * MIB)
    return [*found, torch.cuda.memory_reserved()]
