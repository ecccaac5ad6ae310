"""PyTorch's pinned memory from Genesis's pool.

PyTorch has one allocator of pinned memory for CUDA, an object of C++ that copies ask about every
pinned tensor. Genesis takes part in it (``genesis_torch_pinned_install``), so that tensors of both
kinds live side by side, and a tensor's memory is not reused before the copies that PyTorch has
queued from or to it are complete.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any, Union

import torch

from .. import _library

#: ``c10::DeviceType::CUDA``.
_CUDA = 1
#: How many virtual functions the allocator has, by the version of PyTorch. The ones before those
#: that are new are the same.
_SLOTS = {(2, 11): 14, (2, 12): 14, (2, 13): 14, (2, 14): 20, (2, 15): 20}


def pinned_empty(
    *size: Union[int, tuple[int, ...]], dtype: Any = None, **options: Any
) -> torch.Tensor:
    """``torch.empty(*size, dtype=dtype, pin_memory=True)`` in Genesis's pinned memory: its size is
    not rounded to a power of two, and once the tensor is gone its memory serves any other.

    Copies with ``non_blocking=True`` need no care: PyTorch tells of their streams. Work that it
    does not know of, such as a kernel of one's own that reads the tensor, is told of by
    :func:`genesis.cpu.record_stream`, or waited for.
    """
    _install()
    torch.cuda.init()
    serve_next = _library.function("genesis_torch_pinned_next")
    serve_next(1)
    try:
        return torch.empty(*size, dtype=dtype, pin_memory=True, **options)
    finally:
        serve_next(0)


def enable_pinned_memory(enabled: bool = True) -> None:
    """Has PyTorch take all pinned memory from Genesis: ``tensor.pin_memory()``,
    ``DataLoader(pin_memory=True)``, ``pin_memory=True`` of any function. With ``False`` it takes
    its own again. Tensors keep the memory that they have.

    During the capture of a CUDA graph PyTorch serves requests itself, because graphs keep what they
    used. ``torch.cuda.host_memory_stats()`` counts PyTorch's own memory only;
    ``genesis.cpu.memory_stats(pinned=True)`` has Genesis's.

    Raises ``RuntimeError`` with a version of PyTorch whose allocator is not known.
    """
    _install()
    _library.function("genesis_torch_pinned_serve")(bool(enabled))


@functools.cache
def _install() -> None:
    """Takes part in PyTorch's allocator; once a process."""
    if torch.version.cuda is None:
        raise RuntimeError("genesis.torch: this PyTorch was built without CUDA")
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    slots = _SLOTS.get((version[0], version[1]))
    if slots is None:
        known = ", ".join(f"{major}.{minor}" for major, minor in sorted(_SLOTS))
        raise RuntimeError(
            "genesis.torch: the allocator of pinned memory is known of PyTorch "
            f"{known}, and this is {torch.__version__}"
        )
    libraries = Path(torch.__file__).parent / "lib"
    get = ctypes.CDLL(str(libraries / "libtorch_cpu.so"))[
        "_ZN2at16getHostAllocatorEN3c1010DeviceTypeE"
    ]
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.c_int8]
    handle_of = ctypes.CDLL(str(libraries / "libc10_cuda.so"))["_ZNK3c104cuda10CUDAStream6streamEv"]
    # PyTorch's library for CUDA is what registers the allocator.
    ctypes.CDLL(str(libraries / "libtorch_cuda.so"))
    _library.call(
        "genesis_torch_pinned_install",
        get(_CUDA),
        slots,
        ctypes.cast(handle_of, ctypes.c_void_p),
    )
