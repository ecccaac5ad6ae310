"""The real RMM on Genesis's memory. Its runtime is linked into it and does not start on simcuda, so
no bytes are copied here and the current device is told by the stand-in of :mod:`harness.bindings`;
resources, adaptors and buffers need nothing of it."""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from harness import bindings
from harness.program import program

BYTES = 64 << 20
MANUAL = {"SIMCUDA_PROGRESS": "manual"}
#: Objects that live until the process ends.
KEPT: list[object] = []
_simcuda = ctypes.CDLL(None)


def made_stream() -> Any:
    """A stream object of RMM for a stream of simcuda."""
    from rmm.pylibrmm.stream import Stream

    class Handle:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, stream.value or 0

    stream = ctypes.c_void_p()
    assert _simcuda.cudaStreamCreateWithFlags(ctypes.byref(stream), 1) == 0
    return Stream(Handle())


def write(address: int, stream: Any) -> None:
    handle = ctypes.c_void_p(stream.__cuda_stream__()[1])
    size = ctypes.c_size_t(BYTES)
    assert _simcuda.cudaMemsetAsync(ctypes.c_void_p(address), 1, size, handle) == 0


@program()
def test_buffers_lie_in_genesis_and_go_back() -> None:
    bindings.redirect()
    import rmm

    import genesis.rmm

    genesis.rmm.enable(pool_type="Caching")
    stream = made_stream()
    buffers = [rmm.DeviceBuffer(size=1000), rmm.DeviceBuffer(size=BYTES, stream=stream)]
    found = {(one.address, one.size): one.stream for one in genesis.check_memory_leaks()}
    assert found == {
        (buffers[0].ptr, 1000): 0,
        (buffers[1].ptr, BYTES): stream.__cuda_stream__()[1],
    }
    del buffers
    assert genesis.memory_stats().allocated_bytes == 0
    # A buffer is freed on its own stream, so nothing waits.
    assert genesis.memory_stats().active_bytes == 0


@program(env={"SIMCUDA_DEVICES": "2"})
def test_each_device_has_a_resource_of_its_own() -> None:
    bindings.redirect()
    import rmm

    import genesis.rmm

    genesis.rmm.enable()
    assert rmm.mr.get_per_device_resource(1) is genesis.rmm.resource(1)
    assert genesis.rmm.resource() is genesis.rmm.resource(0) is not genesis.rmm.resource(1)
    _simcuda.cudaSetDevice(1)
    assert genesis.rmm.resource() is genesis.rmm.resource(1)
    resource = genesis.rmm.resource()
    address = resource.allocate(BYTES)
    assert genesis.memory_stats(1).allocated_bytes == BYTES
    resource.deallocate(address, BYTES)
    assert genesis.memory_stats(1).allocated_bytes == 0
    genesis.rmm.resource(0).deallocate(genesis.rmm.resource(0).allocate(1), 1)


@program(env=MANUAL)
def test_memory_freed_on_another_stream_waits_for_it() -> None:
    import genesis.rmm

    resource, one, other = genesis.rmm.resource(0), made_stream(), made_stream()
    event = ctypes.c_void_p()
    assert _simcuda.cudaEventCreateWithFlags(ctypes.byref(event), 2) == 0
    handles = [ctypes.c_void_p(stream.__cuda_stream__()[1]) for stream in (one, other)]
    address = resource.allocate(BYTES, one)
    write(address, one)
    assert _simcuda.cudaEventRecord(event, handles[0]) == 0
    assert _simcuda.cudaStreamWaitEvent(handles[1], event, 0) == 0
    write(address, other)
    resource.deallocate(address, BYTES, other)
    stats = genesis.memory_stats()
    assert (stats.allocated_bytes, stats.active_bytes) == (0, BYTES)
    # The first stream may reuse the block only after the other one.
    again = resource.allocate(BYTES, one)
    assert again != address
    write(again, one)
    resource.deallocate(again, BYTES, one)
    assert _simcuda.cudaDeviceSynchronize() == 0


@program(says="genesis: out of memory: |genesis: ", ending="live")
def test_out_of_memory_is_a_memory_error_with_our_line() -> None:
    bindings.redirect()
    import rmm

    import genesis.rmm

    genesis.rmm.enable(memory_limit=BYTES)
    for make in (genesis.rmm.resource().allocate, lambda size: rmm.DeviceBuffer(size=size)):
        try:
            make(2 * BYTES)
        except MemoryError as error:
            assert "out of memory" in str(error) and str(2 * BYTES) in str(error), error
        else:
            raise AssertionError("twice the limit")
    rmm.DeviceBuffer(size=1000)


@program()
def test_rmms_adaptors_work_around_it() -> None:
    bindings.redirect()
    import rmm

    import genesis.rmm

    resource = rmm.mr.StatisticsResourceAdaptor(genesis.rmm.resource())
    rmm.mr.set_current_device_resource(resource)
    buffer = rmm.DeviceBuffer(size=1000)
    assert resource.allocation_counts.current_bytes == 1000
    del buffer
    limited = rmm.mr.LimitingResourceAdaptor(genesis.rmm.resource(), 4096)
    try:
        limited.allocate(5000)
    except MemoryError as error:
        assert "Exceeded memory limit 4096" in str(error)
    else:
        raise AssertionError("5000 of 4096")


@program()
def test_a_buffer_keeps_what_it_needs() -> None:
    bindings.redirect()
    import rmm

    import genesis.rmm

    genesis.rmm.enable()
    kept = rmm.DeviceBuffer(size=1000)
    rmm.mr.set_current_device_resource(rmm.mr.CudaMemoryResource())
    gc.collect()
    del kept
    assert genesis.memory_stats().allocated_bytes == 0


@program()
def test_the_log_of_rmm_itself_can_be_replayed() -> None:
    bindings.redirect()
    import rmm

    import genesis.rmm

    one, other = made_stream(), made_stream()
    with tempfile.TemporaryDirectory() as folder:
        logged = rmm.mr.LoggingResourceAdaptor(
            genesis.rmm.resource(), log_file_name=str(Path(folder, "log.csv"))
        )
        first = logged.allocate(1000, one)
        second = logged.allocate(BYTES)
        logged.deallocate(first, 1000, other)
        logged.deallocate(second, BYTES)
        logged.flush()
        command = genesis.library_path().parent / "genesis"
        replayed = subprocess.run(
            [command, "replay", logged.get_file_name(), "--json", "--warm=0"],
            capture_output=True,
            check=True,
        )
    report = json.loads(replayed.stdout)
    # Two requests, one use on another stream, two frees.
    assert report["calls"] == 5 and report["live_peak_bytes"] == 1000 + BYTES


@program(ending="live", fresh=True)
def test_buffers_may_be_there_at_the_end() -> None:
    bindings.redirect()
    import rmm

    import genesis.rmm

    genesis.rmm.enable()
    KEPT.append(rmm.DeviceBuffer(size=1000))
    KEPT.append(rmm.DeviceBuffer(size=BYTES, stream=made_stream()))
