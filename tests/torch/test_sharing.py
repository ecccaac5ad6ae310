"""Tensors sent to other processes: each program under PyTorch's own allocator, with segments and
with expandable ones, and under Genesis, with Caching and with Elastic."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import time
from typing import Any, Callable

import pytest
import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset

import genesis
import genesis.torch
from support import child, simcuda
from support.program import program, run
from support.sharing import Consumer, consumer, described, refusal, values, write

MIB = 1 << 20
BYTES = {"SIMCUDA_STORE": "bytes"}
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
ELASTIC, CACHING = {"GENESIS_POOL_TYPE": "Elastic"}, {"GENESIS_POOL_TYPE": "Caching"}
EVERYWHERE = {
    "native": ("native", BYTES),
    "expandable": ("native", {**BYTES, **EXPANDABLE}),
    "caching": ("enabled", {**BYTES, **CACHING}),
    "elastic": ("enabled", {**BYTES, **ELASTIC}),
}


def everywhere(function: Callable[[], Any]) -> Callable[..., None]:
    """Makes a test of a program, one for each allocator."""

    @pytest.mark.parametrize("where", EVERYWHERE)
    def test(where: str) -> None:
        mode, env = EVERYWHERE[where]
        run(function, mode, env)

    functools.update_wrapper(test, function)
    del test.__wrapped__
    test.program = function  # type: ignore[attr-defined]
    return test


def mode() -> str:
    return "enabled" if genesis.torch.is_enabled() else "native"


def full(*shape: int, value: float = 1.0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    tensor = torch.empty(*shape, dtype=dtype, device="cuda")
    write(tensor, value)
    return tensor


def expect_allocated(expected: int) -> None:
    """PyTorch's own allocator is told to look; Genesis's hears of a release in a moment."""
    allocated = -1
    for _ in range(200):
        gc.collect()
        torch.cuda.ipc_collect()
        allocated = torch.cuda.memory_allocated()
        if allocated == expected:
            return
        time.sleep(0.02)
    raise AssertionError(f"{allocated} bytes are allocated, not {expected}")


@everywhere
def test_tensors_arrive_as_they_are() -> None:
    whole = full(64, 32, value=3.0)
    sent = {
        "whole": whole,
        "view": whole[::2].t(),
        "part": whole[40:, 5:9],
        "element": whole[7, 7],
        "parameter": torch.nn.Parameter(full(10, value=2.0)),
        "leaf": full(10, value=4.0).requires_grad_(),
        "half": full(33, value=5.0, dtype=torch.float16),
        "large": full(75 * MIB, value=6.0),
    }
    empty = torch.empty(0, 3, device="cuda")
    with consumer(mode()) as other:
        for name, tensor in sent.items():
            assert other.ask("keep", name, tensor) == described(tensor), name
        assert other.ask("keep", "empty", empty)["shape"] == [0, 3]
        # One storage is one mapping there, whatever is sent of it.
        base = other.ask("address", "whole")[1]
        for name in ("view", "part", "element"):
            address, storage = other.ask("address", name)
            assert storage == base, name
            assert address - storage == sent[name].data_ptr() - whole.data_ptr()
        other.ask("write", "part", 9.0)
        assert values(whole) == [9.0] * 8
        write(whole, 8.0)
        assert other.ask("values", "view") == [8.0] * 8
        assert "Attempted to send CUDA tensor received" in other.ask("refusal", "view")
    assert "Cowardly refusing" in refusal(sent["leaf"] * 2)
    assert whole.share_memory_() is whole and whole.is_shared()
    del sent, whole, tensor, empty
    expect_allocated(0)


@everywhere
def test_a_block_lives_until_the_consumer_lets_go() -> None:
    tensors = [full(5 * MIB, value=float(index)) for index in range(3)]
    held = torch.cuda.memory_allocated()
    with consumer(mode()) as other:
        for index, tensor in enumerate(tensors):
            other.ask("keep", str(index), tensor)
            other.ask("keep", f"again {index}", tensor)
        addresses = {tensor.data_ptr() for tensor in tensors}
        del tensors, tensor
        expect_allocated(held)
        torch.cuda.empty_cache()
        new = [full(5 * MIB, value=50.0) for _ in range(6)]
        assert addresses.isdisjoint(tensor.data_ptr() for tensor in new)
        for index in range(3):
            assert other.ask("values", str(index)) == [float(index)] * 8
            other.ask("drop", f"again {index}")
            assert other.ask("values", str(index)) == [float(index)] * 8
        other.ask("drop", "0")
        expect_allocated(held // 3 * 8)
        del new
        other.ask("drop", "1")
        other.ask("drop", "2")
        expect_allocated(0)


@everywhere
def test_a_tensor_may_be_sent_to_several_and_again() -> None:
    tensor = full(1000, value=1.0)
    with consumer(mode()) as first, consumer(mode()) as second:
        for round_ in range(3):
            write(tensor, float(round_))
            for other in (first, second):
                other.ask("keep", "it", tensor)
                assert other.ask("values", "it") == [float(round_)] * 8
            first.ask("drop", "it")
    del tensor
    expect_allocated(0)


@everywhere
def test_blocks_of_private_pools_are_sent() -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        tensor = full(3 * MIB, value=7.0)
    with consumer(mode()) as other:
        assert other.ask("keep", "it", tensor)["values"] == [7.0] * 8
        other.ask("drop", "it")
    del tensor
    expect_allocated(0)
    del pool


@pytest.mark.parametrize("where", EVERYWHERE)
def test_the_consumer_comes_after_the_producers_stream(where: str) -> None:
    run_mode, env = EVERYWHERE[where]
    run(ordered, run_mode, env)


def ordered() -> None:
    """The producer's stream stands still; what the consumer queues waits for it."""
    tensor = full(1000, value=1.0)
    side = torch.cuda.Stream()
    with consumer(mode()) as other:
        simcuda.hold(side.cuda_stream, True)
        with torch.cuda.stream(side):
            tensor.add_(1)
            other.ask("keep", "it", tensor[0:0])
            other._orders.put(("keep", "it", tensor))
            time.sleep(0.5)
            assert other._answers.empty(), "the values are read after the producer's stream"
            simcuda.hold(side.cuda_stream, False)
            other._answers.get(timeout=60)
        side.synchronize()
        other.ask("drop", "it")
    del tensor
    expect_allocated(0)


class OnTheGpu(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return full(100, value=float(index))


def enable_in_worker(_: int) -> None:
    genesis.torch.enable()


@everywhere
def test_data_loader_workers_send_batches() -> None:
    loader: DataLoader[Any] = DataLoader(
        OnTheGpu(),
        batch_size=None,
        num_workers=2,
        multiprocessing_context="spawn",
        worker_init_fn=enable_in_worker if genesis.torch.is_enabled() else None,
    )
    seen = [values(batch)[0] for batch in loader]
    assert sorted(seen) == [float(index) for index in range(8)]


@everywhere
def test_a_forked_child_cannot_receive() -> None:
    tensor = full(1000)
    context = torch.multiprocessing.get_context("fork")
    queue, answers = context.Queue(), multiprocessing.get_context("fork").Queue()
    process = context.Process(target=receive_one, args=(queue, answers))
    process.start()
    queue.put(tensor)
    assert "Cannot re-initialize CUDA in forked subprocess" in answers.get(timeout=60)
    process.join()
    if genesis.torch.is_enabled():
        return_what_was_sent(tensor)
    del tensor


def receive_one(queue: Any, answers: Any) -> None:
    try:
        queue.get()
    except RuntimeError as error:
        answers.put(str(error))


def return_what_was_sent(tensor: torch.Tensor) -> None:
    """Nobody received it, so PyTorch's rule holds: it stays until this process ends."""
    allocated = torch.cuda.memory_allocated()
    assert allocated >= tensor.untyped_storage().nbytes()


def genesis_alone(**expected: Any) -> Callable[[Callable[[], Any]], Callable[..., None]]:
    return program(env={**BYTES, **ELASTIC}, **expected)


@genesis_alone()
def test_what_a_dead_consumer_had_comes_back() -> None:
    tensor = full(5 * MIB)
    other = Consumer("enabled")
    other.ask("keep", "it", tensor)
    del tensor
    assert torch.cuda.memory_allocated() > 0
    other.kill()
    expect_allocated(0)


@genesis_alone()
def test_the_own_process_gets_its_own_tensor() -> None:
    tensor = full(1000, value=2.0)
    queue = torch.multiprocessing.get_context("spawn").Queue()
    queue.put(tensor)
    back = queue.get()
    assert back.data_ptr() == tensor.data_ptr()
    assert back.untyped_storage()._cdata == tensor.untyped_storage()._cdata
    del tensor
    assert values(back) == [2.0] * 8
    del back
    expect_allocated(0)


def produce(queue: Any, received: Any) -> None:
    with child.mode("enabled"):
        tensor = full(40 * MIB, value=11.0)
        queue.put(tensor)
        received.wait()
        os._exit(0)


@genesis_alone()
def test_the_producer_may_end_first() -> None:
    context = torch.multiprocessing.get_context("spawn")
    queue, received = context.Queue(), context.Event()
    process = context.Process(target=produce, args=(queue, received))
    process.start()
    tensor = queue.get()
    received.set()
    process.join()
    assert values(tensor) == [11.0] * 8
    assert torch.cuda.memory_allocated() == 0, "it counts for its producer"
    del tensor
    gc.collect()
    assert simcuda.census("imported_bytes") == 0


@genesis_alone()
def test_a_process_without_genesis_receives() -> None:
    tensor = full(1000, value=4.0)
    with consumer("native") as other:
        assert other.ask("keep", "it", tensor)["values"] == [4.0] * 8
        other.ask("drop", "it")
    del tensor
    expect_allocated(0)


@program(env={**BYTES, **ELASTIC, "TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC": "0"})
def test_memory_is_not_made_for_sending_where_pytorchs_is_not() -> None:
    assert genesis.options.get("handle_type") == "none"
    tensor = full(1000)
    assert "GENESIS_HANDLE_TYPE=posix" in refusal(tensor)
