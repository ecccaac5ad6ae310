"""`genesis.torch.nccl_pool`: buffers for NCCL and RDMA."""

from __future__ import annotations

import pytest
import torch

import genesis
import genesis.torch
from support.program import OUT_OF_MEMORY, program

MIB = 1 << 20


def block(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


@program()
def test_each_block_is_registered_while_it_is_mapped() -> None:
    book: dict[int, int] = {}

    def register(device: int, address: int, size: int) -> None:
        assert (device, address in book) == (0, False)
        book[address] = size

    def deregister(_device: int, address: int, size: int) -> None:
        assert book.pop(address) == size

    pool = genesis.torch.nccl_pool(register=register, deregister=deregister, tag="nccl")
    assert isinstance(pool, torch.cuda.MemPool)
    outside = block(3 * MIB)
    with torch.cuda.use_mem_pool(pool):
        first, second = block(3 * MIB), block(100)
    assert sorted(book.items()) == [
        (first.data_ptr(), 4 * MIB),
        (second.data_ptr(), 2 * MIB),
    ]
    address = first.data_ptr()
    del first
    torch.cuda.empty_cache()
    assert address in book, "free memory of the pool stays"
    with torch.cuda.use_mem_pool(pool):
        again = block(3 * MIB)
    assert again.data_ptr() == address
    assert pool.layout() == [(0, 4 * MIB, True), (4 * MIB, 2 * MIB, True)]
    before = dict(book)
    genesis.pause("nccl")
    assert (book, pool.generation) == ({}, 0)
    genesis.resume("nccl")
    assert (book, pool.generation) == (before, 1)
    del again, second, pool, outside
    torch.cuda.empty_cache()
    assert book == {}


@program(says=r"Traceback .*|  .*|OSError: 2097152 bytes cannot be registered|genesis: .*")
def test_what_cannot_be_registered_is_not_handed_out() -> None:
    def register(device: int, address: int, size: int) -> None:
        raise OSError(f"{size} bytes cannot be registered")

    pool = genesis.torch.nccl_pool(register=register)
    with torch.cuda.use_mem_pool(pool), pytest.raises(RuntimeError):
        block(MIB)
    assert torch.cuda.memory_reserved() == 0


def kinds() -> tuple[bool, bool, bool]:
    pool = genesis.torch.nccl_pool()
    with torch.cuda.use_mem_pool(pool):
        block(MIB)
    made = pool.communication
    assert made.granularity_bytes == 2 * MIB
    return made.has_file_descriptors, made.has_fabric, made.is_rdma


@program(env={"SIMCUDA_FABRIC": "on"})
def test_memory_is_made_for_a_fabric() -> None:
    assert kinds() == (True, True, True)


@program(env={"SIMCUDA_FABRIC": "denied"})
def test_memory_is_made_without_a_channel_to_the_fabric() -> None:
    assert kinds() == (True, False, True)


@program()
def test_memory_is_made_without_a_fabric() -> None:
    assert kinds() == (True, False, True)


@program(env={"SIMCUDA_DEVICES": "3"})
def test_all_devices_reach_it() -> None:
    pool = genesis.torch.nccl_pool()
    with torch.cuda.use_mem_pool(pool):
        tensor = block(MIB)
    assert pool.communication.peer_count == 2
    # A kernel of another device reads it, which no call has introduced.
    with torch.cuda.device(2):
        copy = torch.empty(MIB, dtype=torch.uint8, device="cuda:2")
        copy.copy_(tensor)
    torch.cuda.synchronize(2)


@program(env={"GENESIS_POOL_TYPE": "Caching"})
def test_only_elastic_has_it() -> None:
    with pytest.raises(genesis.GenesisError, match="only Elastic"):
        genesis.torch.nccl_pool()


@program(modes=("native",), says=OUT_OF_MEMORY + ".*")
def test_pytorchs_own_pool_has_its_segments_from_it() -> None:
    pool = genesis.torch.nccl_pool(tag="nccl")
    assert isinstance(pool, (torch.cuda.MemPool, genesis.torch.NcclPool))
    outside = block(30 * MIB)
    with torch.cuda.use_mem_pool(pool):
        first, second = block(30 * MIB), block(3 * MIB)
    segments = sorted((one["address"], one["total_size"]) for one in pool.snapshot())
    assert [size for _, size in segments] == [size for _, size, _ in pool.layout()]
    assert {first.data_ptr(), second.data_ptr()} <= {address for address, _ in segments}
    assert outside.data_ptr() not in dict(segments)
    assert pool.communication.has_file_descriptors
    held = genesis.stats().reserved_bytes.current
    genesis.pause("nccl")
    assert genesis.stats().reserved_bytes.current == 0 < held
    genesis.resume("nccl")
    assert (genesis.stats().reserved_bytes.current, pool.generation) == (held, 1)
    first.zero_()
    torch.cuda.synchronize()
    with pytest.raises(torch.OutOfMemoryError), torch.cuda.use_mem_pool(pool):
        block(1 << 44)
    del first, second, outside, pool
    torch.cuda.empty_cache()
    genesis.empty_cache()
    assert genesis.stats().reserved_bytes.current == 0


@program(modes=("native",))
def test_so_many_pools_of_pytorchs_own_are_made_one_after_the_other() -> None:
    for _ in range(40):
        pool = genesis.torch.nccl_pool()
        with torch.cuda.use_mem_pool(pool):
            block(MIB)
        del pool
    torch.cuda.empty_cache()
    pools = [genesis.torch.nccl_pool() for _ in range(32)]
    with pytest.raises(genesis.OutOfMemoryError, match="32 private pools"):
        genesis.torch.nccl_pool()
    del pools


@program(modes=("native",))
def test_hooks_need_direct_mode() -> None:
    with pytest.raises(RuntimeError, match=r"genesis\.torch\.enable"):
        genesis.torch.nccl_pool(register=print)
