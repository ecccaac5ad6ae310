"""The real CUDA provider of ONNX Runtime on Genesis's memory. Kernels do nothing on simcuda."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import genesis
import genesis.dlpack
from harness.onnx import chain_of_sums
from harness.program import program
from support import simcuda

EXTENT = 1024
BYTES = 4 * EXTENT * EXTENT
MANUAL = {"SIMCUDA_PROGRESS": "manual"}
#: Objects that live until the process ends.
KEPT: list[object] = []


def session(steps: int = 4, **options: Any) -> Any:
    import onnxruntime

    import genesis.onnxruntime

    onnxruntime.set_default_logger_severity(4)
    onnxruntime.preload_dlls(cudnn=False)
    wanted = genesis.onnxruntime.provider_options(**options)
    wanted["enable_cudnn"] = "0"  # it has a runtime of its own, which does not start here
    made = onnxruntime.InferenceSession(
        chain_of_sums(steps, EXTENT), providers=[("CUDAExecutionProvider", wanted)]
    )
    assert made.get_providers()[0] == "CUDAExecutionProvider"
    return made


def infer(made: Any) -> None:
    import numpy

    made.run(None, {"x": numpy.ones((EXTENT, EXTENT), "float32")})


@program()
def test_a_sessions_memory_is_genesis() -> None:
    made = session(pool_type="Caching")
    infer(made)
    stats = genesis.stats()
    assert stats.allocations >= 3 and stats.allocated_bytes.peak >= 3 * BYTES
    # The provider has no other memory.
    assert simcuda.used_bytes() == stats.reserved_bytes.current
    infer(made)
    assert genesis.stats().misses == stats.misses
    del made
    assert genesis.memory_stats().allocated_bytes == 0


@program()
def test_memory_is_of_the_stream_that_the_session_computes_on() -> None:
    import numpy

    made = session()
    binding = made.io_binding()
    binding.bind_cpu_input("x", numpy.ones((EXTENT, EXTENT), "float32"))
    binding.bind_output("y", "cuda", 0)
    made.run_with_iobinding(binding)
    (result,) = binding.get_outputs()
    found = {one.address: one.stream for one in genesis.check_memory_leaks()}
    assert found[result.data_ptr()] == 0 and set(found.values()) == {0}
    del result, binding, made


@program(env=MANUAL)
def test_what_a_session_lets_go_of_serves_other_streams_behind_it() -> None:
    made = session(memory_limit=8 * BYTES)
    stream, runtime = ctypes.c_void_p(), ctypes.CDLL(None)
    assert runtime.cudaStreamCreateWithFlags(ctypes.byref(stream), 1) == 0
    for _ in range(4):
        infer(made)
        buffers = [genesis.dlpack.Buffer(BYTES, stream=stream.value) for _ in range(4)]
        for one in buffers:
            address, size = ctypes.c_void_p(one.data_ptr), ctypes.c_size_t(BYTES)
            assert runtime.cudaMemsetAsync(address, 1, size, stream) == 0
        del one, buffers
    assert genesis.stats().cross_stream_reuses + genesis.stats().driver_memory_calls > 0
    runtime.cudaDeviceSynchronize()
    del made


@program()
def test_sessions_on_several_threads() -> None:
    made = [session() for _ in range(2)]
    threads = [threading.Thread(target=infer, args=(one,)) for one in made * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del threads, thread
    made.clear()


@program(env={"SIMCUDA_DEVICES": "2"})
def test_memory_is_of_the_sessions_device() -> None:
    made = session(device=1)
    infer(made)
    assert genesis.stats(1).allocated_bytes.peak >= 3 * BYTES
    del made
    assert genesis.memory_stats(1).allocated_bytes == 0
    genesis.dlpack.Buffer(1)
    genesis.empty_cache()


@program(says="genesis: out of memory: ")
def test_out_of_memory_fails_the_run_and_no_more() -> None:
    made = session(memory_limit=BYTES)
    try:
        infer(made)
    except Exception as error:
        assert "p != nullptr" in str(error), error
    else:
        raise AssertionError("more than one matrix in the memory of one")
    genesis.cuda.set_memory_fraction(1.0)
    genesis.options.set("memory_limit", None)
    infer(made)
    del made


@program(ending="live")
def test_wrong_devices_and_options_are_refused() -> None:
    import genesis.onnxruntime

    for arguments, kind in (({"pool_typ": "x"}, TypeError), ({"device": -1}, ValueError)):
        try:
            genesis.onnxruntime.provider_options(**arguments)
        except kind:
            continue
        raise AssertionError(arguments)


@program(ending="live", fresh=True)
def test_a_session_may_be_there_at_the_end() -> None:
    KEPT.append(session())
    infer(KEPT[0])
