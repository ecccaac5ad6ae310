"""Genesis's memory as tensors of PyTorch, NumPy, Numba and CuPy."""

from __future__ import annotations

import ctypes
import functools
import gc
from typing import Any

import genesis
import genesis.dlpack
from harness.program import program as any_program

program = functools.partial(any_program, imports=("torch", "numba.cuda"))

BYTES = 64 << 20
MANUAL = {"SIMCUDA_PROGRESS": "manual"}
#: Objects that live until the process ends.
KEPT: list[object] = []
#: Host memory, whose bytes can be read.
HOST = {"GENESIS_BACKEND": "host"}


def live_bytes() -> int:
    gc.collect()
    return genesis.memory_stats().allocated_bytes


@program(env=HOST, ending="live")
def test_a_tensor_keeps_the_memory() -> None:
    import numpy

    buffer = genesis.dlpack.Buffer((4, 5), "float32")
    assert buffer.__dlpack_device__() == (1, 0)
    array = numpy.from_dlpack(buffer)
    array[:] = numpy.arange(20).reshape(4, 5)
    again = numpy.from_dlpack(buffer)
    del buffer, array
    assert live_bytes() == 512
    assert again.shape == (4, 5) and again[3, 4] == 19
    part = again[1:]
    del again
    assert live_bytes() == 512 and part.sum() == 180
    del part
    assert live_bytes() == 0


@program(env=HOST, ending="live")
def test_types_and_shapes() -> None:
    import numpy
    import torch

    names = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64"
    for name in [*names.split(), "complex128", "bool"]:
        for dtype in (name, getattr(torch, name), numpy.dtype(name), numpy.dtype(name).type):
            for shape in ((), (3,), (2, 0, 3), (2, 3, 4)):
                array = numpy.from_dlpack(genesis.dlpack.Buffer(shape, dtype))
                assert (array.dtype, array.shape) == (numpy.dtype(name), shape)
    tensor = torch.from_dlpack(genesis.dlpack.Buffer(7, torch.bfloat16))
    assert (tensor.dtype, tuple(tensor.shape)) == (torch.bfloat16, (7,))
    for wrong in ("float", "float12", "bool8", "text", None):
        try:
            genesis.dlpack.Buffer(1, wrong)
        except TypeError:
            continue
        raise AssertionError(wrong)


@program(env=HOST, ending="live")
def test_a_capsule_that_nobody_takes() -> None:
    buffer = genesis.dlpack.Buffer(1000)
    for version in (None, (0, 8), (1, 0), (1, 3)):
        capsule = buffer.__dlpack__(max_version=version)
        assert ("dltensor_versioned" in repr(capsule)) == (version is not None and version[0] > 0)
        del capsule
    del buffer
    assert live_bytes() == 0


@program()
def test_what_cannot_be_had_is_refused() -> None:
    buffer = genesis.dlpack.Buffer(1000)
    for arguments, kind in (
        ({"copy": True}, BufferError),
        ({"dl_device": (1, 0)}, BufferError),
        ({"stream": 0}, ValueError),
    ):
        try:
            buffer.__dlpack__(**arguments)
        except kind:
            continue
        raise AssertionError(arguments)
    buffer.__dlpack__(dl_device=(2, 0), copy=False, stream=-1)


@program()
def test_a_tensor_of_pytorchs() -> None:
    import torch

    buffer = genesis.dlpack.Buffer((1024, 1024), "float32")
    tensor = torch.from_dlpack(buffer)
    assert tensor.data_ptr() == buffer.data_ptr
    assert (tensor.device, tensor.dtype) == (torch.device("cuda", 0), torch.float32)
    del buffer
    tensor.add_(1)
    assert live_bytes() == 4 << 20
    torch.cuda.synchronize()
    del tensor
    assert live_bytes() == 0


def pass_on(steps: int, buffer_class: Any) -> None:
    """A producer writes on its stream, PyTorch reads on another, and the host does not wait."""
    import torch

    producer = torch.cuda.Stream()
    for _ in range(steps):
        buffer = buffer_class(BYTES, stream=producer)
        assert buffer.stream == producer.cuda_stream
        with torch.cuda.stream(producer):
            torch.from_dlpack(buffer).fill_(1)
        tensor = torch.from_dlpack(buffer)  # on the current stream, which must wait
        del buffer
        tensor.add_(1)
        del tensor  # the producer has the memory again, which must wait for the reader
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


@program(env=MANUAL)
def test_streams_wait_for_each_other() -> None:
    pass_on(4, genesis.dlpack.Buffer)


@program(env=MANUAL, violations=True)
def test_a_consumer_that_does_not_wait_is_caught() -> None:
    class Hasty(genesis.dlpack.Buffer):
        def _used_on(self, stream: int) -> None:
            self.record_stream(stream)

    pass_on(4, Hasty)


@program(env=MANUAL, violations=True)
def test_memory_that_does_not_wait_for_its_consumer_is_caught() -> None:
    class Hasty(genesis.dlpack.Buffer):
        def record_stream(self, stream: Any) -> None:
            pass

    pass_on(4, Hasty)


@program()
def test_an_array_of_numbas() -> None:
    from numba import cuda

    buffer = genesis.dlpack.Buffer((3, 4), "float32")
    array = cuda.as_cuda_array(buffer)
    assert array.shape == (3, 4) and array.device_ctypes_pointer.value == buffer.data_ptr
    del buffer
    assert live_bytes() == 512
    del array
    assert live_bytes() == 0


@any_program(imports=("harness.cupy_on_simcuda", "cupy"))
def test_an_array_of_cupys() -> None:
    import cupy

    buffer = genesis.dlpack.Buffer((3, 4), "float32", stream=cupy.cuda.Stream())
    array = cupy.from_dlpack(buffer)
    assert array.shape == (3, 4) and array.data.ptr == buffer.data_ptr
    del buffer
    assert live_bytes() == 512
    del array
    assert live_bytes() == 0


@program()
def test_streams_of_all_packages() -> None:
    import torch
    from numba import cuda

    class Given:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 7

    stream = torch.cuda.Stream()
    for given, handle in (
        (None, 0),
        (2, 2),
        (Given(), 7),
        (stream, stream.cuda_stream),
        (cuda.default_stream(), 0),
    ):
        assert genesis.dlpack.Buffer(0, stream=given).stream == handle, given
    try:
        genesis.dlpack.Buffer(0, stream="main")
    except TypeError:
        genesis.dlpack.Buffer(1)
        return
    raise AssertionError("a text is no stream")


@program(ending="live", fresh=True)
def test_tensors_may_outlive_the_interpreter() -> None:
    import torch

    tensor = torch.from_dlpack(genesis.dlpack.Buffer(1000))
    # Python never frees it: its storage ends with the process.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(tensor))
    KEPT.append(torch.from_dlpack(genesis.dlpack.Buffer(1000)))
    KEPT.append(genesis.dlpack.Buffer(1000))
    KEPT.append(genesis.dlpack.Buffer(1000).__dlpack__())
