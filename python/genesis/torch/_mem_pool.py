"""``torch.cuda.MemPool`` in direct mode, over Genesis's private pools.

PyTorch's class is made in C++, by a constructor that raises under any pluggable allocator. So
:class:`MemPool` stands in its place wherever it is looked up, and the original class, for code that
imported it earlier, makes objects of this one. ``torch.cuda.use_mem_pool`` and ``torch.cuda.graph``
take only the pool's ``id`` and work unchanged. C++ code that takes a pool as an object, such as
``register_mem_pool`` of a process group, does not take this one.
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from pathlib import Path
from typing import Any, Callable, Optional

import torch

from .. import _library
from . import _memory_history, _plug, _private_pools
from ._private_pools import PoolId

_Segment = dict[str, Any]

#: ``CUDAPluggableAllocator``'s functions to get memory for the current device and stream, and to
#: take it back: as C sees them, the object is their first argument. They are found by name, like
#: PyTorch's exceptions, as is the table by which an object of the class is recognised.
_CLASS = "N5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator"
_ALLOCATE = f"_Z{_CLASS}9raw_allocEm"
_FREE = f"_Z{_CLASS}10raw_deleteEPv"
_TABLE = f"_ZTV{_CLASS}E"
#: The part of the table before the address to which objects point.
_TABLE_PROLOGUE_BYTES = 16

#: Allocators in use, and those that were.
_allocators: list[Any] = []


class MemPool:
    """A private pool of the device that is current when it is made.

    Its memory is apart from all other, and stays cached while the object lives. When that is gone,
    free memory returns to the driver at once, and the memory of tensors that are left once they are
    gone, with the next release of cached memory.

    With ``allocator`` (``CUDAPluggableAllocator.allocator()``), segments come from there. Its
    functions must not throw. With ``use_on_oom``, a request from outside that would fail takes free
    memory of the pool. With ``no_split``, a segment is one block.
    """

    def __init__(
        self,
        allocator: Optional[torch._C._cuda_CUDAAllocator] = None,
        use_on_oom: bool = False,
        no_split: bool = False,
    ) -> None:
        source = None if allocator is None else _source(allocator)
        torch.cuda.init()
        self._device = torch.cuda.current_device()
        self._allocator = allocator
        self._id: PoolId = torch.cuda.graph_pool_handle()
        self._create(bool(no_split), source)
        ending = weakref.finalize(self, _release, self._device, self._id)
        # The driver may be gone by then.
        ending.atexit = False
        if use_on_oom:
            _private_pools.hold(self._device, self._id, lends=True)
            _private_pools.release(self._device, self._id)

    def _create(self, no_split: bool, source: Optional[_private_pools.Source]) -> None:
        _private_pools.create(self._device, self._id, no_split, source)

    @property
    def id(self) -> PoolId:
        """PyTorch's two numbers for the pool, used by no other."""
        return self._id

    @property
    def allocator(self) -> Optional[torch._C._cuda_CUDAAllocator]:
        """The allocator that segments come from; ``None``: Genesis."""
        return self._allocator

    def use_count(self) -> int:
        """How many hold the pool: this object, graphs, and ``use_mem_pool`` while it lasts."""
        return _private_pools.uses(self._device, self._id)

    def snapshot(self, include_traces: bool = True) -> list[_Segment]:
        """The segments of the pool and their blocks, as ``torch.cuda.memory_snapshot`` returns
        them."""
        segments: list[_Segment] = _memory_history.snapshot((*self._id, include_traces))["segments"]
        return segments


def _source(allocator: torch._C._cuda_CUDAAllocator) -> Optional[_private_pools.Source]:
    """The functions of an allocator, for the library to call; ``None`` for Genesis itself, which
    would otherwise wait for itself."""
    if not isinstance(allocator, torch._C._cuda_CUDAAllocator):
        raise TypeError(
            "torch.cuda.MemPool: allocator must be a torch._C._cuda_CUDAAllocator, which "
            f"CUDAPluggableAllocator.allocator() returns, not {allocator!r}"
        )
    this = _this(allocator)
    if this == _this(_plug.allocator().allocator()):
        return None
    allocate, free, table = (_in_torch(name) for name in (_ALLOCATE, _FREE, _TABLE))
    if ctypes.c_uint64.from_address(this).value != table + _TABLE_PROLOGUE_BYTES:
        raise NotImplementedError(
            "torch.cuda.MemPool takes allocators that CUDAPluggableAllocator made, also from C++; "
            "genesis does not know how to call another"
        )
    # It must be there as long as memory is that it has to take back.
    _allocators.append(allocator)
    return this, allocate, free


def _this(allocator: torch._C._cuda_CUDAAllocator) -> int:
    """The C++ object of a Python object that pybind11 made: the word behind the object's head."""
    return ctypes.c_uint64.from_address(id(allocator) + object.__basicsize__).value


def _in_torch(name: str) -> int:
    """The address of a symbol of PyTorch's library."""
    library = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libtorch_cuda.so"))
    return ctypes.addressof(ctypes.c_byte.in_dll(library, name))


def new(_class: type, *arguments: Any, **named: Any) -> MemPool:
    """In place of the original class's ``__new__``."""
    return MemPool(*arguments, **named)


def retention() -> list[tuple[Any, str, Callable[..., Any]]]:
    """Replacements for what later versions of ``torch.cuda.CUDAGraph`` have: a graph retains the
    pools that ``use_mem_pool`` puts into its capture, which no pluggable allocator supports."""
    own = getattr(torch.cuda.CUDAGraph, "pools", None)
    if own is None:
        return []

    def pools(graph: torch.cuda.CUDAGraph) -> list[Any]:
        return [*own(graph), *map(torch.cuda._POOL_HANDLE, _retained.get(graph, ()))]

    return [(torch.cuda.CUDAGraph, "_retain_pool", _retain), (torch.cuda.CUDAGraph, "pools", pools)]


#: The pools that graphs retain beside their own.
_retained: weakref.WeakKeyDictionary[Any, list[PoolId]] = weakref.WeakKeyDictionary()


def _retain(graph: Any, pool: Any) -> None:
    """Holds ``pool``, a pool or its id, until the graph is reset or gone. Raises ``RuntimeError``
    as PyTorch's own does."""
    if pool is None:
        raise RuntimeError("CUDAGraph._retain_pool expected a memory pool")
    pool_id: PoolId = tuple(getattr(pool, "id", pool))
    retained = _retained.setdefault(graph, [])
    if pool_id in retained:
        return
    device = torch.cuda.current_device()
    _private_pools.hold(device, pool_id, lends=False)
    retained.append(pool_id)

    def end() -> None:
        retained.remove(pool_id)
        _release(device, pool_id)

    graph.register_destroy_callback(end)


def _release(device: int, pool: PoolId) -> None:
    # Others may have released the pool more often than they began it; and a forked child has none.
    with contextlib.suppress(_library.GenesisError):
        _private_pools.release(device, pool)
