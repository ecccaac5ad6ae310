"""What programs of PyTorch's would each do first, done once by the process that they are forked
from: optimizers import TorchDynamo (3 s), CUDA graph trees Inductor (2 s), and the first snapshot
with frames of C++ reads PyTorch's symbols (4 s)."""

from __future__ import annotations

import importlib
import sys
from typing import Any

# Programs do without Triton, as on a machine where it is not installed. Its bindings would report
# at the end of a forked process that what was there before the fork is not freed.
_modules: dict[str, Any] = sys.modules
_modules["triton"] = None

import torch._dynamo  # noqa: E402
import torch._inductor.config  # noqa: E402
from torch._C._profiler import gather_traceback, symbolize_tracebacks  # noqa: E402

# The choice of a benchmarker, made by an import, would start CUDA.
torch._inductor.config.use_experimental_benchmarker = False
importlib.import_module("torch._inductor.cudagraph_trees")
symbolize_tracebacks([gather_traceback(python=False, script=False, cpp=True)])
