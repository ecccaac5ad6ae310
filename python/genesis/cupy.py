"""CuPy's arrays in Genesis's memory::

    import genesis.cupy
    genesis.cupy.enable()

CuPy passes its current device and stream to the allocator when an array is made, and nothing when
the array is freed: the library finds the rest by the address. A function of the library frees the
memory, so arrays may outlive the interpreter.
"""

from __future__ import annotations

import functools
from typing import Any

import cupy

from . import _blocks, _library, _statistics, options as _options
from ._library import OutOfMemoryError


def enable(**options: _options.Value) -> None:
    """From now on CuPy's arrays lie in Genesis's memory. Memory cached by CuPy's own pool returns
    to the driver; existing arrays stay where they are.

    ``options`` are Genesis's, as for :func:`genesis.torch.enable`. May be called at any time, and
    again. Raises ``TypeError`` for an unknown option, and the library's error for a wrong value or
    environment.
    """
    _options.set_all(options)
    cupy.cuda.set_allocator(allocate)
    cupy.get_default_memory_pool().free_all_blocks()


def disable() -> None:
    """From now on arrays lie in CuPy's own pool again; existing arrays stay where they are."""
    cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)


def is_enabled() -> bool:
    """Returns true if new arrays of this thread lie in Genesis's memory."""
    return bool(cupy.cuda.get_allocator() is allocate)


def allocate(size: int) -> Any:
    """Memory on CuPy's current device for use on its current stream: an allocator for
    ``cupy.cuda.set_allocator`` and ``cupy.cuda.using_allocator``.

    Raises ``cupy.cuda.memory.OutOfMemoryError`` when memory is short, with the library's own line
    as its cause.
    """
    memory = _allocator(cupy.cuda.get_current_stream().ptr).malloc(size)
    if size and not memory.ptr:
        try:
            _blocks.raise_last()
        except OutOfMemoryError as error:
            live_bytes = _statistics.stats(cupy.cuda.Device().id).allocated_bytes.current
            raise cupy.cuda.memory.OutOfMemoryError(size, live_bytes) from error
    return memory


def record_stream(array: Any, stream: Any) -> None:
    """Records that work on ``stream`` uses ``array``, which was made on another stream. After the
    array is freed, its memory is not reused until the work then queued on ``stream`` has completed.
    The stream must exist until the array is freed."""
    _blocks.record_stream(array.data.mem.ptr, _blocks.handle_of(stream))


# The driver reuses handles of streams, so few allocators are needed.
@functools.lru_cache(maxsize=4096)
def _allocator(stream: int) -> Any:
    """CuPy's allocator for one stream, whose handle is the parameter that CuPy passes to the
    functions."""
    functions = [_library.address(name) for name in ("genesis_cupy_malloc", "genesis_cupy_free")]
    if None in functions:
        raise NotImplementedError(f"{_library.path()} is older than this package")
    return cupy.cuda.memory.CFunctionAllocator(stream, *functions, None)
