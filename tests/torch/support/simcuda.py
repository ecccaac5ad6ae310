"""The simulated GPU as tests see and control it: functions of the preloaded simcuda."""

from __future__ import annotations

import ctypes

_preloaded = ctypes.CDLL(None)


def is_there() -> bool:
    """Returns true if this process runs on simcuda."""
    return hasattr(_preloaded, "simcuda_check")


def violations() -> int:
    """The number of races and misuses found so far."""
    check = _preloaded.simcuda_check
    check.restype = ctypes.c_int64
    return int(check())


def violations_text() -> str:
    """The races and misuses found so far, one per line."""
    read = _preloaded.simcuda_violations
    read.restype, read.argtypes = ctypes.c_size_t, [ctypes.c_char_p, ctypes.c_size_t]
    text = ctypes.create_string_buffer(read(None, 0) + 1)
    read(text, len(text))
    return text.value.decode(errors="replace")


def last_runtime_error() -> int:
    """CUDA's number of this thread's last error, which is cleared; 0: none."""
    return int(_preloaded.cudaGetLastError())


def calls(name: str) -> int:
    """The number of calls of the driver's or the runtime's function ``name``."""
    count = _preloaded.simcuda_calls
    count.restype, count.argtypes = ctypes.c_int64, [ctypes.c_char_p]
    return int(count(name.encode()))


def fail(call: str, nth: int, code: int, times: int = 1) -> None:
    """From the ``nth`` call of ``call`` on (1: the very next), ``times`` calls return ``code``;
    of ``@cuEventRecord``, not those under other symbols, such as ``cudaEventRecord``."""
    script = _preloaded.simcuda_fail
    script.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.c_int, ctypes.c_int64]
    failed = script(call.encode(), nth, code, times)
    assert failed == 0, failed


def clear_faults() -> None:
    """The driver is well again."""
    failed = _preloaded.simcuda_faults_clear()
    assert failed == 0, failed


def inconsistency() -> str:
    """What is wrong inside the simulation; "": nothing."""
    read = _preloaded.simcuda_validate
    read.restype = ctypes.c_char_p
    return (read() or b"").decode()


def driver_nanoseconds() -> int:
    """The virtual time of all the driver's calls; −1: no call has reached the driver yet."""
    read = _preloaded.simcuda_driver_nanoseconds
    read.restype = ctypes.c_int64
    return int(read())


def prices() -> str:
    """The name of the price list that this time goes by."""
    read = _preloaded.simcuda_prices
    read.restype = ctypes.c_char_p
    return (read() or b"").decode()


def peak_bytes(device: int) -> int:
    """The most memory of ``device`` in use at once, since the start or :func:`reset_peak`."""
    read = _preloaded.simcuda_peak_bytes
    read.restype = ctypes.c_int64
    return int(read(device))


def reset_peak(device: int) -> None:
    """The peak of ``device`` is what is in use now."""
    code = _preloaded.simcuda_peak_reset(device)
    assert code == 0, code


def has_started() -> bool:
    """Returns true if a call has reached the driver."""
    return census("used_bytes") >= 0


def used_bytes() -> int:
    """Memory that the driver has handed out, on all devices together."""
    return max(census("used_bytes"), 0)


def mappings() -> int:
    """Mappings of physical memory that there are now, on all devices together."""
    return max(census("mappings"), 0)


def census(what: str) -> int:
    """The number of things of this kind that are alive; −1: no call has reached the driver yet."""
    read = _preloaded.simcuda_census
    read.restype, read.argtypes = ctypes.c_int64, [ctypes.c_char_p]
    return int(read(what.encode()))


def hold(stream: int, held: bool, device: int = 0) -> None:
    """Holds a stream back, or lets it go on: it then completes nothing."""
    stop = _preloaded.simcuda_hold
    stop.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_int]
    code = stop(device, stream, held)
    assert code == 0, code
