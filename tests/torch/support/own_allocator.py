"""A pluggable allocator of a test's own."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Driver:
    """A pluggable allocator of the test's: `cudaMalloc` and `cudaFree`, counted."""

    def __init__(self) -> None:
        cuda = ctypes.CDLL(None)
        self.live: dict[int, int] = {}
        self.streams: set[int] = set()
        self.refuses = False

        def allocate(size: int, _device: int, stream: int) -> int:
            pointer = ctypes.c_void_p()
            if self.refuses or cuda.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)):
                return 0
            assert pointer.value is not None
            self.live[pointer.value] = size
            self.streams.add(stream or 0)
            return pointer.value

        def free(pointer: int, size: int, _device: int, _stream: int) -> None:
            assert self.live.pop(pointer) == size
            assert cuda.cudaFree(ctypes.c_void_p(pointer)) == 0

        pointer_type, size_type = ctypes.c_void_p, ctypes.c_ssize_t
        self.functions = (
            ctypes.CFUNCTYPE(pointer_type, size_type, ctypes.c_int, pointer_type)(allocate),
            ctypes.CFUNCTYPE(None, pointer_type, size_type, ctypes.c_int, pointer_type)(free),
        )
        addresses = [ctypes.cast(function, pointer_type).value for function in self.functions]
        self.allocator = torch._C._cuda_customAllocator(*addresses)

    def has(self, tensor: torch.Tensor) -> bool:
        address = tensor.data_ptr()
        return any(start <= address < start + size for start, size in self.live.items())


#: The library calls its functions as long as the process lives.
DRIVERS: list[Driver] = []


@contextmanager
def driver() -> Iterator[Driver]:
    DRIVERS.append(Driver())
    yield DRIVERS[-1]
