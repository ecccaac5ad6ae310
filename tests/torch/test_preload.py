"""Unchanged PyTorch, with its own allocator, under the preload library: the segments that it asks
CUDA for come from Genesis. Only the statistics in these programs know that."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, Callable

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import genesis
from support import simcuda, tier
from support.models import Shape, train
from support.processes import TIMEOUT_SECONDS
from support.program import PRELOAD_LIBRARY, program

GIB = 1 << 30

preloaded: Callable[[Callable[[], Any]], Callable[..., None]] = program(
    modes=("preloaded",), ending="any"
)


def check_segments() -> None:
    """Every byte that PyTorch's allocator holds is Genesis's, and Genesis holds all that the driver
    has handed out."""
    for device in range(torch.cuda.device_count()):
        # Memory that PyTorch has freed is Genesis's again after the device was synchronized.
        torch.cuda.synchronize(device)
        segments = torch.cuda.memory_reserved(device)
        live = genesis.stats(device).requested_bytes.current
        assert live == segments, (live, segments)
    devices = range(torch.cuda.device_count())
    held = sum(genesis.stats(device).reserved_bytes.current for device in devices)
    assert held == simcuda.used_bytes(), (held, simcuda.used_bytes())


@preloaded
def test_a_training_step() -> None:
    train(Shape(), lengths=[512] * 4)
    assert torch.cuda.get_allocator_backend() == "native"
    assert genesis.stats(0).allocations == torch.cuda.memory_stats()["num_device_alloc"] > 0
    check_segments()
    torch.cuda.empty_cache()
    check_segments()
    # PyTorch frees its segments, and Genesis keeps them for the next step.
    free_before = genesis.stats(0).driver_memory_calls
    train(Shape(), lengths=[512])
    assert genesis.stats(0).driver_memory_calls == free_before
    check_segments()


@program(modes=("preloaded",), env={"SIMCUDA_DEVICES": "2"}, ending="any")
def test_two_devices() -> None:
    for device in ("cuda:0", "cuda:1"):
        network = nn.Linear(4096, 4096, device=device)
        network(torch.zeros(64, 4096, device=device)).sum().backward()
    assert all(genesis.stats(device).allocations > 0 for device in (0, 1))
    check_segments()


@preloaded
def test_a_graph() -> None:
    """While a stream is captured nothing may wait for the device."""
    network = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
    given = torch.zeros(512, 1024, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        network(given)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = network(given)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    check_segments()
    del result
    graph.reset()
    torch.cuda.empty_cache()
    check_segments()


@program(
    modes=("preloaded",),
    env={"SIMCUDA_MEMORY": "4GiB"},
    ending="any",
    says="genesis: out of memory: ",
)
def test_memory_runs_out_and_life_goes_on() -> None:
    kept = torch.empty(2 * GIB, dtype=torch.uint8, device="cuda")
    cached = torch.empty(1 * GIB, dtype=torch.uint8, device="cuda")
    del cached
    try:
        torch.empty(3 * GIB, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        pass
    else:
        raise AssertionError("4 GiB do not hold 5")
    assert simcuda.last_runtime_error() == 0
    # The cache was released.
    more = torch.empty(3 * GIB // 2, dtype=torch.uint8, device="cuda")
    assert kept.numel() + more.numel() == 7 * GIB // 2
    check_segments()


@pytest.mark.skipif(not tier.is_full(), reason=tier.NIGHTLY)
@program(
    modes=("preloaded",),
    env={"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"},
    ending="any",
)
def test_the_stream_ordered_allocator() -> None:
    """Every tensor is a ``cudaMallocAsync``."""
    assert torch.cuda.get_allocator_backend() == "cudaMallocAsync"
    train(Shape(layers=1, vocabulary=1024), lengths=[128] * 3)
    torch.cuda.synchronize()
    assert genesis.stats(0).allocations > 100


class Rows(Dataset):
    """A data set of the host."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((1024,), float(index))


@preloaded
def test_a_data_loader_with_forked_workers() -> None:
    """The workers are forks of a process that uses the GPU; host memory is CUDA's own."""
    network = nn.Linear(1024, 1024, device="cuda")
    loader = DataLoader(
        Rows(), batch_size=8, num_workers=2, multiprocessing_context="fork", pin_memory=True
    )
    for batch in loader:
        network(batch.to("cuda", non_blocking=True)).sum().backward()
    check_segments()


@preloaded
def test_genesis_beneath_genesis() -> None:
    """There is one heap: PyTorch plugged into it under the preload asks it directly."""
    import genesis.torch

    genesis.torch.enable()
    tensor = torch.zeros(1000, device="cuda")
    assert genesis.stats(0).allocations == 1
    assert genesis.stats(0).requested_bytes.current == 4000
    del tensor


def test_the_command_says_what_was_intercepted() -> None:
    genesis_command = PRELOAD_LIBRARY.with_name("genesis")
    script = (
        "import torch; torch.backends.cudnn.enabled = False\n"
        "network = torch.nn.Linear(4096, 4096, device='cuda')\n"
        "network(torch.zeros(64, 4096, device='cuda')).sum()"
    )
    finished = subprocess.run(
        [str(genesis_command), "run", "--pool-type", "Caching", "--", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert " allocations: " in finished.stderr and "cudaMalloc " in finished.stderr, finished.stderr
