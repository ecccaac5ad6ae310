"""Arenas, fixed-size pools and memory managers, over memory of a device or of the host::

    arena = genesis.Arena("pageable")
    for batch in batches:
        with arena:
            scratch = numpy.asarray(arena.empty((1024, 1024), "float32"))

They give buffers (:class:`genesis.dlpack.Buffer`): NumPy, PyTorch, CuPy and others make arrays of
them without copies, and host memory is also bytes (``buffer.view``). A buffer keeps its memory
until it and all arrays made of it are gone; what outlives a reset is never overwritten.

Any thread may call them.
"""

from __future__ import annotations

import ctypes
import dataclasses
import weakref
from collections.abc import Mapping
from typing import Any, Optional, Union

from . import _blocks, _library, _sizes, _structs
from .dlpack import Buffer, PartBuffer

#: ``genesis_memory_kind``.
_KINDS = {"device": 0, "pageable": 1, "pinned": 2}

Shape = Union[int, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class ArenaStats:
    """What an arena has."""

    #: Handed out since the last reset, with what alignment took, in bytes.
    used_bytes: int
    #: Held from the heap, in bytes.
    held_bytes: int
    #: The most that was used between two resets, in bytes.
    high_water_bytes: int
    #: The blocks of the heap that it holds.
    chunks: int
    #: How often it was reset.
    resets: int


@dataclasses.dataclass(frozen=True)
class FixedPoolStats:
    """What a fixed-size pool has."""

    #: Blocks handed out.
    live_blocks: int
    #: The most blocks that were handed out at one time.
    peak_live_blocks: int
    #: All blocks, free or not.
    blocks: int
    #: Held from the heap, in bytes.
    held_bytes: int
    #: Requests that were refused because the pool was full.
    refusals: int


@dataclasses.dataclass(frozen=True)
class MemoryManagerStats:
    """What a memory manager has."""

    #: Live blocks of the pools.
    pool_blocks: int
    #: Live blocks of the arena.
    arena_blocks: int
    #: Used of the arena, in bytes.
    arena_used_bytes: int
    #: Held from the heap, in bytes.
    held_bytes: int
    #: Requests that a full pool left to the arena, or to nobody.
    overflows: int


@dataclasses.dataclass(frozen=True)
class Mark:
    """A position of an arena."""

    number: int


class _Object:
    """A handle of the library, and the memory behind it."""

    #: The word in the names of its functions.
    _NAME: str

    def __init__(self, memory: str, device: int, stream: _blocks.Stream) -> None:
        if memory not in _KINDS:
            raise ValueError(f"{memory!r} is no kind of memory: 'device', 'pageable', 'pinned'")
        #: ``"device"``, ``"pageable"`` or ``"pinned"``.
        self.memory = memory
        #: The ordinal of the device.
        self.device = device
        self._stream = stream
        self._place = (memory != "device", device, stream)

    def _create(self, options: ctypes.Structure) -> None:
        options.struct_size = ctypes.sizeof(options)
        use = (_KINDS[self.memory], self.device, _blocks.handle_of(self._stream), 1)
        options.memory = _structs.CMemoryUse(*use)
        handle = ctypes.c_void_p()
        _library.call(f"genesis_{self._NAME}_create", ctypes.byref(options), ctypes.byref(handle))
        self._handle = handle.value
        destroy = _library.function(f"genesis_{self._NAME}_destroy")
        weakref.finalize(self, destroy, self._handle).atexit = False

    def _call(self, verb: str, *arguments: Any) -> None:
        _library.call(f"genesis_{self._NAME}_{verb}", self._handle, *arguments)

    def _figures(self, raw: ctypes.Structure) -> dict[str, int]:
        raw.struct_size = ctypes.sizeof(raw)
        self._call("stats_get", ctypes.byref(raw))
        names = [name for name, *_ in raw._fields_ if name != "struct_size"]
        return {name: getattr(raw, name) for name in names}


class _AnySize(_Object):
    """An object that serves any size."""

    def empty(self, shape: Shape, dtype: Any = "uint8", *, alignment: int = 0) -> Buffer:
        """Memory for an array, for use on the object's stream. Contents are undefined. Raises
        :class:`genesis.LimitReachedError` if there is no room."""

        def make(size: int, buffer: Any) -> None:
            self._call("buffer_create", size, alignment, buffer)

        return PartBuffer(make, shape, dtype, self._place)

    def allocate(self, size: _sizes.Size, *, alignment: int = 0) -> Buffer:
        """``size`` bytes: a number, or text such as ``"64KB"``."""
        return self.empty(_sizes.to_bytes(size), alignment=alignment)


class Arena(_AnySize):
    """Memory that is handed out by adding to a position, and freed all at once.

    ``memory`` is ``"device"``, ``"pageable"`` or ``"pinned"``; memory of a device is reused in the
    order of ``stream``. It takes at least ``chunk_size`` at a time, and holds at most ``limit``.

    ``with arena:`` resets it at the end of the block. A reset does not wait and does not touch what
    buffers and arrays still use: their memory goes back when they are gone.
    """

    _NAME = "arena"

    def __init__(
        self,
        memory: str = "device",
        *,
        device: int = 0,
        stream: _blocks.Stream = None,
        chunk_size: _sizes.Size = "1MB",
        limit: Optional[_sizes.Size] = None,
    ) -> None:
        super().__init__(memory, device, stream)
        options = _structs.CArenaOptions()
        options.chunk_bytes = _sizes.to_bytes(chunk_size)
        options.limit_bytes = 0 if limit is None else _sizes.to_bytes(limit)
        self._create(options)

    def reset(self) -> None:
        """Frees everything, in constant time."""
        self._call("reset")

    def mark(self) -> Mark:
        """The present position, for :meth:`rewind`."""
        raw = _structs.CArenaPosition()
        self._call("mark", ctypes.byref(raw))
        return Mark(raw.number)

    def rewind(self, mark: Mark) -> None:
        """Frees what came after ``mark``; nothing while a buffer or an array of the arena is in
        use. Raises :class:`genesis.InvalidArgumentError` if the mark has ended, by a reset or by a
        rewind to an earlier one."""
        self._call("rewind", _structs.CArenaPosition(mark.number))

    def trim(self) -> None:
        """Gives back what is not in use; after a reset, all."""
        self._call("trim")

    def stats(self) -> ArenaStats:
        """What it has."""
        return ArenaStats(**self._figures(_structs.CArenaStats()))

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_: object) -> None:
        self.reset()


class FixedPool(_Object):
    """Blocks of one size, taken and put back in constant time.

    It begins with ``count`` blocks, and gets ``growth`` more when none is free; with 0 it is full
    then. A block is put back when its buffer and all arrays made of it are gone.
    """

    _NAME = "fixed_pool"

    def __init__(
        self,
        block_size: _sizes.Size,
        count: int = 0,
        *,
        growth: int = 0,
        memory: str = "device",
        device: int = 0,
        stream: _blocks.Stream = None,
        alignment: int = 0,
    ) -> None:
        super().__init__(memory, device, stream)
        #: The size of a block, in bytes.
        self.block_size = _sizes.to_bytes(block_size)
        options = _structs.CFixedPoolOptions()
        options.block_bytes, options.alignment = self.block_size, alignment
        options.count, options.growth = count, growth
        self._create(options)

    def empty(self, shape: Shape, dtype: Any = "uint8") -> Buffer:
        """A block, for an array that may be smaller. Raises :class:`genesis.LimitReachedError` if
        the pool is full, and ``ValueError`` if the array is larger than a block."""

        def make(size: int, buffer: Any) -> None:
            if size > self.block_size:
                raise ValueError(f"{size} bytes in blocks of {self.block_size}")
            self._call("buffer_create", buffer)

        return PartBuffer(make, shape, dtype, self._place)

    def allocate(self) -> Buffer:
        """A block."""
        return self.empty(self.block_size)

    def stats(self) -> FixedPoolStats:
        """What it has."""
        return FixedPoolStats(**self._figures(_structs.CFixedPoolStats()))


class MemoryManager(_AnySize):
    """Pools of a few sizes, and an arena behind them.

    ``tiers`` has sizes and how many blocks there are of each. A request is served by the pool with
    the smallest blocks that are large enough, or by an arena of ``arena_size`` if there is none or
    it is full. All memory is reserved at once. It is freed when the buffer and its arrays are gone.
    """

    _NAME = "memory_manager"

    def __init__(
        self,
        tiers: Mapping[_sizes.Size, int],
        arena_size: _sizes.Size = 0,
        *,
        memory: str = "device",
        device: int = 0,
        stream: _blocks.Stream = None,
    ) -> None:
        super().__init__(memory, device, stream)
        raw = (_structs.CMemoryTier * len(tiers))()
        for tier, (size, count) in zip(raw, tiers.items()):
            tier.block_bytes, tier.count = _sizes.to_bytes(size), count
        options = _structs.CMemoryManagerOptions()
        options.tiers, options.tier_count = raw, len(tiers)
        options.arena_bytes = _sizes.to_bytes(arena_size)
        self._create(options)

    def stats(self) -> MemoryManagerStats:
        """What it has."""
        return MemoryManagerStats(**self._figures(_structs.CMemoryManagerStats()))
