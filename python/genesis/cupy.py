"""CuPy's arrays in Genesis's memory::

    import genesis.cupy
    genesis.cupy.enable()

CuPy hands its current device and stream to the allocator when an array is made, and nothing when
it goes: the library knows the rest from the address. Memory goes back through a function of the
library itself, so arrays may outlive the interpreter.
"""

from __future__ import annotations

import functools
from typing import Any

import cupy

from . import _blocks, _library, _statistics, options as _options
from ._library import OutOfMemoryError


def enable(**options: _options.Value) -> None:
    """From now on CuPy's arrays lie in Genesis's memory. What CuPy's own pool has cached goes back
    to the driver; arrays that are there stay where they are.

    ``options`` are Genesis's, as for :func:`genesis.torch.enable`. May be called at any time, and
    again. Raises ``TypeError`` for a name that is no option's, and what the library says of a wrong
    value or environment.
    """
    _options.set_all(options)
    cupy.cuda.set_allocator(allocate)
    cupy.get_default_memory_pool().free_all_blocks()


def disable() -> None:
    """Arrays lie in the memory of CuPy's own pool again; those that are there stay."""
    cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)


def is_enabled() -> bool:
    """Whether the arrays of this thread lie in Genesis's memory."""
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
    """Work on ``stream``, other than the one that was current when ``array`` was made, uses it.
    Once it is gone, its memory is not reused before the work queued on ``stream`` by then has
    completed; the stream must exist until the array is gone."""
    _blocks.record_stream(array.data.mem.ptr, _blocks.handle_of(stream))


# What is told apart by its stream's handle is small, and handles are used again.
@functools.lru_cache(maxsize=4096)
def _allocator(stream: int) -> Any:
    """CuPy's allocator for one stream: what it keeps for its functions is the stream."""
    functions = [_library.address(name) for name in ("genesis_cupy_malloc", "genesis_cupy_free")]
    if None in functions:
        raise NotImplementedError(f"{_library.path()} is older than this package")
    return cupy.cuda.memory.CFunctionAllocator(stream, *functions, None)
