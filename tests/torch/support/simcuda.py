"""The simulated GPU, as tests ask and tell it: functions of the preloaded simcuda."""

from __future__ import annotations

import ctypes

_preloaded = ctypes.CDLL(None)


def is_there() -> bool:
    """Whether this process runs on simcuda."""
    return hasattr(_preloaded, "simcuda_check")


def violations() -> int:
    """How many races and misuses were found so far."""
    check = _preloaded.simcuda_check
    check.restype = ctypes.c_int64
    return int(check())


def violations_text() -> str:
    """They themselves, a line each."""
    read = _preloaded.simcuda_violations
    read.restype, read.argtypes = ctypes.c_size_t, [ctypes.c_char_p, ctypes.c_size_t]
    text = ctypes.create_string_buffer(read(None, 0) + 1)
    read(text, len(text))
    return text.value.decode(errors="replace")


def last_runtime_error() -> int:
    """CUDA's number of the last error of this thread, which it forgets thereby; 0: none."""
    return int(_preloaded.cudaGetLastError())


def calls(name: str) -> int:
    """How often the driver's or the runtime's function ``name`` was called."""
    count = _preloaded.simcuda_calls
    count.restype, count.argtypes = ctypes.c_int64, [ctypes.c_char_p]
    return int(count(name.encode()))


def used_bytes() -> int:
    """Memory that the driver has given, on all devices together."""
    census = _preloaded.simcuda_census
    census.restype, census.argtypes = ctypes.c_int64, [ctypes.c_char_p]
    used = int(census(b"used_bytes"))
    return max(used, 0)  # −1: no call has reached the driver yet
