"""What PyTorch's CUDA graph trees ask of an allocator, answered from Genesis's private pools.

The graphs of a tree share a pool. Replaying one makes its results live without any request, so
before more is recorded the pool must be told: what was live after that graph's capture, its
*state*, is made live again at the same addresses, and whatever else is live is freed. The trees
(``torch/_inductor/cudagraph_trees.py``) do so by three functions of ``torch._C``, which raise under
any pluggable allocator and are replaced by those here.

A block that becomes live this way must be freed when the tensor over it dies, by PyTorch, which
knows of neither. Two steps make it known:

1. PyTorch's list of blocks. A pluggable allocator's free refuses a pointer that its malloc never
   returned, so a malloc is made to return the block (:func:`_adopt`).
2. The storage. The tensor's storage, made by ``_construct_storage_from_data_pointer``, points at
   the memory without owning it. Python has no function that gives it a deleter, so the two words
   are written into it (:class:`_Storages`).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Optional

import torch

from .. import _library
from . import _private_pools
from ._private_pools import Block, PoolId

#: A request that no device can serve.
_NO_DEVICE_HAS_BYTES = 1 << 62
#: How many words of a storage are searched for its pointer. The object has more.
_WORDS = 8


@dataclass(frozen=True)
class PoolState:
    """The live blocks of a pool at one moment."""

    device: int
    pool: PoolId
    blocks: tuple[Block, ...]


def get_state(device: int, pool: PoolId) -> PoolState:
    """For ``torch._C._cuda_getCheckpointState``: the live blocks of a pool now. Raises
    ``RuntimeError`` if nobody holds the pool."""
    return PoolState(device, pool, tuple(_private_pools.live_blocks(device, pool)))


def has_only(device: int, pool: PoolId, expected: set[int]) -> bool:
    """For ``torch._C._cuda_checkPoolLiveAllocations``: whether exactly the blocks at ``expected``
    are live in a pool. Raises ``RuntimeError`` if nobody holds the pool."""
    return {block.address for block in _private_pools.live_blocks(device, pool)} == expected


def set_state(
    device: int, state: PoolState, stale_storages: Sequence[int], owners: Sequence[int]
) -> None:
    """For ``torch._C._cuda_setCheckpointPoolState``: makes exactly the blocks of ``state`` live.

    ``stale_storages`` are those (as addresses of C++ objects) whose blocks may be freed under them;
    ``owners`` those without a deleter, which from now on own the block that they point at. Raises
    ``RuntimeError``, before anything is changed, if an owner has a deleter, or if more would be
    freed than there are stale storages.
    """
    storages = _storages()
    stale = {storages.pointer(storage): storage for storage in stale_storages}
    own = {storages.pointer(storage): storage for storage in owners}
    for storage in own.values():
        if storages.has_deleter(storage):
            raise RuntimeError("a storage that is to own a block of the state has a deleter")
    live = {block.address: block for block in _private_pools.live_blocks(device, state.pool)}
    wanted = {block.address: block for block in state.blocks}
    freed = [
        address
        for address, block in live.items()
        if address in stale or not _is_same(block, wanted.get(address))
    ]
    if len(stale) < sum(address not in wanted for address in freed):
        raise RuntimeError(
            "blocks are live in the pool that are not in its state: the storages over them must "
            "be passed as stale"
        )
    for address in freed:
        if address in stale:
            torch._C._free_And_Remove_DeleterFn(stale[address])
        else:
            torch._C._cuda_cudaCachingAllocator_raw_delete(address)
        del live[address]
    revived = [block for block in state.blocks if block.address not in live]
    _private_pools.place(device, state.pool, revived)
    _adopt(device, revived)
    for address, storage in own.items():
        if address in wanted:
            storages.give_deleter(storage)


def _is_same(block: Block, other: Optional[Block]) -> bool:
    return other is not None and (block.bytes, block.stream) == (other.bytes, other.stream)


def _adopt(device: int, blocks: Iterable[Block]) -> None:
    """Puts live blocks onto PyTorch's list: as if it had asked for them."""
    announce = _library.function("genesis_torch_adopt_next")
    with torch.cuda.device(device):
        for block in blocks:
            announce(block.address)
            try:
                torch._C._cuda_cudaCachingAllocator_raw_alloc(_NO_DEVICE_HAS_BYTES, block.stream)
            finally:
                announce(None)


class _Storages:
    """PyTorch's ``c10::StorageImpl``, by address.

    Where its pointer is differs between versions of PyTorch, so it is looked for once, in storages
    whose contents are known: the words *pointer, deleter, context*. The context is the pointer
    again if the storage owns its memory, and 0 if it does not.
    """

    def __init__(self) -> None:
        owning = torch.empty(1, dtype=torch.uint8, device="cuda").untyped_storage()
        pointer = owning.data_ptr()
        borrowing = torch._C._construct_storage_from_data_pointer(pointer, owning.device, 1)
        words, borrowed = _words(owning._cdata), _words(borrowing._cdata)
        places = [
            place
            for place in range(_WORDS - 2)
            if (words[place], words[place + 2]) == (pointer, pointer)
            and (borrowed[place], borrowed[place + 2]) == (pointer, 0)
        ]
        if len(places) == 1:
            self._place = places[0]
            self._deleter = words[self._place + 1]
            # Without a context the deleter is never called.
            borrowed[self._place + 1] = self._deleter
        if len(places) != 1 or not torch._C._has_Standard_Deleter(borrowing._cdata):
            raise NotImplementedError(
                f"genesis does not know how PyTorch {torch.__version__} lays out a storage, which "
                "CUDA graph trees need after genesis.torch.enable(); use genesis.torch.mem_pool()"
            )

    def pointer(self, storage: int) -> int:
        """Where its memory begins."""
        return _words(storage)[self._place]

    def has_deleter(self, storage: int) -> bool:
        """Whether its memory is freed with it."""
        return _words(storage)[self._place + 2] != 0

    def give_deleter(self, storage: int) -> None:
        """Lets a storage that borrows its memory own it."""
        words = _words(storage)
        words[self._place + 1] = self._deleter
        words[self._place + 2] = words[self._place]


@functools.cache
def _storages() -> _Storages:
    return _Storages()


def _words(address: int) -> ctypes.Array[ctypes.c_uint64]:
    return (ctypes.c_uint64 * _WORDS).from_address(address)
