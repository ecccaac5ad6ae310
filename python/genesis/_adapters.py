"""The adapters of frameworks as attributes of the package: ``genesis.torch`` imports PyTorch, but
only when it is first used."""

from __future__ import annotations

import importlib
from types import ModuleType

#: The module of each adapter, and what the user installs for it.
ADAPTERS = {
    "cupy": "cupy",
    "numba": "numba-cuda",
    "onnxruntime": "onnxruntime-gpu",
    "rmm": "rmm",
    "torch": "torch",
    "torch_memory_saver": "torch",
}


def load(package: str, name: str) -> ModuleType:
    """The adapter ``name`` of ``package``, imported now.

    Raises ``AttributeError``, so that ``hasattr`` works, if its framework is not installed. Any
    other error of the import is the framework's own and passes.
    """
    try:
        return importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == package:
            raise
        raise AttributeError(
            f"{package}.{name} needs a package that is not installed: there is no module "
            f"{error.name!r}; `pip install {ADAPTERS[name]}` installs it"
        ) from error
