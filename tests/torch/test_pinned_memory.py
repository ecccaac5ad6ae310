"""PyTorch's pinned memory from Genesis: sizes, the order of streams, switching, graphs, faults."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

import genesis
import genesis.torch
from support import simcuda
from support.program import program

MIB = 1 << 20
#: PyTorch stays its own allocator of device memory, or Genesis is.
EITHER = ("native", "enabled")


def pinned(n: int) -> torch.Tensor:
    return genesis.torch.pinned_empty(n, dtype=torch.uint8)


@program(modes=EITHER)
def test_sizes_are_not_rounded_to_powers_of_two() -> None:
    tensor = pinned(40 * MIB + MIB // 2)
    stats = genesis.cpu.stats(pinned=True)
    assert stats.allocated_bytes.current == tensor.nbytes
    assert stats.reserved_bytes.current <= 42 * MIB, "PyTorch would hold 64 MiB"
    assert tensor.is_pinned() and genesis.cpu.is_pinned(tensor)
    assert tensor.shape == (tensor.nbytes,) and tensor.device.type == "cpu"
    tensor.fill_(7)
    assert int(tensor[-1]) == 7
    address = tensor.data_ptr()
    del tensor
    # Part of it serves another size.
    small = pinned(30 * MIB)
    assert small.data_ptr() == address
    assert pinned(0).nbytes == 0
    two = genesis.torch.pinned_empty((2, 3), dtype=torch.float64)
    assert two.shape == (2, 3) and two.dtype == torch.float64 and genesis.cpu.is_pinned(two)


@program(modes=EITHER, env={"SIMCUDA_PROGRESS": "manual"})
def test_memory_is_reused_behind_the_copies_that_use_it() -> None:
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    tensor = pinned(8 * MIB)
    address = tensor.data_ptr()
    with torch.cuda.stream(side):
        copied = tensor.to("cuda", non_blocking=True)
    del tensor
    stats = genesis.cpu.stats(pinned=True)
    assert (stats.allocated_bytes.current, stats.active_bytes.current) == (0, 8 * MIB)
    other = pinned(8 * MIB)
    assert other.data_ptr() != address, "the copy is not complete"
    torch.cuda.synchronize()
    again = pinned(8 * MIB)
    assert again.data_ptr() == address
    del copied


def offload(streams: int) -> None:
    """Each stream brings a tensor to the host and back again, without the host waiting."""
    sides = [torch.cuda.Stream() for _ in range(streams)]
    for step in range(4 * streams):
        side = sides[step % streams]
        with torch.cuda.stream(side):
            device = torch.ones(MIB, dtype=torch.uint8, device="cuda")
            host = torch.empty(MIB, dtype=torch.uint8, pin_memory=True)
            host.copy_(device, non_blocking=True)
            back = host.to("cuda", non_blocking=True)
        del device, host, back


@program(modes=EITHER, env={"SIMCUDA_PROGRESS": "manual"})
def test_streams_share_the_pool_without_races() -> None:
    genesis.torch.enable_pinned_memory()
    offload(streams=3)
    assert genesis.cpu.stats(pinned=True).allocations == 12
    torch.cuda.synchronize()


@program(modes=("native",), env={"SIMCUDA_PROGRESS": "manual"}, violations=True)
def test_without_the_order_it_would_be_a_race() -> None:
    genesis.torch.enable_pinned_memory()
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    source = torch.ones(MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    address = 0
    for stream in (first, second):
        # Memory that PyTorch does not know of, and of whose copies nobody tells.
        buffer = genesis.cpu.empty(MIB, pinned=True)
        assert address in (0, buffer.data_ptr)
        address = buffer.data_ptr
        code = copy_behind_its_back(address, source, stream)
        assert code == 0, code
        del buffer
        gc.collect()
    assert simcuda.violations() > 0
    torch.cuda.synchronize()


def copy_behind_its_back(address: int, source: torch.Tensor, stream: torch.cuda.Stream) -> int:
    import ctypes

    copy = ctypes.CDLL(None).cudaMemcpyAsync
    to_host = 2
    pointers = [ctypes.c_void_p(address), ctypes.c_void_p(source.data_ptr())]
    handle = ctypes.c_void_p(stream.cuda_stream)
    return int(copy(*pointers, ctypes.c_size_t(source.nbytes), to_host, handle))


@program(
    modes=("native",), env={"SIMCUDA_PROGRESS": "manual"}, says="genesis: .* is not host memory .*"
)
def test_work_that_pytorch_does_not_know_of_can_be_told() -> None:
    side = torch.cuda.Stream()
    source = torch.ones(MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    for memory in (pinned(MIB), genesis.cpu.empty(MIB, pinned=True)):
        address = genesis.cpu._address_of(memory)
        assert copy_behind_its_back(address, source, side) == 0
        genesis.cpu.record_stream(memory, side)
        del memory
        other = pinned(MIB)
        assert other.data_ptr() != address
        del other
        torch.cuda.synchronize()
    genesis.cpu.record_stream(genesis.cpu.empty(10, pinned=False), side)
    with pytest.raises(genesis.GenesisError):
        genesis.cpu.record_stream(torch.empty(10), side)


@program(modes=EITHER)
def test_everything_pinned_is_genesis_while_that_is_on() -> None:
    before = torch.empty(1000, pin_memory=True)
    genesis.torch.enable_pinned_memory()
    mine = [torch.ones(1000).pin_memory(), torch.empty(1000, pin_memory=True)]
    assert all(genesis.cpu.is_pinned(tensor) and tensor.is_pinned() for tensor in mine)
    assert not genesis.cpu.is_pinned(before) and before.is_pinned()
    genesis.torch.enable_pinned_memory(False)
    after = torch.empty(1000, pin_memory=True)
    assert not genesis.cpu.is_pinned(after)
    for tensor in (before, *mine, after):
        tensor.to("cuda", non_blocking=True)
    assert float(mine[0].sum()) == 1000
    del before, mine, after, tensor
    torch.cuda.synchronize()
    assert genesis.cpu.memory_stats(pinned=True).allocated_bytes == 0


@program(modes=EITHER)
def test_a_loader_with_workers() -> None:
    from torch.utils.data import DataLoader, TensorDataset

    genesis.torch.enable_pinned_memory()
    data = TensorDataset(torch.arange(64.0).reshape(64, 1), torch.arange(64))
    loader: Any = DataLoader(data, batch_size=8, pin_memory=True, num_workers=2)
    seen = []
    for values, labels in loader:
        assert genesis.cpu.is_pinned(values) and genesis.cpu.is_pinned(labels)
        values.to("cuda", non_blocking=True)
        seen += labels.tolist()
    assert seen == list(range(64))
    del loader, values, labels


@program(modes=EITHER)
def test_a_graph_keeps_what_it_used() -> None:
    genesis.torch.enable_pinned_memory()
    device = torch.zeros(1000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        inside = torch.empty(1000, pin_memory=True)
        device.copy_(inside, non_blocking=True)
    assert not genesis.cpu.is_pinned(inside), "PyTorch keeps it for the graph"
    assert genesis.cpu.is_pinned(torch.empty(1000, pin_memory=True))
    graph.replay()
    torch.cuda.synchronize()
    del graph, inside, device


@program(modes=("native",), says="genesis: pinned host memory: out of memory: .*")
def test_where_genesis_has_none_pytorch_is_asked() -> None:
    genesis.torch.enable_pinned_memory()
    genesis.cpu.set_memory_limit("1MB", pinned=True)
    tensor = torch.empty(4 * MIB, dtype=torch.uint8, pin_memory=True)
    assert tensor.is_pinned() and not genesis.cpu.is_pinned(tensor)
    del tensor
    genesis.cpu.set_memory_limit(None, pinned=True)
    simcuda.fail("@cuMemHostRegister_v2", 1, 2)
    tensor = pinned(4 * MIB)
    assert genesis.cpu.is_pinned(tensor), "the driver allocates where it does not register"
    for call in ("cuMemHostRegister_v2", "cuMemAllocHost_v2", "cudaHostAlloc"):
        simcuda.fail(call, 1, 2, 1000)
    with pytest.raises(RuntimeError):
        torch.empty(64 * MIB, dtype=torch.uint8, pin_memory=True)
    simcuda.clear_faults()
    assert genesis.cpu.is_pinned(torch.empty(64 * MIB, dtype=torch.uint8, pin_memory=True))


@program(modes=("native",))
def test_another_pytorch_is_left_alone() -> None:
    from genesis.torch import _pinned

    _pinned._SLOTS.clear()
    with pytest.raises(RuntimeError, match="is known of PyTorch"):
        genesis.torch.enable_pinned_memory()
    assert not genesis.cpu.is_pinned(torch.empty(10, pin_memory=True))


@program(modes=EITHER)
def test_memory_taken_beforehand_in_the_background() -> None:
    genesis.cpu.preallocate("96MB", pinned=True, wait=False)
    genesis.cpu.wait_for_preallocation()
    stats = genesis.cpu.stats(pinned=True)
    assert stats.reserved_bytes.current == 96 * MIB
    tensor = pinned(90 * MIB)
    assert genesis.cpu.stats(pinned=True).driver_memory_calls == stats.driver_memory_calls
    del tensor
    torch._C._host_emptyCache()
    assert genesis.cpu.stats(pinned=True).reserved_bytes.current == 0
    genesis.cpu.set_memory_limit("1MB", pinned=True)
    genesis.cpu.preallocate("96MB", pinned=True, wait=False)
    with pytest.raises(genesis.OutOfMemoryError):
        genesis.cpu.wait_for_preallocation()
    genesis.cpu.wait_for_preallocation()
