"""CUDA graphs and private pools."""

from __future__ import annotations

import gc
import warnings
from typing import Callable

import torch
from torch import nn

import genesis
import genesis.torch
from support.program import program

MIB = 1 << 20


def model() -> nn.Module:
    with torch.device("cuda"):
        return nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024))


def warm_up(step: Callable[[], object]) -> None:
    """On a side stream, as PyTorch asks for before a capture."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)


@program(modes=("enabled", "native"))
def test_capture_replay_reset() -> None:
    network = model()
    static_input = torch.zeros(512, 1024, device="cuda")
    warm_up(lambda: network(static_input))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_output = network(static_input)
    address = static_output.data_ptr()
    outside = []
    for _ in range(3):
        static_input.copy_(torch.zeros(512, 1024))
        graph.replay()
        # Other work between replays: none of it may get the graph's memory.
        outside.append(torch.zeros(512, 4096, device="cuda"))
        assert static_output.data_ptr() == address
        torch.cuda.synchronize()
    del static_output
    graph.reset()


@program(modes=("enabled",))
def test_a_graphs_memory_stays_until_reset_and_then_returns() -> None:
    # Where PyTorch keeps the generator's state: for as long as graphs use it, in later versions
    # from the first graph on.
    with torch.cuda.graph(first := torch.cuda.CUDAGraph()):
        torch.zeros(1, device="cuda")
    first.reset()
    torch.cuda.empty_cache()
    generators = torch.cuda.memory_reserved()
    assert generators <= 2 * MIB
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x = torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")
        y = x + 1
        del x
    del y
    torch.cuda.empty_cache()
    held = torch.cuda.memory_reserved()
    assert held >= 128 * MIB, "the graph still writes there when it is replayed"
    graph.replay()
    torch.cuda.synchronize()
    graph.reset()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == generators
    del first, graph
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0


@program(modes=("enabled",))
def test_graphs_that_share_a_pool() -> None:
    """As `torch.cuda.make_graphed_callables` does for forward and backward passes."""
    pool = torch.cuda.graph_pool_handle()
    graphs = [torch.cuda.CUDAGraph() for _ in range(3)]
    outputs = []
    for graph in graphs:
        with torch.cuda.graph(graph, pool=pool):
            outputs.append(torch.zeros(32 * MIB, dtype=torch.uint8, device="cuda") + 1)
    for graph in graphs:
        graph.replay()
    torch.cuda.synchronize()
    outputs.clear()
    while graphs:
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() >= 3 * 32 * MIB, f"{len(graphs)} graphs are left"
        graphs.pop().reset()
    del graph
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0


@program(modes=("enabled",))
def test_graphed_callables_train() -> None:
    # PyTorch warns about any program like this one, with any allocator.
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    # And autograd's thread has not called the runtime before: an allocation from the cache does
    # not.
    warnings.filterwarnings("ignore", "Attempting to run cuBLAS, but there was no current CUDA")
    network = model()
    sample = torch.zeros(64, 1024, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(network, (sample,))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(3):
        graphed(torch.zeros(64, 1024, device="cuda", requires_grad=True)).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    torch.cuda.synchronize()


@program(modes=("enabled",))
def test_use_mem_pool_apart_from_the_rest() -> None:
    common = torch.zeros(32 * MIB, dtype=torch.uint8, device="cuda")
    cached_address = common.data_ptr()
    del common
    with genesis.torch.pool() as pool:
        inside = torch.zeros(32 * MIB, dtype=torch.uint8, device="cuda")
        assert inside.data_ptr() != cached_address, "the pool shares nothing with the others"
        assert pool.id[1] > 0
    outside = torch.zeros(32 * MIB, dtype=torch.uint8, device="cuda")
    assert outside.data_ptr() == cached_address
    torch.cuda.synchronize()
    reserved = torch.cuda.memory_reserved()
    del inside
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= reserved - 32 * MIB


@program(modes=("enabled",))
def test_pytorchs_own_context_manager_takes_a_pool() -> None:
    pool = genesis.torch.Pool()
    for _ in range(2):
        with torch.cuda.use_mem_pool(pool):
            tensor = torch.zeros(4 * MIB, device="cuda")
        del tensor
    torch.cuda.synchronize()


@program(modes=("enabled",))
def test_pools_within_pools() -> None:
    with genesis.torch.pool() as outer:
        first = torch.zeros(4 * MIB, device="cuda")
        with genesis.torch.pool() as inner:
            second = torch.zeros(4 * MIB, device="cuda")
        assert outer.id != inner.id
        third = torch.zeros(4 * MIB, device="cuda")
    assert len({first.data_ptr(), second.data_ptr(), third.data_ptr()}) == 3


@program(modes=("native",))
def test_genesis_as_the_source_of_segments() -> None:
    """PyTorch's allocator stays, with its statistics; only its segments are Genesis's."""
    pool = genesis.torch.mem_pool()
    with torch.cuda.use_mem_pool(pool):
        tensors = [torch.zeros(30 * MIB, dtype=torch.uint8, device="cuda") for _ in range(3)]
    outside = torch.zeros(30 * MIB, dtype=torch.uint8, device="cuda")
    stats = genesis.stats(0)
    assert stats.allocated_bytes.current == 90 * MIB
    assert torch.cuda.memory_allocated() == 120 * MIB
    assert pool.snapshot(), "PyTorch's own view of the pool works"
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool.id):
        captured = torch.zeros(30 * MIB, dtype=torch.uint8, device="cuda") + 1
    graph.replay()
    torch.cuda.synchronize()
    del tensors, outside, captured
    graph.reset()
    del graph, pool
    gc.collect()
    torch.cuda.empty_cache()
    assert genesis.stats(0).allocated_bytes.current == 0
