"""Who wants to know of PyTorch's memory: the callbacks of ``torch.cuda._gpu_trace``, which CUDA's
sanitizer registers, and the observers of shortages.

PyTorch's own allocator calls them from C++. Here the library calls two functions of this module,
on any thread, while somebody wants to know.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import threading
from pathlib import Path
from typing import Any, Callable

import torch
import torch.cuda._gpu_trace

from .. import _library

_OnBlock = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_OnShortage = ctypes.CFUNCTYPE(
    None, ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t
)

#: ``c10::impl::GPUTrace::haveState``: whether the callbacks were activated.
_IS_ACTIVE = "_ZN3c104impl8GPUTrace9haveStateE"

_lock = threading.Lock()
_observers: list[Callable[[int, int, int, int], Any]] = []


def _on_allocated(address: int) -> None:
    torch.cuda._gpu_trace.MemoryAllocationCallbacks.fire_callbacks(address)


def _on_freeing(address: int) -> None:
    torch.cuda._gpu_trace.MemoryDeallocationCallbacks.fire_callbacks(address)


def _on_shortage(device: int, size: int, total: int, free: int) -> None:
    # Like the callbacks above, an observer that raises is reported as unraisable.
    for observer in tuple(_observers):
        observer(device, size, total, free)


#: The same for C, which keeps their addresses: they live as long as the process.
_ALLOCATED = _OnBlock(_on_allocated)
_FREEING = _OnBlock(_on_freeing)
_SHORTAGE = _OnShortage(_on_shortage)


def follow_trace() -> None:
    """Has the callbacks of ``torch.cuda._gpu_trace`` called from now on, if they are active."""
    if _is_trace_active():
        _set_trace()


def activate_trace(original: Callable[[], None]) -> Callable[[], None]:
    """``torch._C._activate_gpu_trace``, which also activates what the allocator has to call."""

    def activate() -> None:
        original()
        _set_trace()

    return activate


def attach(observer: Callable[[int, int, int, int], Any]) -> None:
    """``torch._C._cuda_attach_out_of_memory_observer``. If ``observer`` raises, that is reported as
    unraisable, and the request still ends with ``torch.OutOfMemoryError``."""
    torch.cuda.init()
    _detach_at_exit()
    with _lock:
        _observers.append(observer)
    address = ctypes.cast(_SHORTAGE, ctypes.c_void_p)
    _library.function("genesis_torch_shortage_observer_set")(address)


@functools.cache
def _detach_at_exit() -> None:
    """Nobody can be called once the interpreter has ended."""
    atexit.register(_library.function("genesis_torch_trace_set"), None, None)
    atexit.register(_library.function("genesis_torch_shortage_observer_set"), None)


def _set_trace() -> None:
    _detach_at_exit()
    _library.function("genesis_torch_trace_set")(
        ctypes.cast(_ALLOCATED, ctypes.c_void_p), ctypes.cast(_FREEING, ctypes.c_void_p)
    )


def _is_trace_active() -> bool:
    """Returns true if the callbacks were activated before, as ``TORCH_CUDA_SANITIZER=1`` does."""
    library = Path(torch.__file__).parent / "lib" / "libc10.so"
    try:
        return ctypes.c_bool.in_dll(ctypes.CDLL(str(library)), _IS_ACTIVE).value
    except (OSError, ValueError):  # another PyTorch: somebody has registered a callback
        trace = torch.cuda._gpu_trace
        return bool(trace.MemoryAllocationCallbacks.callback_list)
