"""torch_memory_saver's interface, on Genesis's memory.

``from genesis.torch_memory_saver import torch_memory_saver`` has everything that the object of
torch_memory_saver has. :func:`install` has ``import torch_memory_saver`` find this package, for
code that was written for the other, such as SGLang's.

It works in each of these modes:

===================  ==============================================================================
direct mode          after ``genesis.torch.enable()``, whatever ``hook_mode`` is
preloaded            ``hook_mode = "preload"``: the process was started within
                     :func:`configure_subprocess`, or by ``genesis run``
MemPool mode         ``hook_mode = "torch"``: PyTorch's allocator stays, and segments of regions
                     come from Genesis
===================  ==============================================================================
"""

from __future__ import annotations

import sys

from .. import _stand_ins
from .entrypoint import TorchMemorySaver
from .hooks.mode_preload import configure_subprocess

#: The one object of a process.
torch_memory_saver = TorchMemorySaver()


def install() -> None:
    """From now on ``import torch_memory_saver`` imports this package, in this process and in those
    that it starts. Call it before anything imports torch_memory_saver."""
    _stand_ins.refuse_other("torch_memory_saver", sys.modules[__name__])
    _stand_ins.add_folder("torch_memory_saver")


__all__ = ["TorchMemorySaver", "configure_subprocess", "install", "torch_memory_saver"]
