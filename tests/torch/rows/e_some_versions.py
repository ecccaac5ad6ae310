"""Functions that only some versions of PyTorch have."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from rows.e_pools import levels
from support.memory import MIB, block
from support.rows import row


@row(
    "torch.cuda.caching_allocator_disabled",
    "torch._C._cuda_cudaCachingAllocator_is_enabled",
    differs="as `torch.cuda.caching_allocator_enable`",
    of_some_versions=True,
)
def disabled() -> list[Any]:
    warnings.simplefilter("ignore")
    enabled = torch._C._cuda_cudaCachingAllocator_is_enabled
    found = [enabled()]
    with torch.cuda.caching_allocator_disabled():
        found.append(enabled())
        found.append(block(3000).nbytes)
    return [*found, enabled()]


@row(
    "torch.accelerator.empty_host_cache",
    "torch._C._accelerator_emptyHostCache",
    of_some_versions=True,
)
def host_cache() -> list[int]:
    torch.cuda.init()
    pinned = torch.empty(5000).pin_memory()
    del pinned
    torch.accelerator.empty_host_cache()
    stats = torch.cuda.host_memory_stats()
    return [stats["num_host_alloc"], stats["num_host_free"], stats["allocated_bytes.current"]]


@row(
    "torch.cuda.memory._allocation_traceback",
    "torch._C._cuda_allocationTraceback",
    of_some_versions=True,
)
def call_site() -> list[Any]:
    ask = torch.cuda.memory._allocation_traceback
    before = block(1000)
    torch.cuda.memory._record_memory_history(stacks="python")
    tensor = block(2000)
    found = ask(tensor.data_ptr()) or []
    names = [frame["name"] for frame in found if frame["filename"] == __file__]
    answers = [names, ask(tensor.data_ptr() + 512), ask(before.data_ptr()), ask(0)]
    torch.cuda.memory._record_memory_history(context=None, stacks="python")
    return [*answers, ask(block(3000).data_ptr())]


@row(
    "torch.cuda.memory._annotate_tensor",
    "torch._C._cuda_annotateMemory",
    differs="annotations of tensors are not recorded: named once in a warning",
    of_some_versions=True,
)
def annotated() -> int:
    torch.cuda.memory._record_memory_history(stacks="python")
    tensor = block(1000)
    warnings.simplefilter("ignore")
    torch.cuda.memory._annotate_tensor(tensor, "mine")
    return tensor.nbytes


@row(
    "torch.cuda.memory._memory_metadata_supported",
    "torch._C._cuda_memoryMetadataSupported",
    of_some_versions=True,
)
def metadata_supported() -> bool:
    block(100)
    return torch.cuda.memory._memory_metadata_supported()


@row(
    "torch.cuda.memory._record_memory_history(record_cuda=…)",
    of_some_versions=True,
)
def without_cuda() -> list[Any]:
    torch.cuda.memory._record_memory_history(stacks="python")
    found = [torch._C._cuda_isHistoryEnabled()]
    torch.cuda.memory._record_memory_history(stacks="python", record_cuda=False)
    return [*found, torch._C._cuda_isHistoryEnabled(), block(10).nbytes]


@row("torch._C._accelerator_getAllocatorSettings", of_some_versions=True)
def settings_now() -> list[str]:
    before: str = torch._C._accelerator_getAllocatorSettings()
    torch._C._accelerator_setAllocatorSettings("garbage_collection_threshold:0.7")
    return [before, torch._C._accelerator_getAllocatorSettings()]


@row(
    "torch.cuda.CUDAGraph.pools",
    "torch.cuda.CUDAGraph._retain_pool",
    "torch.cuda.CUDAGraph.capture_end_pre",
    "torch.cuda.CUDAGraph.capture_end_post",
    of_some_versions=True,
)
def retained_pools() -> list[Any]:
    warnings.simplefilter("ignore")
    pool, graph = torch.cuda.MemPool(), torch.cuda.CUDAGraph()
    found: list[Any] = []

    def note() -> None:
        torch.cuda.empty_cache()
        found.append([pool.use_count(), levels()])

    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        own = block(3 * MIB)
        for _ in range(2):
            with torch.cuda.use_mem_pool(pool):
                inside = block(5 * MIB)
        graph.capture_end_pre()
        graph.instantiate()
        graph.capture_end_post()
    found.append([tuple(each) in (tuple(graph.pool()), pool.id) for each in graph.pools()])
    note()
    del inside
    note()
    graph.replay()
    torch.cuda.synchronize()
    graph.reset()
    note()
    del own
    note()
    return found
