"""CUDA's sanitizer, trace callbacks and observers of shortages, where they are set in other ways
than ``test_answers`` does."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
import torch
import torch.cuda._gpu_trace as trace

import genesis
from support.memory import MIB, block
from support.program import OUT_OF_MEMORY, program

SEEN: list[tuple[str, int]] = []


def register() -> None:
    trace.register_callback_for_memory_allocation(lambda at: SEEN.append(("+", at)))
    trace.register_callback_for_memory_deallocation(lambda at: SEEN.append(("-", at)))


@program(modes=("native",))
def test_callbacks_activated_before_genesis_are_called() -> None:
    register()
    torch._C._activate_gpu_trace()
    genesis.torch.enable()
    tensor = block(100)
    address = tensor.data_ptr()
    del tensor
    assert [("+", address), ("-", address)] == SEEN


@program()
def test_callbacks_on_every_thread() -> None:
    """Also on the thread of the backward pass, which Python did not start."""
    register()
    torch._C._activate_gpu_trace()
    x = torch.zeros(1000, device="cuda", requires_grad=True)

    def step() -> None:
        (x * 3).sum().backward()

    threads = [threading.Thread(target=step) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    x.grad = None
    allocated = [at for sign, at in SEEN if sign == "+"]
    freed = [at for sign, at in SEEN if sign == "-"]
    assert (len(allocated) > 8 and sorted(freed) == sorted(set(allocated) - {x.data_ptr()})) or (
        len(allocated) == len(freed) + 1
    )


@program(modes=("native",), ending="any", says=".*")
def test_cudas_sanitizer_knows_every_allocation() -> None:
    """It raises for memory that two streams use without an order."""
    import torch.cuda._sanitizer as sanitizer

    sanitizer.enable_cuda_sanitizer()
    genesis.torch.enable()
    tensor = torch.rand(4, 2, device="cuda")
    with pytest.raises(sanitizer.CUDASanitizerErrors), torch.cuda.stream(torch.cuda.Stream()):
        tensor.mul_(5)


@program(says=f"{OUT_OF_MEMORY}|Exception ignored|Traceback|KeyError|  ")
def test_an_observer_that_raises_does_not_hide_the_shortage() -> None:
    ignored: list[Any] = []
    sys.unraisablehook = lambda unraisable: ignored.append(unraisable.exc_type)

    def observer(device: int, size: int, total: int, free: int) -> None:
        raise KeyError(size)

    torch._C._cuda_attach_out_of_memory_observer(observer)
    with pytest.raises(torch.OutOfMemoryError):
        block(100 << 30)
    assert ignored == [KeyError]
    assert block(MIB).nbytes == MIB


@program(says=OUT_OF_MEMORY)
def test_an_observer_may_use_the_gpu_and_take_a_snapshot() -> None:
    """The usual one dumps a snapshot."""
    found: list[Any] = []

    def observer(device: int, size: int, total: int, free: int) -> None:
        found.append((size, len(torch.cuda.memory._snapshot()["segments"]), block(100).nbytes))

    torch._C._cuda_attach_out_of_memory_observer(observer)
    kept = block(MIB)
    with pytest.raises(torch.OutOfMemoryError):
        block(100 << 30)
    assert [(size, nbytes) for size, _, nbytes in found] == [(100 << 30, 100)]
    assert found[0][1] > 0
    del kept


@program(env={"KINETO_LOG_LEVEL": "99"})
def test_the_profiler_counts_memory_of_operators() -> None:
    x = torch.zeros(1000, device="cuda")
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, profile_memory=True, acc_events=True) as profile:
        y = x + 1
    rows = {row.key: row.self_device_memory_usage for row in profile.key_averages()}
    assert rows["aten::add"] == 4096, rows
    del y
