"""The tests need the packages of the frameworks, the library, and simcuda in the place of CUDA:
``cargo xtask test-frameworks`` builds, installs and sets all that up."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent
TORCH_TESTS = ROOT.parent / "torch"


def pytest_configure(config: pytest.Config) -> None:
    # What asks and tells the simulated GPU is the same as for PyTorch's tests.
    sys.path[:0] = [str(ROOT), str(TORCH_TESTS), str(ROOT.parent.parent / "python")]
    from support import simcuda, skips

    if not simcuda.is_there():
        raise pytest.UsageError("run these tests with `cargo xtask test-frameworks`")
    if not config.pluginmanager.is_registered(skips):
        config.pluginmanager.register(skips)
