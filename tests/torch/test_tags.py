"""Tags: memory of tensors is paused and resumed by name, with real bytes behind it."""

from __future__ import annotations

import torch

import genesis
from support import simcuda
from support.program import program
from support.streams import touch

REAL_BYTES = {"SIMCUDA_STORE": "bytes", "SIMCUDA_MEMORY": "4GiB"}


def values(first: int) -> torch.Tensor:
    """20 MB on the host; kernels do nothing here, but copies work."""
    return torch.arange(first, first + 5_000_000, dtype=torch.int32)


@program(env=REAL_BYTES)
def test_values_of_a_paused_tag_come_back() -> None:
    with genesis.tag("weights"):
        weights = values(1).cuda()
    other = values(2).cuda()
    address, used = weights.data_ptr(), simcuda.used_bytes()
    for resumes in (1, 2):
        genesis.pause("weights")
        genesis.pause("weights")
        assert simcuda.used_bytes() <= used - weights.nbytes
        assert torch.cuda.memory_allocated() >= weights.nbytes + other.nbytes
        assert torch.equal(other.cpu(), values(2))
        genesis.resume("weights")
        assert weights.data_ptr() == address
        assert torch.equal(weights.cpu(), values(1))
        assert genesis.generation("weights") == resumes


@program(env=REAL_BYTES)
def test_a_program_can_follow_how_far_a_pause_is() -> None:
    with genesis.tag("weights"):
        weights = values(1).cuda()
    told: list[tuple[int, int]] = []

    def tell(done: int, total: int) -> None:
        told.append((done, total))

    genesis.pause("weights", progress=tell)
    size = told[-1][1]
    assert size >= weights.nbytes
    assert (told[0], told[-1]) == ((0, size), (size, size))
    told.clear()
    # Standard error is no terminal, so nothing is written.
    genesis.resume("weights", progress=True)
    genesis.pause("weights")
    assert told == []
    genesis.resume("weights", progress=tell)
    assert told[-1] == (size, size)
    assert genesis.options.get("progress") == "off"
    assert torch.equal(weights.cpu(), values(1))


@program(env=REAL_BYTES)
def test_dropped_contents_are_written_anew() -> None:
    with genesis.tag("kv"):
        cache = values(1).cuda()
        with genesis.tag("weights"):
            weights = values(2).cuda()
    genesis.pause("kv", keep=False)
    assert torch.equal(weights.cpu(), values(2))
    genesis.resume("kv")
    cache.copy_(values(3))
    assert torch.equal(cache.cpu(), values(3))


@program(env=REAL_BYTES)
def test_tensors_come_and_go_while_their_tag_is_paused() -> None:
    with genesis.tag("weights"):
        kept, gone = values(1).cuda(), values(2).cuda()
    genesis.pause("weights")
    del gone
    with genesis.tag("weights"):
        new = values(3).cuda()
    assert torch.equal(new.cpu(), values(3))
    genesis.resume("weights")
    assert torch.equal(kept.cpu(), values(1))
    assert torch.equal(new.cpu(), values(3))


@program()
def test_misuse_is_reported() -> None:
    for misuse in (genesis.pause, genesis.resume, genesis.generation):
        try:
            misuse("no such tag")
        except genesis.InvalidArgumentError as error:
            assert "no such tag" in str(error)
            continue
        raise AssertionError(misuse)


def write_from_the_other_device() -> None:
    """A kernel of device 1, of which Genesis knows nothing, writes to memory of device 0."""
    tensor = torch.zeros(1 << 20, device="cuda:0")
    torch.cuda.synchronize(0)
    touch(tensor, torch.cuda.current_stream(1), writes=True)
    torch.cuda.synchronize(1)


@program(env={"SIMCUDA_DEVICES": "2"})
def test_a_peer_is_enabled() -> None:
    genesis.enable_peer_access(0, 1)
    genesis.enable_peer_access(0, 1)
    write_from_the_other_device()


@program(env={"SIMCUDA_DEVICES": "2"}, violations=True)
def test_a_peer_that_was_not_enabled_cannot_reach_the_memory() -> None:
    write_from_the_other_device()
    assert "no access" in simcuda.violations_text()
