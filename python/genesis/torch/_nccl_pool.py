"""Private pools for buffers of NCCL and RDMA.

In direct mode the pool is an object of our ``torch.cuda.MemPool``, and each block is one handle.
In MemPool mode it is one of PyTorch's own class, whose segments come from the private pool: each
segment is one handle, and PyTorch cuts it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import sys
import weakref
from typing import Any, Callable, Optional

import torch
import torch.distributed

from .. import _library, _prototypes, _tags
from . import _enable, _private_pools
from ._mem_pool import MemPool

#: Called with a device, an address and a size in bytes.
Hook = Callable[[int, int, int], object]

#: The functions that the library calls, as long as the process lives.
_functions: list[Any] = []


class NcclPool:
    """What :func:`nccl_pool` returns has these; it is a ``torch.cuda.MemPool``, too."""

    _device: int
    #: The private pool's two numbers.
    _private: _private_pools.PoolId
    _tag: str

    @property
    def communication(self) -> _private_pools.Communication:
        """How the pool's memory is made: what the driver has granted so far."""
        return _private_pools.communication(self._device, self._private)

    @property
    def generation(self) -> int:
        """How often the pool's memory was resumed. What was registered before, other than by
        ``register``, must be registered again when this has changed. 0 without a tag."""
        return _tags.generation(self._tag) if self._tag else 0

    def layout(self) -> list[tuple[int, int, bool]]:
        """The pool's blocks in order: the offset from the first, the size, and whether it is live.
        Equal on all ranks if they have made the same requests in the same order. In MemPool mode,
        PyTorch's segments."""
        blocks = _private_pools.blocks(self._device, self._private)
        base = blocks[0].address if blocks else 0
        return [(block.address - base, block.bytes, block.is_live) for block in blocks]

    def check_ranks(self, group: Optional[torch.distributed.ProcessGroup] = None) -> None:
        """Raises ``RuntimeError`` on every rank of ``group`` unless the pool has the same blocks on
        all of them. Every rank of the group must call it."""
        text = repr(self.layout())
        own = (torch.distributed.get_rank(group), hashlib.sha256(text.encode()).hexdigest())
        everyone: list[Any] = [None] * torch.distributed.get_world_size(group)
        torch.distributed.all_gather_object(everyone, own, group=group)
        different = sorted(rank for rank, digest in everyone if digest != everyone[0][1])
        if different:
            raise RuntimeError(
                f"the blocks of the pool differ from rank {everyone[0][0]}'s on ranks {different}: "
                "they have not made the same requests and frees in the same order"
            )


class _Direct(NcclPool, MemPool):
    """In direct mode."""

    def __init__(self, register: Optional[Hook], deregister: Optional[Hook], tag: str, backup: int):
        self._hooks = (register, deregister)
        self._tag = tag
        MemPool.__init__(self)
        self._private = self._id
        if tag:
            _private_pools.tag(self._device, self._id, tag, backup)

    def _create(self, _no_split: bool, _source: Optional[_private_pools.Source]) -> None:
        register, deregister = self._hooks
        registrar = None
        if register is not None or deregister is not None:
            registrar = _registrar(register, deregister)
        _private_pools.create_communication(self._device, self._id, registrar)


@functools.cache
def _of_pytorch() -> Any:
    """The class in MemPool mode. In direct mode PyTorch's own cannot be made."""

    class OfPyTorch(NcclPool, torch.cuda.MemPool):  # type: ignore[misc]
        def __init__(self, tag: str, backup: int) -> None:
            torch.cuda.init()
            self._device = torch.cuda.current_device()
            self._private = torch.cuda.graph_pool_handle()
            self._tag = tag
            _private_pools.create_communication(self._device, self._private, None)
            ending = weakref.finalize(self, _end, self._device, self._private)
            # The driver may be gone by then.
            ending.atexit = False
            if tag:
                _private_pools.tag(self._device, self._private, tag, backup)
            free = _library.address("genesis_torch_free")
            allocator = torch._C._cuda_customAllocator(_private_pools.function(self._private), free)
            # It must be there as long as memory is that it has to take back.
            _functions.append(allocator)
            torch.cuda.MemPool.__init__(self, allocator)

    OfPyTorch.__name__ = OfPyTorch.__qualname__ = "NcclPool"
    return OfPyTorch


def _end(device: int, pool: _private_pools.PoolId) -> None:
    # A forked child has neither.
    with contextlib.suppress(_library.GenesisError):
        _private_pools.release_function(pool)
    with contextlib.suppress(_library.GenesisError):
        _private_pools.release(device, pool)


def nccl_pool(
    *,
    register: Optional[Hook] = None,
    deregister: Optional[Hook] = None,
    tag: str = "",
    backup: str = "none",
) -> NcclPool:
    """A private pool of the current device for buffers of NCCL and RDMA, for
    ``torch.cuda.use_mem_pool``.

    Each block is one handle of the driver, made as ``ncclMemAlloc`` makes it; it is never moved,
    and nobody else gets its memory while the pool lives. Ranks that make the same requests and
    frees in the same order, on one stream, get blocks at the same offsets.

    Without :func:`genesis.torch.enable` it is a pool of PyTorch's own allocator, whose segments are
    such blocks; a process group's ``register_mem_pool`` takes it. It has no ``register`` and
    ``deregister``: PyTorch asks for segments while it holds a lock, for which a thread that runs
    Python may wait.

    ``register(device, address, bytes)`` is called once memory is mapped, and ``deregister`` before
    it is unmapped, in the thread that allocates, pauses or resumes. They must not allocate from the
    pool. If ``register`` raises, the request fails, and the exception goes to ``sys.excepthook``.

    With ``tag`` the memory is paused and resumed with that tag (:func:`genesis.pause`), and comes
    back at its addresses; ``backup`` is that of :func:`genesis.tag`.
    """
    if _enable.is_enabled():
        return _Direct(register, deregister, tag, _tags.backup_number(backup))
    if register is not None or deregister is not None:
        raise RuntimeError(
            "genesis.torch.nccl_pool has register and deregister in direct mode only: call "
            "genesis.torch.enable(), or give the pool to a process group's register_mem_pool"
        )
    pool: NcclPool = _of_pytorch()(tag, _tags.backup_number(backup))
    return pool


def _registrar(register: Optional[Hook], deregister: Optional[Hook]) -> _private_pools.Registrar:
    """Functions of C that call the hooks."""

    def mapped(_data: object, device: int, address: int, size: int) -> int:
        return int(not _call(register, device, address, size))

    def unmapped(_data: object, device: int, address: int, size: int) -> None:
        _call(deregister, device, address, size)

    functions = (_prototypes.PoolMap(mapped), _prototypes.PoolUnmap(unmapped))
    _functions.append(functions)
    to_address = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions]
    return to_address[0], to_address[1]


def _call(hook: Optional[Hook], device: int, address: int, size: int) -> bool:
    """Whether the hook has returned. C has no exceptions, so what it raises is only reported."""
    if hook is None:
        return True
    try:
        hook(device, address, size)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return False
    return True
