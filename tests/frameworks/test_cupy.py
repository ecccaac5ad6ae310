"""The real CuPy on Genesis's memory. Its runtime is simcuda's, so kernels do nothing; allocations,
streams and copies are real."""

from __future__ import annotations

import functools
import sys
import threading

import genesis
from harness.program import program as any_program
from support import simcuda

program = functools.partial(any_program, imports=("harness.cupy_on_simcuda", "cupy"))

BYTES = 64 << 20
MANUAL = {"SIMCUDA_PROGRESS": "manual"}
#: Objects that live until the process ends.
KEPT: list[object] = []


def live() -> list[genesis.Allocation]:
    return genesis.detailed_memory_stats(0).get_large_allocations()


@program()
def test_arrays_lie_in_genesis_and_go_back() -> None:
    import cupy

    import genesis.cupy

    before = cupy.zeros(1000, "uint8")
    genesis.cupy.enable(pool_type="Caching")
    assert genesis.cupy.is_enabled() and genesis.options.get("pool_type") == "Caching"
    array = cupy.zeros((1024, 1024), "float32")
    assert [(one.address, one.size) for one in live()] == [(array.data.ptr, array.nbytes)]
    view = array[10:20]
    del array
    assert genesis.memory_stats().allocated_bytes == 4 << 20
    del view
    assert genesis.memory_stats().allocated_bytes == 0
    again = cupy.empty((1024, 1024), "float32")
    assert genesis.stats().hits == 1
    pool = cupy.get_default_memory_pool()
    assert pool.used_bytes() == 1024  # `before`
    del before, again
    pool.free_all_blocks()


@program()
def test_empty_arrays_cost_nothing() -> None:
    import cupy

    import genesis.cupy

    genesis.cupy.enable()
    array = cupy.empty((0, 5))
    assert array.data.ptr == 0 and live() == []
    cupy.zeros(1)


@program()
def test_memory_is_of_the_current_stream() -> None:
    import cupy

    import genesis.cupy

    genesis.cupy.enable()
    side = cupy.cuda.Stream(non_blocking=True)
    main_array = cupy.empty(BYTES, "uint8")
    with side:
        side_array = cupy.empty(BYTES, "uint8")
    streams = {one.address: one.stream for one in live()}
    assert streams == {main_array.data.ptr: 0, side_array.data.ptr: side.ptr}


@program(env={"CUPY_CUDA_PER_THREAD_DEFAULT_STREAM": "1"})
def test_the_threads_own_default_stream() -> None:
    import cupy

    import genesis.cupy

    genesis.cupy.enable()
    array = cupy.empty(BYTES, "uint8")
    assert [one.stream for one in live()] == [2]
    del array


@program(env={"SIMCUDA_DEVICES": "2"})
def test_memory_is_of_the_current_device() -> None:
    import cupy

    import genesis.cupy

    genesis.cupy.enable()
    with cupy.cuda.Device(1):
        array = cupy.empty(BYTES, "uint8")
    assert genesis.memory_stats(1).allocated_bytes == BYTES
    assert array.device.id == 1
    del array
    assert genesis.memory_stats(1).allocated_bytes == 0
    cupy.empty(1)


def hand_over(steps: int, record: bool) -> None:
    """Arrays are made on a side stream and read on the main one, without the host waiting."""
    import cupy

    import genesis.cupy

    genesis.cupy.enable()
    side, main = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    with main:
        results = [cupy.empty(BYTES, "uint8") for _ in range(steps)]
    for result in results:
        with side:
            batch = cupy.empty(BYTES, "uint8")
            batch.data.memset_async(1, BYTES, side)
        main.wait_event(side.record())
        result.data.copy_from_device_async(batch.data, BYTES, main)
        if record:
            genesis.cupy.record_stream(batch, main)
        del batch  # the main stream may still read it; the side stream makes the next
    main.synchronize()


@program(env=MANUAL)
def test_a_recorded_stream_is_waited_for() -> None:
    hand_over(steps=4, record=True)


@program(env=MANUAL, violations=True)
def test_without_it_memory_is_reused_while_it_is_read() -> None:
    hand_over(steps=4, record=False)


@program(env=MANUAL)
def test_another_stream_reuses_memory_behind_the_first() -> None:
    import cupy

    import genesis.cupy

    genesis.cupy.enable(memory_limit=2 * BYTES)
    for _ in range(8):
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            arrays = [cupy.empty(BYTES, "uint8") for _ in range(2)]
            for array in arrays:
                array.data.memset_async(1, BYTES, stream)
        del array, arrays, stream  # the stream is gone before the next one's first request


@program(env={"SIMCUDA_MEMORY": "1GiB"}, says="genesis: out of memory: ")
def test_out_of_memory_is_cupys_error_with_our_line() -> None:
    import cupy

    import genesis.cupy

    genesis.cupy.enable()
    array = cupy.empty(BYTES, "uint8")
    try:
        cupy.empty(2 << 30, "uint8")
    except cupy.cuda.memory.OutOfMemoryError as error:
        assert f"allocated so far: {BYTES:,} bytes" in str(error)
        assert isinstance(error.__cause__, genesis.OutOfMemoryError)
    else:
        raise AssertionError("2 GiB of 1 GiB")
    cupy.empty(BYTES, "uint8")
    del array


@program()
def test_wrong_options_change_nothing() -> None:
    import cupy

    import genesis.cupy

    for options, kind in (({"pool_typ": "x"}, TypeError), ({"pool_type": "x"}, ValueError)):
        try:
            genesis.cupy.enable(**options)
        except kind:
            assert not genesis.cupy.is_enabled()
        else:
            raise AssertionError(options)
    genesis.cupy.enable()
    cupy.empty(1)


@program()
def test_for_a_part_of_the_program() -> None:
    import cupy

    import genesis.cupy

    def elsewhere() -> None:
        seen.append(genesis.cupy.is_enabled())

    seen: list[bool] = []
    with cupy.cuda.using_allocator(genesis.cupy.allocate):
        cupy.empty(1000)
        assert genesis.cupy.is_enabled()
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert seen == [False] and not genesis.cupy.is_enabled()
    genesis.cupy.enable()
    genesis.cupy.disable()
    cupy.empty(1000)
    assert genesis.stats().allocations == 1
    cupy.get_default_memory_pool().free_all_blocks()


@program()
def test_beneath_cupys_own_pool() -> None:
    import cupy

    import genesis.cupy

    pool = cupy.cuda.MemoryPool(genesis.cupy.allocate)
    with cupy.cuda.using_allocator(pool.malloc):
        array = cupy.zeros(1000, "uint8")
        assert genesis.stats().allocations == 1
        del array
        array = cupy.zeros(1000, "uint8")
        assert genesis.stats().allocations == 1
        del array
    pool.free_all_blocks()


@program()
def test_threads_share_it() -> None:
    import cupy

    import genesis.cupy

    genesis.cupy.enable()

    def work() -> None:
        with cupy.cuda.Stream(non_blocking=True) as stream:
            for size in range(1, 200):
                cupy.empty(size << 12, "uint8").data.memset_async(0, size << 12, stream)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cupy.cuda.Device().synchronize()


@program(ending="live", fresh=True)
def test_arrays_may_outlive_the_interpreter() -> None:
    import cupy

    import genesis.cupy

    genesis.cupy.enable()
    KEPT.append(cupy.zeros(1000))
    with cupy.cuda.Stream() as stream:
        KEPT.append(cupy.zeros(BYTES, "uint8"))
    KEPT.append(stream)
    # At the end modules are freed one by one, this one last.
    sys.kept_until_the_end = cupy.zeros(1000)  # type: ignore[attr-defined]
    assert simcuda.used_bytes() > 0
