"""The real numba-cuda with Genesis as its memory manager."""

from __future__ import annotations

import functools
import threading
from typing import Any

import genesis
from harness.program import program as any_program
from support import simcuda

program = functools.partial(any_program, imports=("numba.cuda",))

BYTES = 64 << 20
MANUAL = {"SIMCUDA_PROGRESS": "manual"}
#: Objects that live until the process ends.
KEPT: list[object] = []


def live_bytes() -> int:
    return genesis.memory_stats().allocated_bytes


def array(size: int = BYTES) -> Any:
    from numba import cuda

    return cuda.device_array(size, "uint8")


def give_back() -> None:
    from numba import cuda

    cuda.current_context().memory_manager.reset()


@program()
def test_device_arrays_lie_in_genesis_and_go_back() -> None:
    import genesis.numba

    genesis.numba.enable(pool_type="Caching")
    one = array()
    found = genesis.check_memory_leaks()
    assert [(block.address, block.size) for block in found] == [
        (one.device_ctypes_pointer.value, BYTES)
    ]
    view = one[10:]
    del one
    give_back()
    assert live_bytes() == BYTES
    del view
    give_back()
    assert live_bytes() == 0


@program(env={"NUMBA_CUDA_MEMORY_MANAGER": "genesis.numba"})
def test_chosen_by_the_environment() -> None:
    array()
    assert genesis.stats().allocations == 1
    give_back()


@program(env={"SIMCUDA_STORE": "bytes", "SIMCUDA_MEMORY": "1GiB"})
def test_bytes_go_there_and_back() -> None:
    import numpy
    from numba import cuda

    import genesis.numba

    genesis.numba.enable()
    values = numpy.arange(1000)
    stream = cuda.stream()
    there = cuda.to_device(values, stream=stream)
    assert (there.copy_to_host(stream=stream) == values).all()
    stream.synchronize()
    del there
    give_back()


@program()
def test_one_wait_for_many_pieces() -> None:
    from numba.cuda import config

    import genesis.numba

    genesis.numba.enable()
    for _ in range(200):
        array(4096)
    pieces = config.CUDA_DEALLOCS_COUNT + 1
    assert live_bytes() <= (pieces + 1) * 4096
    give_back()
    assert live_bytes() == 0


def reuse(manager: Any) -> None:
    """An array is freed while one stream still writes to it; another stream writes to the next."""
    from numba import cuda

    cuda.set_memory_manager(manager)
    streams = [cuda.stream(), cuda.stream()]
    for step in range(40):
        one = array()
        one.gpu_data.memset(1, stream=streams[step % 2])
        del one
    cuda.synchronize()
    give_back()


@program(env=MANUAL)
def test_memory_is_reused_behind_all_streams() -> None:
    import genesis.numba

    reuse(genesis.numba.Manager)
    assert genesis.stats().hits > 20


@program(env=MANUAL, violations=True)
def test_given_back_at_once_it_would_be_a_race() -> None:
    import genesis.numba

    class Hasty(genesis.numba.Manager):  # type: ignore[misc,name-defined]
        def memalloc(self, size: int) -> Any:
            self._freed.give_back(lambda: None)
            return super().memalloc(size)

    reuse(Hasty)


@program(env={"SIMCUDA_MEMORY": "1GiB"}, says="genesis: out of memory: |genesis: ")
def test_out_of_memory_is_numbas_error_with_our_line() -> None:
    from numba.cuda.cudadrv.driver import CudaAPIError

    import genesis.numba

    genesis.numba.enable()
    for size in (2 << 30, 1 << 50):
        try:
            array(size)
        except CudaAPIError as error:
            assert int(error.code) == 2 and str(size) in str(error).replace(",", ""), error
        else:
            raise AssertionError("more than there is")
    array(1000)
    give_back()


@program(env={"SIMCUDA_MEMORY": "1GiB", "NUMBA_CUDA_MAX_PENDING_DEALLOCS_RATIO": "1.0"})
def test_what_was_let_go_of_serves_a_request_that_would_fail() -> None:
    import genesis.numba

    genesis.numba.enable()
    array(700 << 20)
    array(700 << 20)
    give_back()


@program()
def test_cleanup_can_be_deferred() -> None:
    from numba import cuda

    import genesis.numba

    genesis.numba.enable()
    with cuda.defer_cleanup():
        for _ in range(50):
            array(4096)
        assert live_bytes() == 50 * 4096
    array(4096)
    assert live_bytes() == 4096
    give_back()


@program()
def test_memory_info_counts_the_cache_as_free() -> None:
    from numba import cuda

    import genesis.numba

    genesis.numba.enable(memory_limit="8GiB")
    one = array()
    assert cuda.current_context().get_memory_info() == ((8 << 30) - BYTES, 80 << 30)
    del one
    give_back()
    assert genesis.memory_stats().reserved_bytes >= BYTES
    assert cuda.current_context().get_memory_info() == (8 << 30, 80 << 30)


@program()
def test_sharing_with_another_process_is_refused_in_words() -> None:
    import genesis.numba

    genesis.numba.enable()
    one = array()
    try:
        one.get_ipc_handle()
    except NotImplementedError as error:
        assert "Elastic cannot be shared" in str(error), error
    else:
        raise AssertionError("memory of many handles has no IPC handle")
    del one
    give_back()


@program(env={"SIMCUDA_DEVICES": "2"})
def test_memory_is_of_the_contexts_device() -> None:
    from numba import cuda

    import genesis.numba

    genesis.numba.enable()
    with cuda.gpus[1]:
        one = array()
        assert genesis.memory_stats(1).allocated_bytes == BYTES
        del one
        give_back()
    assert genesis.memory_stats(1).allocated_bytes == 0
    array(1)
    give_back()


@program(ending="live")
def test_too_late_is_said() -> None:
    import genesis.numba

    KEPT.append(array(1000))
    try:
        genesis.numba.enable()
    except RuntimeError as error:
        assert "too late" in str(error)
    else:
        raise AssertionError("Numba has a manager already")


@program()
def test_arrays_may_go_on_a_thread_without_a_context() -> None:
    import genesis.numba

    genesis.numba.enable()
    kept = [array(4096) for _ in range(100)]
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    array(1)
    give_back()
    assert live_bytes() == 0


@program(ending="live", fresh=True)
def test_arrays_may_be_there_at_the_end() -> None:
    from numba import cuda

    import genesis.numba

    genesis.numba.enable()
    KEPT.append(array())
    KEPT.append(cuda.pinned_array(1000))
    KEPT.append(cuda.stream())
    assert simcuda.used_bytes() > 0
