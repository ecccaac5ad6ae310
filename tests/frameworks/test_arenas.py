"""Arenas, fixed-size pools and memory managers as arrays of NumPy and tensors of PyTorch."""

from __future__ import annotations

import functools
import gc
import sys
import threading
from typing import Any

import genesis
from harness.program import program as any_program

program = functools.partial(any_program, imports=("torch", "numpy"))

#: Host memory, whose bytes can be read.
HOST = {"GENESIS_BACKEND": "host"}
KINDS = ("device", "pageable", "pinned")


@program(env=HOST, ending="live")
def test_arrays_without_copies() -> None:
    import numpy
    import torch

    for memory in KINDS:
        arena = genesis.Arena(memory)
        buffer = arena.empty((4, 5), "float32")
        array = numpy.asarray(buffer)
        array[:] = 7
        assert numpy.from_dlpack(buffer)[3, 4] == 7
        tensor = torch.from_dlpack(buffer)
        tensor[0, 0] = 9
        assert array[0, 0] == 9
        view = buffer.view
        assert view.nbytes == 80 and not view.readonly
        if sys.version_info >= (3, 12):
            assert memoryview(buffer).nbytes == 80
        view[:] = bytes(80)
        assert tensor.sum() == 0 and array.sum() == 0
        assert arena.empty((0, 3)).view.nbytes == 0
        assert arena.allocate("4KB", alignment=4096).data_ptr % 4096 == 0


@program(env=HOST, ending="live")
def test_what_outlives_a_reset_is_safe() -> None:
    import numpy

    for memory in KINDS:
        arena = genesis.Arena(memory, chunk_size="64KB")
        kept = []
        for step in range(10):
            with arena:
                arrays = [numpy.asarray(arena.empty(1000, "int64")) for _ in range(20)]
                for array in arrays:
                    array[:] = step
                kept.append(arrays[step])
        assert all((array == step).all() for step, array in enumerate(kept))
        assert arena.stats().resets == 10
        del arena, array, arrays
        gc.collect()
        assert all((array == step).all() for step, array in enumerate(kept))


@program(env=HOST, ending="live")
def test_a_steady_program_asks_for_nothing() -> None:
    arena = genesis.Arena("pageable", chunk_size="4KB")
    addresses = []
    for _ in range(5):
        with arena:
            addresses.append([arena.allocate(1000).data_ptr for _ in range(50)])
    assert addresses[2] == addresses[3] == addresses[4]
    assert arena.stats().chunks == 1
    arena.trim()
    assert arena.stats().held_bytes == 0


@program(env=HOST, ending="live")
def test_marks() -> None:
    arena = genesis.Arena("pageable")
    arena.allocate(100)
    mark = arena.mark()
    first = arena.allocate(1000).data_ptr
    arena.rewind(mark)
    assert arena.allocate(1000).data_ptr == first
    arena.reset()
    raises(genesis.InvalidArgumentError, arena.rewind, mark)
    limited = genesis.Arena("pageable", limit="64KB")
    raises(genesis.LimitReachedError, limited.allocate, "1MB")
    raises(ValueError, genesis.Arena, "disk")


@program(env=HOST, ending="live")
def test_pools() -> None:
    import numpy

    for memory in KINDS:
        pool = genesis.FixedPool("4KB", 3, memory=memory)
        arrays = [numpy.asarray(pool.empty((10, 10), "float64")) for _ in range(3)]
        for n, array in enumerate(arrays):
            array[:] = n
        raises(genesis.LimitReachedError, pool.allocate)
        raises(ValueError, pool.empty, 4097)
        assert [array.max() for array in arrays] == [0, 1, 2]
        del array
        address = arrays.pop().ctypes.data
        gc.collect()
        assert pool.allocate().data_ptr == address
        stats = pool.stats()
        assert (stats.blocks, stats.peak_live_blocks, stats.refusals) == (3, 3, 1)
        growing = genesis.FixedPool(64, growth=10, memory=memory)
        held = [growing.allocate() for _ in range(25)]
        assert growing.stats().blocks == 30 and len(held) == 25


@program(env=HOST, ending="live")
def test_managers() -> None:
    for memory in KINDS:
        manager = genesis.MemoryManager({64: 1000, "1KB": 500}, arena_size="1MB", memory=memory)
        buffers = [manager.allocate(size) for size in [10, 64, 65, 1024, 1025]]
        stats = manager.stats()
        assert (stats.pool_blocks, stats.arena_blocks) == (4, 1)
        raises(genesis.LimitReachedError, manager.allocate, "2MB")
        del buffers
        gc.collect()
        stats = manager.stats()
        assert (stats.pool_blocks, stats.arena_blocks, stats.arena_used_bytes) == (0, 0, 0)


@program(env=HOST, ending="live")
def test_threads() -> None:
    import numpy

    arena = genesis.Arena("pageable")
    pool = genesis.FixedPool(800, growth=16, memory="pageable")
    wrong: list[object] = []

    def work(number: int) -> None:
        for _ in range(300):
            for source in (arena, pool):
                array = numpy.asarray(source.empty(100, "int64"))
                array[:] = number
                if not (array == number).all():
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    del threads
    gc.collect()
    assert pool.stats().live_blocks == 0


@program(ending="live")
def test_tensors_on_a_device() -> None:
    import torch

    stream = torch.cuda.Stream()
    arena = genesis.Arena(stream=stream)
    other = torch.cuda.Stream()
    for _ in range(3):
        with arena, torch.cuda.stream(other):
            tensor = torch.from_dlpack(arena.empty((64, 64), "float32"))
            tensor.fill_(1)
            assert tensor.device.type == "cuda"
            del tensor
    raises(BufferError, lambda: arena.allocate(10).view)
    interface = arena.empty(10, "int32").__cuda_array_interface__
    assert interface["shape"] == (10,) and interface["stream"] == stream.cuda_stream


def raises(kind: type[BaseException], call: Any, *arguments: Any) -> None:
    try:
        call(*arguments)
    except kind:
        return
    raise AssertionError(f"{call} did not raise {kind}")
