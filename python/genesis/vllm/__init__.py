"""vLLM's sleep mode on Genesis's memory.

vLLM's ``CuMemAllocator`` is Python over a module in C, which asks the driver for memory. After
:func:`install` it is the same Python over Genesis: what sleeps and wakes is memory of Genesis's
tags, in its statistics, limits, profiles and in ``genesis top``.
"""

from __future__ import annotations

import sys

from .. import _stand_ins
from . import cumem_allocator

_NAME = "vllm.cumem_allocator"


def install() -> None:
    """From now on vLLM's ``CuMemAllocator`` has Genesis's memory, in this process and in those that
    vLLM starts, where it finds Genesis as a plugin of the name ``genesis``. Call it before vLLM
    looks for its allocator. Raises ``RuntimeError`` if vLLM's own module was imported, and after
    ``genesis.torch.enable()``: it is PyTorch's own allocator that gets segments from Genesis."""
    _stand_ins.refuse_other(_NAME, cumem_allocator)
    cumem_allocator.start()
    sys.modules[_NAME] = cumem_allocator
    _stand_ins.add_folder("vllm")


__all__ = ["install"]
