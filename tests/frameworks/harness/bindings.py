"""NVIDIA's Python bindings to the runtime, with simcuda's functions in the place of the runtime
that is linked into them (see :mod:`harness.static_runtime`): those that tell RMM which device is
current."""

from __future__ import annotations

import ctypes
from typing import Any

from cuda.bindings import runtime

_simcuda = ctypes.CDLL(None)


def redirect() -> None:
    runtime.cudaGetDevice = _get_device
    runtime.cudaSetDevice = _set_device


def _get_device() -> tuple[Any, int]:
    device = ctypes.c_int()
    return runtime.cudaError_t(_simcuda.cudaGetDevice(ctypes.byref(device))), device.value


def _set_device(device: int) -> tuple[Any]:
    return (runtime.cudaError_t(_simcuda.cudaSetDevice(device)),)
