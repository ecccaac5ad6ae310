"""The library's private pools, as PyTorch names them: by a device and two numbers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from .. import _library, _sizes, _structs, _tags

PoolId = tuple[int, int]
#: Addresses of an argument and of the functions that get memory and take it back.
Source = tuple[int, int, int]

#: Addresses of the functions that are called when memory is mapped and unmapped.
Registrar = tuple[int, int]

_LIVE = 0
#: Bits of the driver's handle types.
_POSIX, _FABRIC = 1, 8
#: PyTorch's words for the states of a block.
_STATES = ("active_allocated", "active_pending_free", "inactive")


@dataclass(frozen=True)
class PoolUsage:
    """What a private pool holds."""

    #: The most that may be reserved, in bytes; ``None``: no limit.
    limit_bytes: Optional[int]
    #: What the driver has given to the pool, live and free, in bytes.
    reserved_bytes: int
    #: What is live in it, in bytes of blocks.
    live_bytes: int
    #: How many requests the limit has stopped.
    refusals: int


@dataclass(frozen=True)
class Communication:
    """How the memory of a pool for NCCL and RDMA is made."""

    #: Blocks are multiples of so many bytes.
    granularity_bytes: int
    #: Whether handles can be shared by file descriptor, within the machine.
    has_file_descriptors: bool
    #: Whether they can be shared over a fabric, with other machines.
    has_fabric: bool
    #: Whether network cards can reach the memory: GPUDirect RDMA.
    is_rdma: bool
    #: How many other devices of the process can access it.
    peer_count: int


@dataclass(frozen=True)
class Block:
    """A block of a private pool."""

    #: Its first byte.
    address: int
    #: The bytes asked for; 0 unless it is live.
    requested_bytes: int
    #: Its size.
    bytes: int
    #: The handle of the stream it was allocated on.
    stream: int
    #: What it is: the number of a ``genesis_block_state``.
    state: int
    #: Whether its memory is for blocks of at most 1 MiB.
    is_small: bool
    #: Start and size of the contiguous memory around it.
    segment: tuple[int, int]

    @property
    def is_live(self) -> bool:
        """Whether it is handed out."""
        return self.state == _LIVE

    @property
    def state_name(self) -> str:
        """Its state in PyTorch's words."""
        return _STATES[self.state]


def create(device: int, pool: PoolId, keeps_whole: bool, source: Optional[Source]) -> None:
    """Makes the pool and counts a use. With ``keeps_whole``, a segment is one block; segments come
    from ``source`` if there is one. Raises ``InvalidArgumentError`` if the pool is held."""
    raw = None if source is None else ctypes.byref(_structs.CPoolSource(*source))
    _library.call("genesis_private_pool_create", device, _c(pool), int(keeps_whole), raw)


def create_arena(device: int, pool: PoolId) -> None:
    """Makes a pool whose blocks are kept as by the strategy Arena, and counts a use."""
    _library.call("genesis_private_pool_arena_create", device, _c(pool))


def create_communication(device: int, pool: PoolId, registrar: Optional[Registrar]) -> None:
    """Makes a pool for NCCL and RDMA, and counts a use."""
    raw = None if registrar is None else ctypes.byref(_structs.CPoolRegistrar(None, *registrar))
    _library.call("genesis_private_pool_communication_create", device, _c(pool), raw)


def communication(device: int, pool: PoolId) -> Communication:
    """How the memory of such a pool is made."""
    raw = _structs.CPoolCommunication()
    _library.call("genesis_private_pool_communication_get", device, _c(pool), ctypes.byref(raw))
    return Communication(
        granularity_bytes=raw.granularity_bytes,
        has_file_descriptors=bool(raw.handle_types & _POSIX),
        has_fabric=bool(raw.handle_types & _FABRIC),
        is_rdma=bool(raw.is_rdma),
        peer_count=raw.peer_count,
    )


def function(pool: PoolId) -> int:
    """The address of a function of a ``CUDAPluggableAllocator`` that allocates from the pool of the
    device it is called for, until :func:`release_function`."""
    address = ctypes.c_void_p()
    _library.call("genesis_torch_pool_function_get", _c(pool), ctypes.byref(address))
    assert address.value is not None
    return address.value


def release_function(pool: PoolId) -> None:
    """Ends the use of the pool's function."""
    _library.call("genesis_torch_pool_function_release", _c(pool))


def hold(device: int, pool: PoolId, lends: bool) -> None:
    """Counts a use of the pool, until :func:`release`; with ``lends``, its free memory serves
    requests from outside that would otherwise fail."""
    _library.call("genesis_private_pool_hold", device, _c(pool), int(lends))


def begin(device: int, pool: PoolId) -> None:
    """From now on this thread's requests come from the pool, and from no graph; counts a use."""
    _library.call("genesis_private_pool_begin", device, _c(pool))


def end(device: int, pool: PoolId) -> None:
    """Ends :func:`begin`; the use lasts until :func:`release`."""
    _library.call("genesis_private_pool_end", device, _c(pool))


def release(device: int, pool: PoolId) -> None:
    """Ends a use of the pool; the last returns its memory to the driver."""
    _library.call("genesis_private_pool_release", device, _c(pool))


def tag(device: int, pool: PoolId, name: str, backup: int) -> None:
    """Has the pool's memory paused with the tag ``name``, until its last use ends; what is kept is
    the ``genesis_backup`` of that number."""
    _library.call("genesis_private_pool_tag_set", device, _c(pool), name.encode(), backup)


def uses(device: int, pool: PoolId) -> int:
    """How many uses there are."""
    count = ctypes.c_uint64()
    _library.call("genesis_private_pool_uses_get", device, _c(pool), ctypes.byref(count))
    return count.value


def limit(device: int, pool: PoolId, limit: Optional[_sizes.Size]) -> None:
    """Limits what is reserved for the pool, until its last use ends; ``None`` removes the limit."""
    _library.call("genesis_private_pool_limit_set", device, _c(pool), _tags.limit_bytes(limit))


def usage(device: int, pool: PoolId) -> PoolUsage:
    """What the pool holds. Raises ``InvalidArgumentError`` if it is not held."""
    raw = _structs.CPoolUsage()
    _library.call("genesis_private_pool_usage_get", device, _c(pool), ctypes.byref(raw))
    return PoolUsage(
        limit_bytes=_tags.limit_of(raw.limit_bytes),
        reserved_bytes=raw.reserved_bytes,
        live_bytes=raw.live_bytes,
        refusals=raw.refusals,
    )


def blocks(device: int, pool: PoolId) -> list[Block]:
    """All blocks of the pool, by address. Raises ``InvalidArgumentError`` if it is not held."""
    count = ctypes.c_size_t()
    capacity = 64
    while True:
        array = (_structs.CPoolBlock * capacity)()
        _library.call(
            "genesis_private_pool_blocks_get",
            device,
            _c(pool),
            array,
            capacity,
            ctypes.byref(count),
        )
        if count.value <= capacity:
            return [_block(raw) for raw in array[: count.value]]
        # Other threads may allocate meanwhile.
        capacity = count.value + 64


def live_blocks(device: int, pool: PoolId) -> list[Block]:
    """The live blocks of the pool, by address."""
    return [block for block in blocks(device, pool) if block.is_live]


def place(device: int, pool: PoolId, wanted: Sequence[Block]) -> None:
    """Makes free memory of the pool live where ``wanted`` says: all of it or nothing."""
    array = (_structs.CPoolBlock * len(wanted))()
    for raw, block in zip(array, wanted):
        raw.address, raw.stream = block.address, block.stream
        raw.requested_bytes, raw.allocated_bytes = block.requested_bytes, block.bytes
    _library.call("genesis_private_pool_blocks_place", device, _c(pool), array, len(wanted))


def _c(pool: PoolId) -> _structs.CPoolId:
    return _structs.CPoolId(*pool)


def _block(raw: _structs.CPoolBlock) -> Block:
    return Block(
        address=raw.address,
        requested_bytes=raw.requested_bytes,
        bytes=raw.allocated_bytes,
        stream=raw.stream or 0,
        state=raw.state,
        is_small=bool(raw.is_small),
        segment=(raw.segment_address, raw.segment_bytes),
    )
