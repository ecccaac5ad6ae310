"""Tensors sent to other processes: each program under PyTorch's own allocator, with segments and
with expandable ones, and under Genesis, with Caching and with Elastic."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from typing import Any

import pytest
import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset

import genesis
import genesis.torch
from support import child, simcuda, tier
from support.program import program
from support.sharing import (
    BYTES,
    GENESIS,
    MIB,
    ONLY_ELASTIC,
    USUALLY,
    consumer,
    described,
    expect_allocated,
    full,
    mode,
    received,
    refusal,
    sent,
    values,
    with_consumers,
    write,
)

#: What PyTorch's own allocator says where a tensor that was sent has not been received.
NOT_RECEIVED = r"\[W.*Producer process has been terminated before all shared CUDA tensors released"
ELASTIC = {**BYTES, "GENESIS_POOL_TYPE": "Elastic"}


@with_consumers()
def test_tensors_arrive_as_they_are() -> None:
    whole = full(64, 32, value=3.0)
    some = {
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
    with consumer() as other:
        for name, tensor in some.items():
            assert other.ask("keep", name, tensor) == described(tensor), name
        assert other.ask("keep", "empty", empty)["shape"] == [0, 3]
        # One storage is one mapping there, whatever is sent of it.
        base = other.ask("address", "whole")[1]
        for name in ("view", "part", "element"):
            address, storage = other.ask("address", name)
            assert storage == base, name
            assert address - storage == some[name].data_ptr() - whole.data_ptr()
        other.ask("write", "part", 9.0)
        assert values(whole) == [9.0] * 8
        write(whole, 8.0)
        assert other.ask("values", "view") == [8.0] * 8
        assert "Attempted to send CUDA tensor received" in other.ask("refusal", "view")
    assert "Cowardly refusing" in refusal(sent, some["leaf"] * 2)
    assert whole.share_memory_() is whole and whole.is_shared()
    del some, whole, tensor, empty
    expect_allocated(0)


@with_consumers()
def test_a_block_lives_until_the_consumer_lets_go() -> None:
    tensors = [full(5 * MIB, value=float(index)) for index in range(3)]
    held = torch.cuda.memory_allocated()
    with consumer() as other:
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


@with_consumers(2, USUALLY)
def test_a_tensor_may_be_sent_to_several_and_again() -> None:
    tensor = full(1000, value=1.0)
    with consumer() as first, consumer() as second:
        for round_ in range(3):
            write(tensor, float(round_))
            for other in (first, second):
                other.ask("keep", "it", tensor)
                assert other.ask("values", "it") == [float(round_)] * 8
            first.ask("drop", "it")
    del tensor
    expect_allocated(0)


@with_consumers()
def test_blocks_of_private_pools_are_sent() -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        tensor = full(3 * MIB, value=7.0)
    with consumer() as other:
        assert other.ask("keep", "it", tensor)["values"] == [7.0] * 8
        other.ask("drop", "it")
    del tensor
    expect_allocated(0)
    del pool


@with_consumers(1, USUALLY)
def test_the_consumer_comes_after_the_producers_stream() -> None:
    """The producer's stream stands still; what the consumer queues waits for it."""
    tensor = full(1000, value=1.0)
    side = torch.cuda.Stream()
    with consumer() as other:
        simcuda.hold(side.cuda_stream, True)
        with torch.cuda.stream(side):
            tensor.add_(1)
            text = sent(tensor)
        other.tell("look", text)
        time.sleep(0.5)
        assert not other.has_answered(), "the values are read after the producer's stream"
        simcuda.hold(side.cuda_stream, False)
        assert len(other.answer()) == 8
        side.synchronize()
        # What is sent without work on the side stream waits for none.
        simcuda.hold(side.cuda_stream, True)
        assert len(other.ask("look", sent(tensor))) == 8
        simcuda.hold(side.cuda_stream, False)
    del tensor
    expect_allocated(0)


class OnTheGpu(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return full(100, value=float(index))


def enable_in_worker(_: int) -> None:
    genesis.torch.enable()


@pytest.mark.skipif(not tier.is_full(), reason=tier.NIGHTLY)
@with_consumers(0, USUALLY, ignored=r"\[W.*Producer process has been terminated before.*")
def test_data_loader_workers_send_batches() -> None:
    loader: DataLoader[Any] = DataLoader(
        OnTheGpu(),
        batch_size=None,
        num_workers=2,
        multiprocessing_context="spawn",
        worker_init_fn=enable_in_worker if mode() == "enabled" else None,
    )
    batches = iter(loader)
    for index in range(8):
        batch = next(batches)
        assert values(batch) == [float(index)] * 8
        # PyTorch complains of workers that end while their tensors are in use.
        del batch
    with pytest.raises(StopIteration):
        next(batches)


@with_consumers(0, GENESIS, ending="live")
def test_a_forked_child_cannot_receive() -> None:
    tensor = full(1000)
    context = torch.multiprocessing.get_context("fork")
    queue, answers = context.Queue(), multiprocessing.get_context("fork").Queue()
    process = context.Process(target=receive_one, args=(queue, answers))
    process.start()
    queue.put(tensor)
    assert "Cannot re-initialize CUDA in forked subprocess" in answers.get(timeout=60)
    process.join()
    # Nobody received it, so PyTorch's rule holds: it stays until this process ends.
    held = torch.cuda.memory_allocated()
    del tensor
    expect_allocated(held)


def receive_one(queue: Any, answers: Any) -> None:
    answers.put(refusal(queue.get))


@with_consumers(0, GENESIS)
def test_a_tensor_from_its_own_process() -> None:
    tensor = full(1000, value=2.0)
    back = received(sent(tensor))
    assert back.data_ptr() == tensor.data_ptr()
    assert back.untyped_storage()._cdata == tensor.untyped_storage()._cdata
    del tensor
    assert values(back) == [2.0] * 8
    del back
    expect_allocated(0)


@program(("native",), BYTES, ending="live", says=NOT_RECEIVED)
def test_pytorch_refuses_a_tensor_from_its_own_process() -> None:
    tensor = full(1000)
    assert "invalid device context" in refusal(received, sent(tensor))


@with_consumers(where=GENESIS)
def test_what_a_dead_consumer_had_comes_back() -> None:
    tensor = full(5 * MIB)
    with consumer() as other:
        other.ask("keep", "it", tensor)
        del tensor
        assert torch.cuda.memory_allocated() > 0
        other.kill()
    expect_allocated(0)


def produce(queue: Any, is_received: Any) -> None:
    with child.mode("enabled"):
        queue.put(full(40 * MIB, value=11.0))
        is_received.wait()
        os._exit(0)


@program(env=ELASTIC)
def test_the_producer_may_end_first() -> None:
    context = torch.multiprocessing.get_context("spawn")
    queue, is_received = context.Queue(), context.Event()
    process = context.Process(target=produce, args=(queue, is_received))
    process.start()
    tensor = queue.get()
    is_received.set()
    process.join()
    assert values(tensor) == [11.0] * 8
    assert torch.cuda.memory_allocated() == 0, "it counts for its producer"
    del tensor
    gc.collect()
    assert simcuda.census("imported_bytes") == 0


@pytest.mark.skipif(not tier.is_full(), reason=tier.NIGHTLY)
@with_consumers(0, where=GENESIS)
def test_a_process_without_genesis_receives() -> None:
    tensor = full(1000, value=4.0)
    with consumer(spawned_with="native") as other:
        assert other.ask("keep", "it", tensor)["values"] == [4.0] * 8
        other.ask("drop", "it")
    del tensor
    expect_allocated(0)


@with_consumers(0, ONLY_ELASTIC, says=NOT_RECEIVED)
def test_a_process_without_genesis_cannot_send() -> None:
    with consumer(spawned_with="native") as other:
        other.tell("make", 5.0)
        assert "does not yet support getIpcDevPtr" in refusal(other.answer)


@program(env={**ELASTIC, "TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC": "0"})
def test_memory_is_not_made_for_sending_where_pytorchs_is_not() -> None:
    assert genesis.options.get("handle_type") == "none"
    tensor = full(1000)
    assert "GENESIS_HANDLE_TYPE=posix" in refusal(sent, tensor)


@with_consumers(where=ONLY_ELASTIC)
def test_a_tag_is_not_paused_while_a_tensor_of_it_is_shared() -> None:
    with genesis.tag("weights"):
        tensor = full(1000, value=4.0)
    with consumer() as other:
        other.ask("keep", "it", tensor)
        with pytest.raises(RuntimeError, match="shared with another process"):
            genesis.pause("weights")
        assert other.ask("values", "it") == [4.0] * 8
    del tensor
    expect_allocated(0)
