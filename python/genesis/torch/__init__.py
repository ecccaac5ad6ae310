"""Genesis under PyTorch.

===================  ==============================================================================
``enable()``         Genesis *is* PyTorch's allocator (direct mode). Once a process, before CUDA.
``pool()``           in direct mode: a block of code that allocates from a private pool.
``arena()``          in direct mode: a block of code whose allocations are scratch.
``limit_pool()``     limits a private pool; ``pool_usage()`` returns what one holds.
``tag_pool()``       has a private pool, also a graph's, paused with a tag.
``nccl_pool()``      in direct mode: a private pool for buffers of NCCL and RDMA.
``pinned_empty()``   a tensor in pinned memory of Genesis; ``enable_pinned_memory()``: all of it.
``mem_pool()``       PyTorch's allocator stays; Genesis supplies its segments (MemPool mode).
===================  ==============================================================================
"""

from __future__ import annotations

from ._arenas import arena
from ._enable import enable, is_enabled, restore
from ._nccl_pool import NcclPool, nccl_pool
from ._pinned import enable_pinned_memory, pinned_empty
from ._pools import Pool, limit_pool, mem_pool, pool, pool_usage, tag_pool
from ._private_pools import Communication, PoolUsage

__all__ = [
    "Communication",
    "NcclPool",
    "Pool",
    "PoolUsage",
    "arena",
    "enable",
    "enable_pinned_memory",
    "is_enabled",
    "limit_pool",
    "mem_pool",
    "nccl_pool",
    "pinned_empty",
    "pool",
    "pool_usage",
    "restore",
    "tag_pool",
]
