"""Helpers under the names that torch_memory_saver has them by."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path

from .. import _library

_PRELOAD_LIBRARY = "libgenesis_preload.so"


@functools.cache
def is_xpu() -> bool:
    """Returns true if PyTorch runs on Intel's GPUs."""
    import torch

    return hasattr(torch, "xpu") and bool(torch.xpu.is_available())


def get_binary_path_from_package(stem: str) -> Path:
    """The library that does what torch_memory_saver's library ``stem`` does."""
    library = _library.path()
    return library.with_name(_PRELOAD_LIBRARY) if "preload" in stem else library


@contextlib.contextmanager
def change_env(key: str, value: str) -> Iterator[None]:
    """Within the block the variable ``key`` of the environment is ``value``."""
    before = os.environ.get(key)
    os.environ[key] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = before
