"""In place of ``vllm.cumem_allocator``, the C module under vLLM's ``CuMemAllocator``.

PyTorch's allocator gets the segments of a pool by ``my_malloc`` and gives them back by ``my_free``,
two functions of a library with the name that vLLM looks for. Each segment is a block of Genesis's
with one handle of memory to itself, under the tag that vLLM has set. vLLM is told of it, keeps its
*handle* (device, bytes, address and a number), and asks for its memory to go and to come back:

=======================================  ==============================================
vLLM                                     the block
=======================================  ==============================================
``my_malloc``, then ``python_malloc``    ``genesis_torch_malloc_alone``, under its tag
``python_unmap_and_release``             ``genesis_block_pause``
``python_create_and_map``                ``genesis_block_resume``
``my_free``, after ``python_free``       ``genesis_block_release``
=======================================  ==============================================

vLLM copies contents itself. Where its own module ends in an error of the driver's, these functions
raise, with nothing changed; what is done already is not done again.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import traceback
from typing import Any, Callable, Optional

from .. import _library, _structs, _tags
from ..torch import _enable

#: Device, bytes, address, and a number that only vLLM's own module needs.
Handle = tuple[int, int, int, int]
Malloc = Callable[[Handle], None]
Free = Callable[[int], Handle]

_FILE_NAME = "cumem_allocator-genesis.so"
_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
#: What vLLM's memory is called where vLLM does not say.
_DEFAULT_TAG = "default"

_functions: Optional[tuple[Malloc, Free]] = None


def init_module(python_malloc: Malloc, python_free: Free) -> None:
    """From now on ``python_malloc`` is told of each segment, and ``python_free`` of its end."""
    global _functions
    if not callable(python_malloc) or not callable(python_free):
        raise TypeError("Both arguments must be callables")
    start()
    _functions = python_malloc, python_free


def python_unmap_and_release(_device: int, _bytes: int, address: int, _number: int) -> None:
    """Returns the memory of a segment to the driver."""
    _library.call("genesis_block_pause", address)


def python_create_and_map(_device: int, _bytes: int, address: int, _number: int) -> None:
    """Brings the memory of a segment back, to its address."""
    _library.call("genesis_block_resume", address)


def start() -> None:
    """Loads the library, so that vLLM finds it among those of the process."""
    if _enable.is_enabled():
        raise RuntimeError(
            "genesis.vllm is for PyTorch's own allocator, but genesis.torch.enable() has replaced "
            "it; use genesis.tag, genesis.pause and genesis.resume"
        )
    _load()


@functools.cache
def _load() -> None:
    path = _library.path().with_name(_FILE_NAME)
    if not path.is_file():
        raise _library.LibraryNotFoundError(f"{path} is not there, which vLLM is to load")
    set_functions = ctypes.CDLL(str(path)).genesis_cumem_functions_set
    set_functions(_on_malloc, _on_free)
    # Whatever is freed once Python has ended goes with the process.
    atexit.register(set_functions, None, None)


def _allocate(size: int, device: int, stream: Optional[int]) -> int:
    """``my_malloc``. Once it has raised, ctypes would return anything."""
    try:
        return _told(size, device, stream)
    except BaseException:
        traceback.print_exc()
        return 0


def _told(size: int, device: int, stream: Optional[int]) -> int:
    """The address of a new segment, of which vLLM is told; 0 if memory is short."""
    start()
    if _functions is None:
        raise RuntimeError("vllm.cumem_allocator.init_module was not called")
    malloc = _functions[0]
    with _tags.tag(_tag_of(malloc)):
        address = _library.function("genesis_torch_malloc_alone")(size, device, stream)
    if not address:
        return 0
    try:
        malloc((device, _bytes_of(address), address, 0))
    except BaseException:
        _library.call("genesis_block_release", address)
        raise
    return int(address)


def _free(address: int, _size: int, _device: int, _stream: Optional[int]) -> None:
    """``my_free``."""
    try:
        # vLLM no longer knows memory that it has trimmed.
        with contextlib.suppress(KeyError):
            if _functions is not None:
                _functions[1](address)
    finally:
        _library.call("genesis_block_release", address)


def _tag_of(malloc: Malloc) -> str:
    """vLLM's current tag. Its allocator does not pass it, but ``malloc`` is one of its methods."""
    allocator: Any = getattr(malloc, "__self__", None)
    return str(getattr(allocator, "current_tag", "") or _DEFAULT_TAG)


def _bytes_of(address: int) -> int:
    info = _structs.CBlockInfo()
    _library.call("genesis_block_info_get", address, ctypes.byref(info))
    return int(info.allocated_bytes)


#: As the library calls them. They live as long as it does.
_on_malloc, _on_free = _ALLOCATE(_allocate), _FREE(_free)
