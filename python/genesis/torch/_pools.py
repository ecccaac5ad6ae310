"""Private pools in direct mode, and Genesis as the source of segments of PyTorch's allocator."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Optional, Union

import torch

from .. import _sizes, _tags, options as _options
from . import _enable, _plug, _private_pools

Device = Union[torch.device, int, str, None]


class Pool:
    """Names a private pool in direct mode, for ``torch.cuda.use_mem_pool``, and its ``id`` for
    ``torch.cuda.graph``. Unlike ``torch.cuda.MemPool`` it keeps no memory."""

    #: PyTorch's two numbers for the pool, used by no other.
    id: tuple[int, int]

    def __init__(self) -> None:
        self.id = torch.cuda.graph_pool_handle()


@contextlib.contextmanager
def pool(device: Device = None, *, limit: Optional[_sizes.Size] = None) -> Iterator[Pool]:
    """Within the block, this thread's allocations on ``device`` come from a private pool, separate
    from all others. After the block, when its tensors are freed, its memory returns to the driver
    as soon as memory is released or needed.

    ``limit``, in bytes or as text such as ``"4GB"``, is that of :func:`limit_pool`.
    """
    if not _enable.is_enabled():
        raise RuntimeError(
            "genesis.torch.pool is for direct mode: call genesis.torch.enable() first, or use "
            "torch.cuda.use_mem_pool(genesis.torch.mem_pool())"
        )
    handle = Pool()
    torch.cuda.init()
    index = index_of(device)
    _private_pools.begin(index, handle.id)
    try:
        if limit is not None:
            _private_pools.limit(index, handle.id, limit)
        yield handle
    finally:
        _private_pools.end(index, handle.id)
        _private_pools.release(index, handle.id)


def limit_pool(
    pool: Union[Pool, torch.cuda.MemPool], limit: Optional[_sizes.Size], device: Device = None
) -> None:
    """Limits what is reserved on ``device`` for ``pool``, a :class:`Pool` or a
    ``torch.cuda.MemPool``, as long as it is in use; ``None`` removes the limit. In direct mode.

    The limit counts what the driver has given to the pool, live and free. A request is served from
    the pool's free memory first; if that is in too small pieces it goes back to the driver, unless
    ``torch.cuda.use_mem_pool`` or a graph has used the pool. A request that needs more than the
    limit allows raises ``torch.OutOfMemoryError``, which names the limit. Nothing outside the pool
    is released or refused because of it.
    """
    _private_pools.limit(index_of(device), pool.id, limit)


def pool_usage(
    pool: Union[Pool, torch.cuda.MemPool], device: Device = None
) -> _private_pools.PoolUsage:
    """What ``pool``, which is in use, holds on ``device``, and its limit. In direct mode."""
    return _private_pools.usage(index_of(device), pool.id)


def tag_pool(
    pool: Union[Pool, torch.cuda.MemPool, tuple[int, int]],
    name: str,
    *,
    backup: str = "none",
    device: Device = None,
) -> None:
    """Has the memory of ``pool``, which is in use, paused and resumed with the tag ``name``
    (:func:`genesis.pause`): a pool, or a graph's as ``graph.pool()`` returns it. The empty name:
    with none. In direct mode.

    ``backup`` is that of :func:`genesis.tag`. If a graph was captured from the pool, all of its
    memory comes back where it was, also what no tensor has, so the graph can be replayed.
    """
    names = pool if isinstance(pool, tuple) else pool.id
    _private_pools.tag(index_of(device), names, name, _tags.backup_number(backup))


def index_of(device: Device) -> int:
    """The number of a device; ``None``: of the current one."""
    found = torch.device(device) if isinstance(device, str) else device
    index: Optional[int] = found.index if isinstance(found, torch.device) else found
    return int(torch.cuda.current_device()) if index is None else index


def mem_pool(*, use_on_oom: bool = False, **options: _options.Value) -> torch.cuda.MemPool:
    """A pool of PyTorch's own allocator whose segments come from Genesis.

    For ``torch.cuda.use_mem_pool``. PyTorch keeps its cache, statistics, graphs and
    ``torch.compile``; ``use_on_oom`` is ``torch.cuda.MemPool``'s, ``options`` are those of
    :func:`genesis.torch.enable`, which must not have been called.
    """
    if _enable.is_enabled():
        raise RuntimeError(
            "genesis.torch.mem_pool is for PyTorch's own allocator, but genesis.torch.enable() "
            "has replaced it; use genesis.torch.pool()"
        )
    for name in options:
        _options.get(name)
    for name, value in options.items():
        _options.set(name, value)
    return torch.cuda.MemPool(_plug.allocator().allocator(), use_on_oom=use_on_oom)
