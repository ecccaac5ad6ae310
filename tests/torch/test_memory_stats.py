"""Genesis's own figures of a device, under PyTorch: few, more, and block by block."""

from __future__ import annotations

from typing import Callable

import torch

import genesis
from support import simcuda
from support.program import program

GIB = 1 << 30
MIB = 1 << 20


def block(n: int) -> torch.Tensor:
    return torch.empty(n, dtype=torch.uint8, device="cuda")


def refuses(call: Callable[..., object], *arguments: object) -> None:
    try:
        call(*arguments)
    except ValueError:
        return
    raise AssertionError((call, arguments))


@program(modes=("enabled", "two_symbols"))
def test_the_figures_add_up() -> None:
    before = genesis.memory_stats()
    assert before == genesis.MemoryStats(0, 0, 0, 0, 0, 0, 0, 0)
    assert before.fragmentation_ratio() == 0
    kept, gone = block(30 * MIB), block(20 * MIB)
    del gone
    stats = genesis.memory_stats()
    assert stats.allocated_bytes == stats.active_bytes == 30 * MIB
    assert stats.peak_allocated == 50 * MIB
    assert stats.reserved_bytes == simcuda.used_bytes()
    assert stats.cached_bytes == stats.inactive_bytes == stats.reserved_bytes - 30 * MIB > 0
    assert (stats.num_allocs, stats.num_frees) == (2, 1)
    assert stats.fragmentation_ratio() == genesis.stats().fragmentation_ratio > 0
    assert stats.fragmentation_ratio() == stats.cached_bytes / stats.reserved_bytes
    genesis.reset_peak_stats()
    assert genesis.memory_stats().peak_allocated == 30 * MIB
    del kept


@program()
def test_what_other_streams_still_use_is_active() -> None:
    other = torch.cuda.Stream()
    tensor = block(30 * MIB)
    with torch.cuda.stream(other):
        torch.cuda._sleep(1000)
        tensor.record_stream(other)
    del tensor
    stats = genesis.memory_stats()
    assert stats.allocated_bytes == 0
    assert 30 * MIB <= stats.cached_bytes == stats.reserved_bytes <= 64 * MIB
    assert stats.active_bytes + stats.inactive_bytes == stats.reserved_bytes
    torch.cuda.synchronize()
    genesis.memory_manager.compact()
    stats = genesis.memory_stats()
    assert (stats.active_bytes, stats.inactive_bytes) == (0, stats.reserved_bytes)


@program()
def test_details_and_large_allocations() -> None:
    kept = [block(n * MIB) for n in (3, 300, 30)]
    block(30 * MIB)
    block(30 * MIB)
    details = genesis.detailed_memory_stats()
    assert details.total_allocated == 333 * MIB
    assert details.peak_allocated == 363 * MIB
    assert details.cache_hit_rate == genesis.stats().hit_rate > 0
    assert details.fragmentation_ratio == genesis.stats().fragmentation_ratio > 0
    for least in (30 * MIB, "30MB", "0.02 GiB"):
        large = details.get_large_allocations(least)
        assert [one.size for one in large] == [300 * MIB, 30 * MIB], large
    assert large[0].address == kept[1].data_ptr()
    assert (large[0].device, large[0].stream, large[0].tag) == (0, 0, None)
    assert large[0].location == "unknown" and large[0].stack == ()
    assert len(details.get_large_allocations()) == 3
    assert details.get_large_allocations("1GB") == []
    for wrong in ("much", "1 XB", -1, ""):
        refuses(details.get_large_allocations, wrong)


@program(env={"SIMCUDA_DEVICES": "2"})
def test_devices_are_told_apart() -> None:
    tensor = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda:1")
    assert genesis.memory_stats(0).allocated_bytes == 0
    assert genesis.memory_stats(1).allocated_bytes == 5 * MIB
    (found,) = genesis.detailed_memory_stats(1).get_large_allocations()
    assert (found.device, found.address) == (1, tensor.data_ptr())
    assert [one.device for one in genesis.check_memory_leaks()] == [1]
    assert genesis.check_memory_leaks(0) == []
    try:
        genesis.memory_stats(2)
    except genesis.InvalidArgumentError as error:
        assert "2" in str(error)
    else:
        raise AssertionError("there is no such device")


@program()
def test_the_cache_is_collected_and_emptied() -> None:
    blocks = [block(30 * MIB) for _ in range(4)]
    del blocks
    cached_bytes = genesis.memory_stats().cached_bytes
    assert 120 * MIB <= cached_bytes <= 136 * MIB
    assert genesis.memory_manager.collect_garbage() == 0, "all of it has just been used"
    assert genesis.memory_manager.collect_garbage(0) == cached_bytes
    assert genesis.memory_stats().cached_bytes == 0 == simcuda.used_bytes()
    block(30 * MIB)
    assert 30 * MIB <= genesis.memory_stats().cached_bytes <= 64 * MIB
    genesis.empty_cache()
    assert genesis.memory_stats().reserved_bytes == 0 == simcuda.used_bytes()


@program(says="genesis: out of memory: ")
def test_limits_on_every_device_and_on_one() -> None:
    genesis.cuda.set_memory_fraction(0.25)
    fits = block(19 * GIB)
    try:
        block(2 * GIB)
    except torch.OutOfMemoryError:
        pass
    else:
        raise AssertionError("a quarter of 80 GiB are 20")
    genesis.cuda.set_memory_fraction(0.5, device=0)
    block(2 * GIB)
    assert torch.cuda.get_per_process_memory_fraction() == 0.5
    del fits
    for size, kept in (("2GB", 2 * GIB), (MIB, MIB), ("0", 0)):
        genesis.cuda.set_cache_size(size)
        assert genesis.memory_stats().cached_bytes <= kept
    genesis.cuda.set_cache_size(None)
    block(3 * GIB)
    assert genesis.memory_stats().cached_bytes >= 3 * GIB
    genesis.cuda.set_cache_size("1GB", device=0)
    assert genesis.memory_stats().cached_bytes <= GIB
    refuses(genesis.cuda.set_memory_fraction, 1.5)
    refuses(genesis.cuda.set_memory_fraction, 0, 0)
    refuses(genesis.cuda.set_cache_size, "2XB")
