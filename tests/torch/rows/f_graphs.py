"""CUDA graphs, their trees, and what both do with storages."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import torch

from rows.e_pools import levels, shape
from support import graph_trees
from support.memory import MIB, block
from support.rows import row


@row(
    "torch.cuda.CUDAGraph",
    "torch.cuda.CUDAGraph.capture_begin",
    "torch.cuda.CUDAGraph.capture_end",
    "torch.cuda.CUDAGraph.instantiate",
    "torch.cuda.CUDAGraph.replay",
    "torch.cuda.CUDAGraph.reset",
    "torch.cuda.CUDAGraph.pool",
    "torch.cuda.graph",
    "torch.cuda.graph_pool_handle",
    "torch.cuda.is_current_stream_capturing",
)
def graphs() -> list[Any]:
    warnings.simplefilter("ignore")
    block(7 * MIB)
    found: list[Any] = [levels(), torch.cuda.is_current_stream_capturing()]
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph(keep_graph=True)
    pool = torch.cuda.graph_pool_handle()
    with torch.cuda.graph(first, pool=pool):
        found.append(torch.cuda.is_current_stream_capturing())
        x = torch.zeros(3 * MIB, device="cuda")
        y = x + 1
        del x
    found += [levels(), first.pool() == pool, shape(torch.cuda.memory_snapshot(pool))]
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        second.capture_begin(pool=first.pool())
        z = torch.zeros(5 * MIB, device="cuda") + 1
        second.capture_end()
        second.instantiate()
    found += [levels(), second.pool() == pool]
    first.replay()
    second.replay()
    torch.cuda.synchronize()
    del y, z
    torch.cuda.empty_cache()
    found.append(levels())
    first.reset()
    torch.cuda.empty_cache()
    found.append(levels())
    second.reset()
    torch.cuda.empty_cache()
    found.append(levels())
    del first, second
    gc.collect()
    torch.cuda.empty_cache()
    return [*found, levels()]


@row(
    "torch.cuda.CUDAGraph.enable_debug_mode",
    "torch.cuda.CUDAGraph.raw_cuda_graph",
    "torch.cuda.CUDAGraph.raw_cuda_graph_exec",
    "torch.cuda.CUDAGraph.register_generator_state",
    differs="the same: they ask the driver, never the allocator",
    ignored=r"\[W.*register_generator_state\(\) is deprecated.*",
)
def handles_of_graphs() -> list[Any]:
    warnings.simplefilter("ignore")
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    graph.enable_debug_mode()
    graph.register_generator_state(torch.Generator("cuda"))
    with torch.cuda.graph(graph):
        kept = block(3 * MIB)
    graph.instantiate()
    assert kept.nbytes
    return [graph.raw_cuda_graph() != 0, graph.raw_cuda_graph_exec() != 0, levels()]


@row("torch.cuda.make_graphed_callables")
def graphed_callables() -> list[Any]:
    warnings.simplefilter("ignore")
    with torch.device("cuda"):
        model = torch.nn.Linear(512, 512)
        sample = torch.zeros(64, 512, requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(model, (sample,))
    # What is reserved depends on when the thread of backward passes runs.
    found = [torch.cuda.memory_allocated()]
    for _ in range(3):
        graphed(torch.zeros(64, 512, device="cuda", requires_grad=True)).sum().backward()
        found.append(torch.cuda.memory_allocated())
    return found


row(
    "torch._C._cuda_getCheckpointState",
    "torch._C._cuda_setCheckpointPoolState",
    "torch._C._cuda_checkPoolLiveAllocations",
    "torch._C._cuda_CUDAAllocator_AllocatorState",
)(graph_trees.states_by_hand)


@row(
    "torch._C._construct_storage_from_data_pointer",
    "torch._C._construct_CUDA_Tensor_From_Storage_And_Metadata",
    "torch._C._free_And_Remove_DeleterFn",
    "torch._C._has_Standard_Deleter",
    "torch._C._storage_Use_Count",
    "torch._C._set_storage_access_error_msg",
    "torch._C._set_storage_data_ptr_access_error_msg",
    "torch._C._tensors_data_ptrs_at_indices_equal",
)
def storages() -> list[Any]:
    tensor = block(3 * MIB)
    storage = tensor.untyped_storage()
    found: list[Any] = [
        torch._C._has_Standard_Deleter(storage._cdata),
        torch._C._storage_Use_Count(storage._cdata),
        levels(),
    ]
    borrowed = torch._C._construct_storage_from_data_pointer(
        storage.data_ptr(), storage.device, storage.nbytes()
    )
    found += [torch._C._has_Standard_Deleter(borrowed._cdata), borrowed.nbytes()]
    metadata = {
        "nbytes": 3 * MIB,
        "data_ptr": storage.data_ptr(),
        "size": (3 * MIB,),
        "stride": (1,),
        "dtype": torch.uint8,
        "device": torch.device("cuda", 0),
        "storage_offset": 0,
    }
    view = torch._C._construct_CUDA_Tensor_From_Storage_And_Metadata(metadata, storage)
    found += [view.shape[0], view.data_ptr() == tensor.data_ptr(), levels()]
    found.append(torch._C._tensors_data_ptrs_at_indices_equal([tensor], [tensor.data_ptr()], [0]))
    torch._C._set_storage_data_ptr_access_error_msg(borrowed._cdata, "not to be read")
    torch._C._set_storage_access_error_msg(view, "not to be used")
    for ask in (borrowed.data_ptr, view.untyped_storage):
        try:
            ask()
            found.append("")
        except RuntimeError as error:
            found.append(str(error).splitlines()[0])
    torch._C._free_And_Remove_DeleterFn(storage._cdata)
    return [*found, levels()]


@row("torch.Tensor.record_stream")
def recorded_streams() -> list[Any]:
    tensor = block(3 * MIB)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        tensor.zero_()
    tensor.record_stream(side)
    found = [levels()]
    del tensor
    torch.cuda.synchronize()
    block(512)
    stats = torch.cuda.memory_stats()
    return [*found, levels(), stats["active_bytes.all.current"], stats["active.all.current"]]


@row("torch.UntypedStorage.resize_", "torch.UntypedStorage.data_ptr")
def resized_storages() -> list[Any]:
    storage = block(3 * MIB).untyped_storage()
    found = [levels()]
    for size in (0, 30 * MIB, 100):
        storage.resize_(size)
        found += [storage.nbytes(), storage.data_ptr() % 512, levels()]
    return found


@row(
    "torch._C._cuda_clearCublasWorkspaces",
    "torch._C._cuda_get_conv_benchmark_empty_cache",
    "torch._C._cudnn_set_conv_benchmark_empty_cache",
)
def workspaces() -> list[Any]:
    with torch.device("cuda"):
        first, second = torch.zeros(256, 256), torch.zeros(256, 256)
    found = [levels()]
    product = first @ second
    found.append(levels())
    torch._C._cuda_clearCublasWorkspaces()
    found.append(levels())
    assert product.shape == (256, 256)
    before = torch._C._cuda_get_conv_benchmark_empty_cache()
    torch._C._cudnn_set_conv_benchmark_empty_cache(not before)
    return [*found, before, torch._C._cuda_get_conv_benchmark_empty_cache()]


@row(
    "torch._C._accelerator_isAllocatorInitialized",
    "torch._C._accelerator_emptyCache",
    "torch._C._accelerator_getDeviceStats",
    "torch._C._accelerator_getMemoryInfo",
    "torch._C._accelerator_resetPeakStats",
    "torch._C._accelerator_resetAccumulatedStats",
)
def accelerators() -> list[Any]:
    found = [torch._C._accelerator_isAllocatorInitialized()]
    kept = block(3 * MIB)
    found.append(torch._C._accelerator_isAllocatorInitialized())
    block(30 * MIB)
    torch._C._accelerator_emptyCache()
    found.append(levels())
    torch._C._accelerator_resetPeakStats(0)
    torch._C._accelerator_resetAccumulatedStats(0)
    stats = torch._C._accelerator_getDeviceStats(0)
    found += [sorted(stats), stats["allocated_bytes"], stats["reserved_bytes"], stats["segment"]]
    torch.cuda.empty_cache()
    free, total = torch._C._accelerator_getMemoryInfo(0)
    assert kept.nbytes and free < total
    return [*found, total]
