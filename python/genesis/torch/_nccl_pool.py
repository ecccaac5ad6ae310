"""Private pools for buffers of NCCL and RDMA, in direct mode."""

from __future__ import annotations

import ctypes
import hashlib
import sys
from typing import Any, Callable, Optional

import torch
import torch.distributed

from .. import _library, _tags
from . import _enable, _private_pools
from ._mem_pool import MemPool

#: Called with a device, an address and a size in bytes.
Hook = Callable[[int, int, int], object]

#: The functions that the library calls, as long as the process lives.
_functions: list[Any] = []


class NcclPool(MemPool):
    """A pool for buffers of NCCL and RDMA, for ``torch.cuda.use_mem_pool``; :func:`nccl_pool` makes
    it."""

    def __init__(self, register: Optional[Hook], deregister: Optional[Hook], tag: str, backup: int):
        self._hooks = (register, deregister)
        self._tag = tag
        super().__init__()
        if tag:
            _private_pools.tag(self._device, self._id, tag, backup)

    def _create(self, _no_split: bool, _source: Optional[_private_pools.Source]) -> None:
        register, deregister = self._hooks
        registrar = None
        if register is not None or deregister is not None:
            registrar = _registrar(register, deregister)
        _private_pools.create_communication(self._device, self._id, registrar)

    @property
    def communication(self) -> _private_pools.Communication:
        """How the pool's memory is made: what the driver has granted so far."""
        return _private_pools.communication(self._device, self._id)

    @property
    def generation(self) -> int:
        """How often the pool's memory was resumed. What was registered before, other than by
        ``register``, must be registered again when this has changed. 0 without a tag."""
        return _tags.generation(self._tag) if self._tag else 0

    def layout(self) -> list[tuple[int, int, bool]]:
        """The pool's blocks in order: the offset from the first, the size, and whether it is live.
        Equal on all ranks if they have made the same requests in the same order."""
        blocks = _private_pools.blocks(self._device, self._id)
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


def nccl_pool(
    *,
    register: Optional[Hook] = None,
    deregister: Optional[Hook] = None,
    tag: str = "",
    backup: str = "none",
) -> NcclPool:
    """A private pool of the current device for buffers of NCCL and RDMA. In direct mode.

    Each block is one handle of the driver, made as ``ncclMemAlloc`` makes it; it is never moved,
    and nobody else gets its memory while the pool lives. Ranks that make the same requests and
    frees in the same order, on one stream, get blocks at the same offsets.

    ``register(device, address, bytes)`` is called once memory is mapped, and ``deregister`` before
    it is unmapped, in the thread that allocates, pauses or resumes. They must not allocate from the
    pool. If ``register`` raises, the request fails, and the exception goes to ``sys.excepthook``.

    With ``tag`` the memory is paused and resumed with that tag (:func:`genesis.pause`), and comes
    back at its addresses; ``backup`` is that of :func:`genesis.tag`.
    """
    if not _enable.is_enabled():
        raise RuntimeError(
            "genesis.torch.nccl_pool is for direct mode: call genesis.torch.enable()"
        )
    return NcclPool(register, deregister, tag, _tags.backup_number(backup))


def _registrar(register: Optional[Hook], deregister: Optional[Hook]) -> _private_pools.Registrar:
    """Functions of C that call the hooks."""

    def mapped(_data: object, device: int, address: int, size: int) -> int:
        return int(not _call(register, device, address, size))

    def unmapped(_data: object, device: int, address: int, size: int) -> None:
        _call(deregister, device, address, size)

    functions = (_library.PoolMap(mapped), _library.PoolUnmap(unmapped))
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
