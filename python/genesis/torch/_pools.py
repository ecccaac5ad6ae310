"""Private pools in direct mode, and Genesis as the source of segments of PyTorch's allocator."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Union, cast

import torch

from .. import options as _options
from . import _enable, _plug

_Device = Union[torch.device, int, str, None]


class Pool:
    """Names a private pool in direct mode, for ``torch.cuda.use_mem_pool``, and its ``id`` for
    ``torch.cuda.graph``. Unlike ``torch.cuda.MemPool`` it keeps no memory."""

    #: PyTorch's two numbers for the pool, used by no other.
    id: tuple[int, int]

    def __init__(self) -> None:
        self.id = torch.cuda.graph_pool_handle()


@contextlib.contextmanager
def pool(device: _Device = None) -> Iterator[Pool]:
    """Within the block, this thread's allocations on ``device`` come from a private pool, separate
    from all others. After the block, when its tensors are freed, its memory returns to the driver
    as soon as memory is released or needed."""
    if not _enable.is_enabled():
        raise RuntimeError(
            "genesis.torch.pool is for direct mode: call genesis.torch.enable() first, or use "
            "torch.cuda.use_mem_pool(genesis.torch.mem_pool())"
        )
    handle = Pool()
    with torch.cuda.use_mem_pool(cast(torch.cuda.MemPool, handle), device):
        yield handle


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
