"""What programs of PyTorch's would each do first, done once by the process that they are forked
from: optimizers import TorchDynamo (3 s), CUDA graph trees Inductor (2 s), and the first snapshot
with frames of C++ reads PyTorch's symbols (4 s)."""

from __future__ import annotations

import importlib

import torch._dynamo
import torch._inductor.config
from torch._C._profiler import gather_traceback, symbolize_tracebacks

# The choice of a benchmarker, made by an import, would start CUDA.
torch._inductor.config.use_experimental_benchmarker = False
importlib.import_module("torch._inductor.cudagraph_trees")
symbolize_tracebacks([gather_traceback(python=False, script=False, cpp=True)])
