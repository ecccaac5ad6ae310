"""`genesis.torch.arena`: scratch inside a step, in direct mode."""

from __future__ import annotations

import threading

import torch

import genesis
import genesis.torch
from support.program import program

MIB = 1 << 20


def block(mebibytes: float) -> torch.Tensor:
    return torch.empty(int(mebibytes * MIB), dtype=torch.uint8, device="cuda")


def addresses(count: int) -> list[int]:
    return [tensor.data_ptr() for tensor in [block(3) for _ in range(count)]]


@program(modes=("enabled",))
def test_scratch_is_apart_and_comes_again() -> None:
    outside = block(3)
    with genesis.torch.arena() as pool:
        first = addresses(5)
        assert all(after - before == 3 * MIB for before, after in zip(first, first[1:]))
        held = genesis.torch.pool_usage(pool).reserved_bytes
    for _ in range(5):
        with genesis.torch.arena() as again:
            assert again.id == pool.id
            assert addresses(5) == first
            assert genesis.torch.pool_usage(again).reserved_bytes == held
    assert outside.data_ptr() not in first
    beside = block(3)
    assert beside.data_ptr() not in first


@program(modes=("enabled",))
def test_what_outlives_the_block_is_safe() -> None:
    kept = []
    for step in range(8):
        with genesis.torch.arena():
            tensors = [block(2) for _ in range(4)]
            for tensor in tensors:
                tensor.fill_(step)
            kept.append(tensors[step % 4])
        del tensors, tensor
    assert len({tensor.data_ptr() for tensor in kept}) == 8
    del kept


@program(modes=("enabled",))
def test_blocks_of_code_nest_and_threads_have_their_own() -> None:
    with genesis.torch.arena() as outer:
        first = block(2)
        with genesis.torch.arena() as inner:
            second = block(2)
        third = block(2)
        assert outer.id != inner.id
    assert third.data_ptr() - first.data_ptr() == 2 * MIB
    assert abs(second.data_ptr() - first.data_ptr()) >= 4 * MIB
    found = []

    def work() -> None:
        with genesis.torch.arena() as pool:
            found.append((pool.id, block(2).data_ptr()))

    with genesis.torch.arena() as pool:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert found[0][0] != pool.id
    del first, second, third


@program(modes=("enabled",))
def test_streams_within_a_block() -> None:
    other = torch.cuda.Stream()
    for _ in range(3):
        with genesis.torch.arena():
            tensor = block(4)
            tensor.fill_(1)
            other.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(other):
                tensor.add_(1)
                mine = block(4)
                mine.fill_(2)
            tensor.record_stream(other)
            del tensor, mine


@program(modes=("enabled",))
def test_a_training_step() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        batch = torch.ones(16, 64, device="cuda")
        with genesis.torch.arena():
            loss = model(batch).sum()
            loss.backward()
            del loss
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@program(modes=("native",))
def test_without_direct_mode() -> None:
    try:
        genesis.torch.arena().__enter__()
    except RuntimeError as error:
        assert "call genesis.torch.enable() first" in str(error)
    else:
        raise AssertionError("it needs direct mode")
