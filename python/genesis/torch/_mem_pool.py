"""``torch.cuda.MemPool`` in direct mode, over Genesis's private pools.

PyTorch's class is made in C++, by a constructor that raises under any pluggable allocator. So
:class:`MemPool` stands in its place wherever it is looked up, and the original class, for code that
imported it earlier, makes objects of this one. ``torch.cuda.use_mem_pool`` and ``torch.cuda.graph``
take only the pool's ``id`` and work unchanged. C++ code that takes a pool as an object, such as
``register_mem_pool`` of a process group, does not take this one.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from .. import _library, options as _options
from . import _private_pools
from ._private_pools import Block, PoolId

_Segment = dict[str, Any]


class MemPool:
    """A private pool of the device that is current when it is made.

    Its memory is apart from all other, and stays cached while the object lives. When that is gone,
    free memory returns to the driver at once, and the memory of tensors that are left once they are
    gone, with the next release of cached memory.

    With ``use_on_oom``, a request from outside that would fail takes free memory of the pool.
    """

    def __init__(
        self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False
    ) -> None:
        if allocator is not None or no_split:
            what = "an allocator of its own" if allocator is not None else "no_split"
            raise NotImplementedError(
                f"torch.cuda.MemPool with {what} is not supported after genesis.torch.enable()"
            )
        torch.cuda.init()
        self._device = torch.cuda.current_device()
        self._id: PoolId = torch.cuda.graph_pool_handle()
        _private_pools.hold(self._device, self._id, bool(use_on_oom))
        ending = weakref.finalize(self, _release, self._device, self._id)
        # The driver may be gone by then.
        ending.atexit = False

    @property
    def id(self) -> PoolId:
        """PyTorch's two numbers for the pool, used by no other."""
        return self._id

    @property
    def allocator(self) -> Any:
        """The allocator that segments come from; ``None`` for Genesis."""
        return None

    def use_count(self) -> int:
        """How many hold the pool: this object, graphs, and ``use_mem_pool`` while it lasts."""
        return _private_pools.uses(self._device, self._id)

    def snapshot(self, include_traces: bool = True) -> list[_Segment]:
        """The segments of the pool and their blocks, in the form of ``torch.cuda.memory_snapshot``;
        without the history, which ``include_traces`` stands for."""
        blocks = _private_pools.blocks(self._device, self._id)
        return list(_segments(self._device, self._id, blocks))


def new(_class: type, *arguments: Any, **named: Any) -> MemPool:
    """In place of the original class's ``__new__``."""
    return MemPool(*arguments, **named)


def _release(device: int, pool: PoolId) -> None:
    # Others may have released the pool more often than they began it.
    with contextlib.suppress(_library.InvalidArgumentError):
        _private_pools.release(device, pool)


def _segments(device: int, pool: PoolId, blocks: list[Block]) -> Iterator[_Segment]:
    is_expandable = _options.get("pool_type") == "Elastic"
    for (address, size), group in itertools.groupby(blocks, lambda block: block.segment):
        parts = list(group)
        live = [block for block in parts if block.is_live]
        active = [block for block in parts if block.state_name != "inactive"]
        yield {
            "device": device,
            "address": address,
            "total_size": size,
            "allocated_size": sum(block.bytes for block in live),
            "active_size": sum(block.bytes for block in active),
            "requested_size": sum(block.requested_bytes for block in live),
            "stream": parts[0].stream,
            "segment_type": "small" if parts[0].is_small else "large",
            "segment_pool_id": pool,
            "is_expandable": is_expandable,
            "frames": [],
            "blocks": [
                {
                    "address": block.address,
                    "size": block.bytes,
                    "requested_size": block.requested_bytes,
                    "state": block.state_name,
                    "frames": [],
                }
                for block in parts
            ],
        }
