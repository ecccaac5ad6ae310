"""vLLM's own files of its sleep mode, from its wheel, without the rest of it.

Importing all of vLLM takes dozens of packages and a GPU. So the modules around its
``CuMemAllocator`` are stood in for by the few things that it uses of them; the allocator, the
wrapper of the CUDA runtime, the logger and the search for libraries are vLLM's.
"""

from __future__ import annotations

import ast
import ctypes
import importlib
import os
import sys
import types
from pathlib import Path
from typing import Any

#: Set by ``cargo xtask test-frameworks``: the folder that has the package ``vllm``.
VARIABLE = "VLLM_FILES"
#: How vLLM finds its library among those of the process.
SEARCH = ("find_loaded_libraries", "find_loaded_library")


def allocator() -> Any:
    """vLLM's module ``vllm.device_allocator.cumem``."""
    stand_in()
    # Called by its path, the runtime that PyTorch is linked with would not be simcuda's.
    runtime = importlib.import_module("vllm.distributed.device_communicators.cuda_wrapper")
    file = runtime.find_loaded_library("libcudart")
    runtime.CudaRTLibrary.path_to_library_cache[file] = ctypes.CDLL(None)
    return importlib.import_module("vllm.device_allocator.cumem")


def stand_in() -> None:
    """From now on vLLM's files can be imported, and what they need of the rest is there."""
    folder = os.environ.get(VARIABLE)
    assert folder, f"{VARIABLE} names no folder: run `cargo xtask test-frameworks`"
    package = Path(folder, "vllm")
    _package("vllm", package)
    _package("vllm.utils")
    _package("vllm.distributed", package / "distributed")
    platform = types.SimpleNamespace(is_rocm=lambda: False, is_cuda_alike=lambda: True)
    _module("vllm.platforms", current_platform=platform)
    _module("vllm.utils.torch_utils", PIN_MEMORY=True)
    _module("vllm.utils.system_utils", **_functions(package / "utils/system_utils.py", SEARCH))


def _package(name: str, *folders: Path) -> None:
    """A package whose own ``__init__`` is not run."""
    _module(name, __path__=[str(folder) for folder in folders])


def _module(name: str, **names: Any) -> None:
    sys.modules[name] = module = types.ModuleType(name)
    vars(module).update(names)


def _functions(file: Path, wanted: tuple[str, ...]) -> dict[str, Any]:
    """Functions of a file that is not run as a whole."""
    tree = ast.parse(file.read_text())
    tree.body = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in wanted
    ]
    found: dict[str, Any] = {}
    exec(compile(tree, str(file), "exec"), found)
    return {name: found[name] for name in wanted}
