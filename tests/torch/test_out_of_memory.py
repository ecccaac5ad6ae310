"""Memory runs out: PyTorch's own exception, with a message that helps, and the program goes on."""

from __future__ import annotations

import random
import threading

import pytest
import torch

import genesis
from support import simcuda
from support.program import OUT_OF_MEMORY, program

MIB, GIB = 1 << 20, 1 << 30
THREADS = 8
#: The largest block of each thread.
MOST_BYTES = 32 * MIB
FULL = {"SIMCUDA_MEMORY": f"{THREADS * MOST_BYTES}", "SIMCUDA_TIME": "real"}


def block(n: int) -> torch.Tensor:
    return torch.empty(n, dtype=torch.uint8, device="cuda")


@program(modes=("two_symbols", "enabled"))
def test_sixty_then_seventy_of_eighty() -> None:
    """Cached memory that is in the way is released, whatever its block sizes."""
    sixty = block(60 * GIB)
    del sixty
    seventy = block(70 * GIB)
    assert simcuda.used_bytes() == 70 * GIB
    del seventy


@program(modes=("two_symbols", "enabled"), says=OUT_OF_MEMORY)
def test_pytorchs_own_exception_and_life_goes_on() -> None:
    kept = block(50 * GIB)
    try:
        block(40 * GIB)
    except torch.OutOfMemoryError as error:
        message = str(error)
    else:
        raise AssertionError("80 GiB do not hold 90")
    for figure in ("40.00 GiB", "50.00 GiB", "80.00 GiB", "hint"):
        assert figure in message, message
    assert simcuda.last_runtime_error() == 0
    assert block(1024).numel() == 1024
    assert block(20 * GIB).numel() == 20 * GIB
    assert genesis.stats(0).out_of_memory_events == 1
    del kept


@program(modes=("two_symbols", "enabled"), says=OUT_OF_MEMORY)
def test_in_the_middle_of_a_training_step() -> None:
    """It is also raised from autograd's own thread."""

    class Hungry(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
            block(100 * GIB)
            return gradient

    x = torch.zeros(8, device="cuda", requires_grad=True)
    for _ in range(2):
        try:
            Hungry.apply(x).sum().backward()
        except torch.OutOfMemoryError:
            continue
        raise AssertionError("80 GiB do not hold 100")
    (x * 2).sum().backward()
    assert x.grad is not None


@program(says=OUT_OF_MEMORY)
def test_pytorch_counts_it() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        block(100 * GIB)
    stats = torch.cuda.memory_stats()
    assert stats["num_ooms"] == 1
    assert stats["num_alloc_retries"] >= 1
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["num_ooms"] == 0


@program(modes=("mem_pool",), says=OUT_OF_MEMORY)
def test_beneath_pytorchs_own_allocator() -> None:
    kept = block(50 * GIB)
    try:
        block(40 * GIB)
    except torch.OutOfMemoryError:
        pass
    else:
        raise AssertionError("80 GiB do not hold 90")
    assert block(20 * GIB).numel() == 20 * GIB
    del kept


@program(modes=("two_symbols", "enabled"), says=OUT_OF_MEMORY)
def test_sizes_that_are_mistakes() -> None:
    for n in (1 << 46, (1 << 62) - 1):
        try:
            block(n)
        except (torch.OutOfMemoryError, RuntimeError):
            continue
        raise AssertionError(n)
    assert block(0).numel() == 0


def needs_all_memory() -> None:
    """Threads with one tensor after the other, on streams of their own and on one stream. The
    device has just the memory for the largest of each; calls of the driver take real time."""
    needs_all_memory_on([torch.cuda.Stream() for _ in range(THREADS)])
    needs_all_memory_on([torch.cuda.Stream()] * THREADS)


def needs_all_memory_on(streams: list[torch.cuda.Stream]) -> None:
    refused: list[str] = []

    def run(seed: int, stream: torch.cuda.Stream) -> None:
        sizes = random.Random(seed)
        try:
            with torch.cuda.stream(stream):
                for _ in range(60):
                    block(sizes.randrange(12 * MIB, MOST_BYTES + 1, 2 * MIB))
        except torch.OutOfMemoryError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=run, args=each) for each in enumerate(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == []


@program(modes=("two_symbols", "enabled"), env=FULL)
def test_threads_refuse_each_other_nothing() -> None:
    needs_all_memory()


@program(modes=("enabled",), env={**FULL, "GENESIS_POOL_TYPE": "Caching"})
def test_threads_refuse_each_other_nothing_in_segments() -> None:
    needs_all_memory()


@program(modes=("native",), env=FULL)
def test_nor_do_they_under_pytorchs_own() -> None:
    needs_all_memory()
