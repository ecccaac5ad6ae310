"""The tests need the packages of the frameworks, the library, and simcuda instead of CUDA: ``cargo
xtask test-frameworks`` builds and installs all of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent
TORCH_TESTS = ROOT.parent / "torch"


def pytest_configure(config: pytest.Config) -> None:
    # The functions of the simulated GPU are those of PyTorch's tests.
    sys.path[:0] = [str(ROOT), str(TORCH_TESTS), str(ROOT.parent.parent / "python")]
    from support import processes, simcuda, skips

    if not simcuda.is_there():
        raise pytest.UsageError("run these tests with `cargo xtask test-frameworks`")
    if not config.pluginmanager.is_registered(skips):
        config.pluginmanager.register(skips)
        config.add_cleanup(processes.end)
