"""NVTX ranges as annotations.

Each library that uses NVTX (PyTorch's, NCCL, the package ``nvtx``) reads the variable
``NVTX_INJECTION64_PATH`` once, at its first range. From then on it reports its ranges to the tool
that the variable names, or to none. A profiler such as Nsight Systems sets the variable for the
programs that it starts; Genesis then leaves it alone.

Otherwise Genesis sets it, for this process, if a profile is made or the caller asks for it. Child
processes inherit it and load the library at their own first range, without any other effect.
"""

from __future__ import annotations

import os

from . import _library

_VARIABLE = "NVTX_INJECTION64_PATH"
_ENTRY = "InitializeInjectionNvtx2"


def listen() -> bool:
    """Makes libraries that have not used NVTX before report their ranges to Genesis. Returns false
    if another tool gets them."""
    if not _library.has(_ENTRY):
        return False
    own = str(_library.path())
    return os.environ.setdefault(_VARIABLE, own) == own
