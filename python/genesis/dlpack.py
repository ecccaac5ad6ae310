"""Genesis's memory for every package that takes DLPack's tensors::

    buffer = genesis.dlpack.Buffer((1024, 1024), "float32", stream=stream)
    tensor = torch.from_dlpack(buffer)
    array = cupy.from_dlpack(buffer)

The memory is freed when the buffer and all tensors made from it are gone. The library counts them,
so tensors may outlive the buffer and the interpreter.
"""

from __future__ import annotations

import ctypes
import math
import re
import weakref
from typing import Any, Callable, Optional, Union

from . import _blocks, _library

_CUDA = 2
_HOST = 1

#: ``kDLUInt``.
UNSIGNED = 1

#: ``DLDataTypeCode``, and the letter in NumPy's type strings or ``None``.
_KINDS = {
    "int": (0, "i"),
    "uint": (UNSIGNED, "u"),
    "float": (2, "f"),
    "bfloat": (4, None),
    "complex": (5, "c"),
    "bool": (6, "b"),
}
_NAME = re.compile(r"([a-z]+)(\d*)")

#: Letters of the module ``struct`` for elements of 1, 2, 4 and 8 bytes; ``x`` stands for none.
_FORMATS: dict[str, Any] = {"int": "bhiq", "uint": "BHIQ", "float": "xefd", "bool": "?"}

#: Special streams of ``__dlpack__``.
_LEGACY, _NO_SYNCHRONISATION = 1, -1


class Buffer:
    """Memory on ``device`` for an array of ``shape`` and ``dtype``, to be written on ``stream``.

    ``dtype`` is a name such as ``"float32"``, or a NumPy or PyTorch type; ``stream`` a handle or a
    stream of CuPy, Numba, PyTorch or RMM. Contents are undefined. Raises
    :class:`genesis.OutOfMemoryError` when memory is short.

    A package that makes a tensor from it names the stream on which it will use the tensor. That
    stream then waits for the work queued on ``stream``, and the memory is not reused before that
    stream's own work is complete. It must exist until the memory is freed.
    """

    def __init__(
        self,
        shape: Union[int, tuple[int, ...]],
        dtype: Any = "uint8",
        *,
        device: int = 0,
        stream: _blocks.Stream = None,
    ) -> None:
        self._describe(shape, dtype, device, stream)
        handle = ctypes.c_void_p()
        _library.call(
            "genesis_dlpack_buffer_create", self.nbytes, device, self.stream, ctypes.byref(handle)
        )
        self._own(handle, _blocks.backend() == "host")

    def _describe(
        self, shape: Union[int, tuple[int, ...]], dtype: Any, device: int, stream: _blocks.Stream
    ) -> None:
        """What it is before it has memory."""
        #: The extents of the array.
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        #: The ordinal of the device.
        self.device = device
        #: The handle of the stream.
        self.stream = _blocks.handle_of(stream)
        self._stream_owner = stream  # kept alive: tensors made later wait for it
        self._kind, self._bits = _parsed(dtype)
        if any(extent < 0 for extent in self.shape):
            raise ValueError(f"{self.shape} is no shape")
        #: The size, in bytes.
        self.nbytes = math.prod(self.shape) * self._bits // 8

    def _own(self, handle: ctypes.c_void_p, is_on_host: bool) -> None:
        """Takes over a buffer of the library."""
        self._handle = handle.value
        self._is_on_host = is_on_host
        release = _library.function("genesis_dlpack_buffer_release")
        weakref.finalize(self, release, self._handle).atexit = False

    @property
    def data_ptr(self) -> int:
        """The address; 0 for an empty buffer."""
        return _library.function("genesis_dlpack_buffer_data_get")(self._handle) or 0

    def record_stream(self, stream: _blocks.Stream) -> None:
        """Records that work on ``stream`` uses the memory. The stream must exist until the memory
        is freed."""
        _library.call(
            "genesis_dlpack_buffer_record_stream", self._handle, _blocks.handle_of(stream)
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_HOST, 0) if self._is_on_host else (_CUDA, self.device)

    def __dlpack__(
        self,
        *,
        stream: Optional[int] = None,
        max_version: Optional[tuple[int, int]] = None,
        dl_device: Optional[tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> Any:
        """Returns a tensor, as the Python array API standard defines it."""
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the memory is on {self.__dlpack_device__()}, not {dl_device}")
        if copy:
            raise BufferError("the memory cannot be copied")
        if stream == 0:
            raise ValueError("stream 0 is ambiguous: 1 is the legacy default one, 2 the thread's")
        if stream != _NO_SYNCHRONISATION and self.__dlpack_device__()[0] == _CUDA:
            self._used_on(_LEGACY if stream is None else stream)
        versioned = max_version is not None and max_version[0] >= 1
        tensor = ctypes.c_void_p()
        _library.call(
            "genesis_dlpack_tensor_create",
            self._handle,
            _KINDS[self._kind][0],
            self._bits,
            1,
            len(self.shape),
            (ctypes.c_int64 * len(self.shape))(*self.shape),
            versioned,
            ctypes.byref(tensor),
        )
        return capsule(tensor, _NAME_OF_VERSIONED if versioned else None)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self._is_on_host:
            raise AttributeError("__cuda_array_interface__")
        interface = self._array_interface("__cuda_array_interface__")
        return {**interface, "stream": self.stream or _LEGACY}

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """For NumPy, if the memory is the host's."""
        if not self._is_on_host:
            raise AttributeError("__array_interface__")
        return self._array_interface("__array_interface__")

    def _array_interface(self, name: str) -> dict[str, Any]:
        letter = _KINDS[self._kind][1]
        if letter is None:
            raise AttributeError(name)
        return {
            "shape": self.shape,
            "typestr": f"{'|' if self._bits == 8 else '<'}{letter}{self._bits // 8}",
            "data": (self.data_ptr, False),
            "strides": None,
            "version": 3,
        }

    @property
    def view(self) -> memoryview:
        """The bytes, without a copy; they keep the buffer. Raises ``BufferError`` unless the memory
        is the host's."""
        if not self._is_on_host:
            raise BufferError(f"the memory is on device {self.device}")
        if not self.nbytes:
            return memoryview(bytearray())
        held = (ctypes.c_ubyte * self.nbytes).from_address(self.data_ptr)
        held.owner = self  # type: ignore[attr-defined]
        return memoryview(held).cast("B")

    def __buffer__(self, flags: int, /) -> memoryview[Any]:
        """The buffer protocol, from Python 3.12 on: the array's elements in its shape. NumPy asks
        for it first. Raises ``BufferError`` unless the memory is the host's and the array one that
        a ``memoryview`` can describe; then :attr:`view` has the bytes, and NumPy asks for more."""
        bytes_ = self.view
        try:
            letter = _FORMATS[self._kind][(self._bits // 8).bit_length() - 1]
            array: memoryview[Any] = bytes_.cast(letter, self.shape)
        except (LookupError, TypeError, ValueError):
            raise BufferError(f"a memoryview cannot describe {self!r}") from None
        return array

    def __repr__(self) -> str:
        dtype = self._kind if self._kind == "bool" else f"{self._kind}{self._bits}"
        return f"Buffer({self.shape}, {dtype!r}, device={self.device}, stream={self.stream:#x})"

    def _used_on(self, stream: int) -> None:
        """Makes ``stream`` wait for the buffer's own stream, and reuse wait for ``stream``."""
        _library.call("genesis_stream_wait", self.device, stream, self.stream)
        self.record_stream(stream)


class PartBuffer(Buffer):
    """A :class:`Buffer` in memory of an arena, a pool or a manager, which make it."""

    def __init__(
        self,
        make: Callable[[int, Any], None],
        shape: Union[int, tuple[int, ...]],
        dtype: Any,
        place: tuple[bool, int, _blocks.Stream],
    ) -> None:
        is_on_host, device, stream = place
        self._describe(shape, dtype, device, stream)
        handle = ctypes.c_void_p()
        make(self.nbytes, ctypes.byref(handle))
        self._own(handle, is_on_host or _blocks.backend() == "host")


def _parsed(dtype: Any) -> tuple[str, int]:
    """The kind and the bits of ``dtype``."""
    name = str(getattr(dtype, "__name__", dtype)).rpartition(".")[2].rstrip("_")
    match = _NAME.fullmatch(name)
    if match is None or match[1] not in _KINDS or (match[1] == "bool") == bool(match[2]):
        raise TypeError(f"{dtype!r} is no type of elements such as 'float32'")
    bits = int(match[2] or 8)
    if bits not in (8, 16, 32, 64, 128):
        raise TypeError(f"{dtype!r}: elements have 8 to 128 bits")
    return match[1], bits


def capsule(tensor: ctypes.c_void_p, name: Optional[bytes] = None) -> Any:
    """A ``DLManagedTensor`` as Python passes it, or with ``name`` a tensor of another kind."""
    name = name or _NAME_OF_TENSOR
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
    destroy = _library.address("genesis_dlpack_capsule_destroy")
    return make(tensor, ctypes.cast(ctypes.c_char_p(name), ctypes.c_void_p), destroy)


_NAME_OF_TENSOR, _NAME_OF_VERSIONED = b"dltensor", b"dltensor_versioned"
for _name in (_NAME_OF_TENSOR, _NAME_OF_VERSIONED):
    # Capsules keep only the address of their name, and may outlive this module.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_name))
