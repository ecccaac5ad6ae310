"""Streams that are created and destroyed while PyTorch works on them. PyTorch's own last for ever;
those of other libraries do not. The driver gives the handle of a destroyed stream to the next one
at once, while the old one's work is still queued. Streams advance only when something waits for
them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Optional

import torch

import genesis
from support import simcuda
from support.program import OUT_OF_MEMORY, program
from support.streams import Stream, touch

MIB = 1 << 20
BYTES = 64 * MIB
#: This many blocks of that size do not fit into the device.
ROUNDS = 60
#: CUDA's capture mode that forbids unsafe calls only in the capturing thread.
THREAD_LOCAL = 1
library = ctypes.CDLL(str(genesis.library_path()))


def manual(
    modes: Sequence[str], identified: str = "auto", **more: Any
) -> Callable[[Callable[[], Any]], Callable[..., None]]:
    own = {"GENESIS_STREAM_IDS": identified, "SIMCUDA_MEMORY": "2GiB"}
    env = {"SIMCUDA_PROGRESS": "manual", "SIMCUDA_DEVICES": "2", **own}
    return program(modes=modes, env=env, **more)


def forget(stream: Stream) -> None:
    """Announces the end of a stream, as a program does before it destroys one."""
    assert library.genesis_stream_forget(ctypes.c_void_p(stream.cuda_stream)) == 0


def rounds(before_the_end: Optional[Callable[[Stream], None]] = None) -> int:
    """Makes streams, queues work on them and destroys them. Returns the number of their handles."""
    handles = set()
    for index in range(ROUNDS):
        stream = Stream()
        handles.add(stream.cuda_stream)
        with torch.cuda.stream(stream):
            # Three sizes in turn, so that memory also moves.
            tensor = torch.zeros(BYTES * (1 + index % 3), dtype=torch.uint8, device="cuda")
            tensor.add_(1)
            del tensor
        if before_the_end is not None:
            before_the_end(stream)
        stream.destroy()
    return len(handles)


@manual(modes=("two_symbols",))
def test_genesis_malloc_asks_which_stream_a_handle_is() -> None:
    assert rounds() < ROUNDS
    assert simcuda.calls("cuStreamGetId") >= ROUNDS


@manual(modes=("native",))
def test_genesis_torch_malloc_by_name_asks_nothing() -> None:
    plug = torch.cuda.memory.CUDAPluggableAllocator(
        str(genesis.library_path()), "genesis_torch_malloc", "genesis_free"
    )
    torch.cuda.memory.change_current_allocator(plug)
    assert rounds(forget) < ROUNDS
    assert genesis.stats(0).allocations == ROUNDS
    # One for each end, because other callers may know the stream by its number; none for requests.
    assert simcuda.calls("cuStreamGetId") == ROUNDS


@manual(modes=("two_symbols", "enabled"), identified="on")
def test_with_the_option_the_hooks_ask_too() -> None:
    assert rounds() < ROUNDS
    assert simcuda.calls("cuStreamGetId") >= ROUNDS


@manual(modes=("enabled",))
def test_the_hooks_are_told_of_the_end() -> None:
    assert rounds(forget) < ROUNDS
    assert simcuda.calls("cuStreamGetId") == ROUNDS, "for each end, none for a request"


@manual(modes=("two_symbols",), identified="off")
def test_without_numbers_the_end_is_told() -> None:
    assert rounds(forget) < ROUNDS
    assert simcuda.calls("cuStreamGetId") == 0


@manual(modes=("enabled",), violations=True)
def test_the_hooks_believe_that_streams_last() -> None:
    """As PyTorch's own allocator does: the end of a stream must be announced."""
    rounds()
    assert simcuda.violations() > 0


@manual(modes=("enabled",))
def test_pytorchs_own_streams_cost_no_call() -> None:
    for _ in range(ROUNDS):
        with torch.cuda.stream(torch.cuda.Stream()):
            tensor = torch.zeros(MIB, dtype=torch.uint8, device="cuda")
        tensor.record_stream(torch.cuda.current_stream())
        del tensor
    assert simcuda.calls("cuStreamGetId") == 0


def leave_free(stream: torch.cuda.Stream) -> None:
    """Leaves memory free on `stream`, which has nothing to do afterwards."""
    with torch.cuda.stream(stream):
        tensors = [torch.zeros(BYTES, dtype=torch.uint8, device="cuda") for _ in range(8)]
        del tensors
    stream.synchronize()


def needed_on_the_default_stream() -> int:
    """Makes tensors of less than `leave_free` leaves; returns how many bytes more are held."""
    before = torch.cuda.memory_reserved()
    tensors = [torch.empty(BYTES, dtype=torch.uint8, device="cuda") for _ in range(3)]
    more = torch.cuda.memory_reserved() - before
    del tensors
    return more


@manual(modes=("enabled",))
def test_what_pytorchs_own_streams_leave_free_is_lent_once_they_are_idle() -> None:
    leave_free(torch.cuda.Stream())
    records = simcuda.calls("cuEventRecord")
    assert needed_on_the_default_stream() <= BYTES
    assert simcuda.calls("cuStreamQuery") > 0
    assert simcuda.calls("cuEventRecord") == records


@manual(modes=("enabled",))
def test_streams_of_others_are_never_asked_whether_they_are_idle() -> None:
    """When more is needed, and all goes back, the stream is gone."""
    stream = Stream()
    leave_free(stream)
    assert needed_on_the_default_stream() == 3 * BYTES
    stream.destroy()
    tensor = torch.empty(4 * BYTES, dtype=torch.uint8, device="cuda")
    del tensor
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0
    assert simcuda.calls("cuStreamQuery") == 0


@manual(modes=("enabled",), identified="on")
def test_recorded_streams_that_end() -> None:
    """They must exist until the tensor is freed, and no longer."""
    main = torch.cuda.current_stream()
    for device in (0, 1) * (ROUNDS // 2):
        tensor = torch.zeros(BYTES, dtype=torch.uint8, device="cuda")
        torch.zeros(1, device="cuda:1")
        stream = Stream(device)
        stream.wait_stream(main)
        touch(tensor, stream)
        tensor.record_stream(stream)
        del tensor
        stream.destroy()


def allocate(size: int, stream: Stream) -> int:
    library.genesis_malloc.restype = ctypes.c_void_p
    handle = ctypes.c_void_p(stream.cuda_stream)
    address = library.genesis_malloc(ctypes.c_size_t(size), stream.device.index, handle)
    assert address
    return int(address)


def free(address: int, device: int) -> None:
    library.genesis_free(ctypes.c_void_p(address), ctypes.c_size_t(0), device, None)


@manual(modes=("enabled",))
def test_a_c_caller_beside_pytorch() -> None:
    """Only its streams are asked for their numbers. Each reuses what the other has freed."""
    for index in range(ROUNDS):
        stream = Stream(index % 2)
        address = allocate(BYTES, stream)
        fill(address, stream)
        free(address, stream.device.index)
        stream.destroy()
        torch.zeros(BYTES, dtype=torch.uint8, device=stream.device)
    assert simcuda.calls("cuStreamGetId") == ROUNDS


def fill(address: int, stream: Stream) -> None:
    """Queues work of the C caller."""
    set_memory = ctypes.CDLL(None).cudaMemsetAsync
    handle = ctypes.c_void_p(stream.cuda_stream)
    code = set_memory(ctypes.c_void_p(address), 0, ctypes.c_size_t(BYTES), handle)
    assert code == 0, code


@manual(modes=("preloaded",))
def test_a_preloaded_c_caller_beside_pytorch() -> None:
    """The stream-ordered calls of a library that makes and destroys its streams."""
    cuda = ctypes.CDLL(None)
    for index in range(ROUNDS):
        stream = Stream(index % 2)
        handle, address = ctypes.c_void_p(stream.cuda_stream), ctypes.c_void_p()
        code = cuda.cudaMallocAsync(ctypes.byref(address), ctypes.c_size_t(BYTES), handle)
        assert code == 0 and address.value, code
        fill(address.value, stream)
        assert cuda.cudaFreeAsync(address, handle) == 0
        stream.destroy()
        torch.zeros(BYTES, dtype=torch.uint8, device=stream.device).add_(1)
    assert genesis.stats(0).allocations >= ROUNDS // 2
    assert simcuda.calls("cuStreamGetId") == 0


def run_short() -> None:
    """Leaves memory behind that is reusable only after a wait, and asks for more than is left."""
    side = torch.cuda.Stream()
    tensor = torch.zeros(8 * BYTES, dtype=torch.uint8, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    touch(tensor, side)
    tensor.record_stream(side)
    del tensor
    try:
        torch.empty(28 * BYTES, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return
    raise AssertionError("nothing may be waited for while a stream is captured")


@manual(modes=("enabled",), says=OUT_OF_MEMORY)
def test_a_c_callers_capture_is_not_spoiled() -> None:
    """It announces its capture; in another thread PyTorch runs short on the same device."""
    cuda, stream = ctypes.CDLL(None), Stream()
    handle, graph = ctypes.c_void_p(stream.cuda_stream), ctypes.c_void_p()
    address = allocate(BYTES, stream)
    assert library.genesis_capture_begin(0) == 0
    assert cuda.cudaStreamBeginCapture(handle, THREAD_LOCAL) == 0
    fill(address, stream)
    with ThreadPoolExecutor() as thread:
        thread.submit(run_short).result()
    fill(address, stream)
    assert cuda.cudaStreamEndCapture(handle, ctypes.byref(graph)) == 0 and graph.value
    assert library.genesis_capture_end(0) == 0
    # Waiting no longer spoils a capture, so the request is served.
    torch.empty(28 * BYTES, dtype=torch.uint8, device="cuda")
    assert cuda.cudaGraphDestroy(graph) == 0
    free(address, 0)
    stream.destroy()
