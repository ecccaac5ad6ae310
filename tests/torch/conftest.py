"""The tests need the real PyTorch, the library, and simcuda instead of CUDA: ``cargo xtask
test-torch`` builds and installs all three."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent


def pytest_configure(config: pytest.Config) -> None:
    sys.path[:0] = [str(ROOT), str(ROOT.parent.parent / "python")]
    from support import processes, simcuda, skips

    if not simcuda.is_there():
        raise pytest.UsageError("run these tests with `cargo xtask test-torch`")
    if not config.pluginmanager.is_registered(skips):
        config.pluginmanager.register(skips)
        config.add_cleanup(processes.end)
