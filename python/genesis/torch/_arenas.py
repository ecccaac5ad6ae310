"""Scratch inside a step, in direct mode: private pools with arenas."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator

import torch

from .. import _library
from . import _enable, _private_pools
from ._pools import Device, Pool, index_of


class _Arenas(Pool):
    """A pool with arenas, which keeps its memory as long as the object lives."""

    def __init__(self, device: int) -> None:
        super().__init__()
        _private_pools.create_arena(device, self.id)
        # The driver may be gone by then.
        weakref.finalize(self, _release, device, self.id).atexit = False


def _release(device: int, pool: _private_pools.PoolId) -> None:
    # A forked child has none.
    with contextlib.suppress(_library.GenesisError):
        _private_pools.release(device, pool)


class _Idle(threading.local):
    """The pools of a thread that no block of code is using."""

    def __init__(self) -> None:
        self.by_device: dict[int, list[_Arenas]] = {}


_idle = _Idle()


@contextlib.contextmanager
def arena(device: Device = None) -> Iterator[Pool]:
    """Within the block, this thread's allocations on ``device`` are scratch: they lie one behind
    the other in arenas, apart from everything else, and leave no holes there.

    An arena is empty, all at once, when the last of its tensors is gone. A tensor that outlives the
    block is safe: it keeps its arena, and nothing else, until it is gone. Each thread keeps its
    arenas for the next block, until ``torch.cuda.empty_cache`` or a shortage of memory.
    """
    if not _enable.is_enabled():
        raise RuntimeError(
            "genesis.torch.arena is for direct mode: call genesis.torch.enable() first"
        )
    torch.cuda.init()
    index = index_of(device)
    idle = _idle.by_device.setdefault(index, [])
    pool = idle.pop() if idle else _Arenas(index)
    _private_pools.begin(index, pool.id)
    try:
        yield pool
    finally:
        _private_pools.end(index, pool.id)
        _private_pools.release(index, pool.id)
        idle.append(pool)
