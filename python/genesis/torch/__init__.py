"""Genesis under PyTorch.

===================  ==============================================================================
``enable()``         Genesis *is* PyTorch's allocator (direct mode). Once a process, before CUDA.
``pool()``           in direct mode: a block of code that allocates from a private pool.
``mem_pool()``       PyTorch's allocator stays; Genesis supplies its segments (MemPool mode).
===================  ==============================================================================
"""

from __future__ import annotations

from ._enable import enable, is_enabled, restore
from ._pools import Pool, mem_pool, pool

__all__ = ["Pool", "enable", "is_enabled", "mem_pool", "pool", "restore"]
