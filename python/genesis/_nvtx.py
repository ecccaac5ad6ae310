"""NVTX ranges as annotations.

Each library with NVTX in it (PyTorch's, NCCL, the package ``nvtx``) looks once, at its first
range, which tool the variable ``NVTX_INJECTION64_PATH`` names, and from then on tells that tool
of its ranges, or nobody. A profiler such as Nsight Systems sets it for the programs it starts;
it is left alone then.

Genesis sets it for this process only where its user has asked to see where memory goes: by a
profile, or in so many words. A process that this one starts inherits it, and would load the
library at its own first range, which has no other effect there.
"""

from __future__ import annotations

import os

from . import _library

_VARIABLE = "NVTX_INJECTION64_PATH"
_ENTRY = "InitializeInjectionNvtx2"


def listen() -> bool:
    """From now on libraries that have not used NVTX before tell Genesis of their ranges, unless
    another tool is to be told. Returns whether it is Genesis that they tell."""
    if not _library.has(_ENTRY):
        return False
    own = str(_library.path())
    return os.environ.setdefault(_VARIABLE, own) == own
