"""`genesis.cpu`: pools of pageable and pinned host memory, beside PyTorch's allocators."""

from __future__ import annotations

import gc
import threading

import numpy
import pytest
import torch

import genesis
from support.program import program

MIB = 1 << 20
KINDS = (False, True)


def live_bytes(is_pinned: bool) -> int:
    return genesis.cpu.memory_stats(pinned=is_pinned).allocated_bytes


@program(modes=("native",))
def test_arrays_of_both_kinds() -> None:
    torch.cuda.init()  # before that, PyTorch calls no memory pinned
    for is_pinned in KINDS:
        buffer = genesis.cpu.empty((300, 1000), "float32", pinned=is_pinned)
        assert buffer.is_pinned == is_pinned == genesis.cpu.is_pinned(buffer)
        array = numpy.asarray(buffer)
        array[:] = 3
        tensor = torch.from_dlpack(buffer)
        assert float(tensor.sum()) == 900_000 and tensor.is_pinned() == is_pinned
        assert genesis.cpu.is_pinned(array) == genesis.cpu.is_pinned(tensor) == is_pinned
        assert genesis.cpu.is_pinned(buffer.data_ptr + buffer.nbytes - 1) == is_pinned
        assert live_bytes(is_pinned) >= buffer.nbytes
        del buffer, tensor
        gc.collect()
        assert array[299, 999] == 3, "the array keeps the memory"
        del array
        gc.collect()
        assert live_bytes(is_pinned) == 0
        assert genesis.cpu.stats(pinned=is_pinned).reserved_bytes.current > 0
        genesis.cpu.empty_cache(pinned=is_pinned)
        assert genesis.cpu.stats(pinned=is_pinned).reserved_bytes.current == 0
    assert genesis.cpu.empty(0, pinned=True).nbytes == 0
    with pytest.raises(TypeError):
        genesis.cpu.is_pinned("text")


@program(modes=("native",))
def test_which_memory_is_meant() -> None:
    assert not genesis.cpu.is_pinned_memory_enabled()
    assert not genesis.cpu.empty(10).is_pinned
    genesis.cpu.enable_pinned_memory(True)
    assert genesis.cpu.empty(10).is_pinned and not genesis.cpu.empty(10, pinned=False).is_pinned
    assert genesis.cpu.memory_stats() == genesis.cpu.memory_stats(pinned=True)
    assert genesis.cpu.memory_stats() != genesis.cpu.memory_stats(pinned=False)
    genesis.cpu.enable_pinned_memory(False)
    assert not genesis.cpu.is_pinned_memory_enabled()
    assert not genesis.cpu.empty(10).is_pinned


@program(modes=("native",), says="genesis: (pageable|pinned) host memory: out of memory: .*")
def test_limits() -> None:
    for is_pinned in KINDS:
        genesis.cpu.set_memory_limit("24MB", pinned=is_pinned)
        with pytest.raises(genesis.OutOfMemoryError):
            genesis.cpu.empty(25 * MIB, pinned=is_pinned)
        with pytest.raises(genesis.OutOfMemoryError):
            genesis.cpu.preallocate(25 * MIB, pinned=is_pinned)
        genesis.cpu.set_memory_limit(None, pinned=is_pinned)
        genesis.cpu.preallocate("25MB", pinned=is_pinned)
        calls = genesis.cpu.stats(pinned=is_pinned).driver_memory_calls
        genesis.cpu.empty(25 * MIB, pinned=is_pinned)
        assert genesis.cpu.stats(pinned=is_pinned).driver_memory_calls == calls
        genesis.cpu.reset_peak_stats(pinned=is_pinned)
        genesis.cpu.set_cache_size(0, pinned=is_pinned)
        assert genesis.cpu.stats(pinned=is_pinned).reserved_bytes.current == 0
        genesis.cpu.set_cache_size("unlimited", pinned=is_pinned)
        for wrong in (0, "0", "much", -1):
            with pytest.raises(ValueError):
                genesis.cpu.set_memory_limit(wrong, pinned=is_pinned)


@program(modes=("native",))
def test_threads() -> None:
    def work(seed: int) -> None:
        for step in range(100):
            is_pinned = (seed + step) % 2 == 0
            array = numpy.asarray(genesis.cpu.empty(1 + 5000 * step, pinned=is_pinned))
            array[:] = seed
            assert (array == seed).all()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    genesis.cpu.preallocate("32MB", pinned=True, wait=False)
    for thread in threads:
        thread.join()
    genesis.cpu.wait_for_preallocation()
    gc.collect()
    assert live_bytes(True) == live_bytes(False) == 0
