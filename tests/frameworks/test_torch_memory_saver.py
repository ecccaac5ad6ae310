"""torch_memory_saver's own tests, from the registry, on ``genesis.torch_memory_saver``.

The programs that they run are in ``saver/examples``, because the package lacks its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import tier

ROOT = Path(__file__).resolve().parent
PYTHON = ROOT.parent.parent / "python"
#: Set by ``cargo xtask test-frameworks``: the folder of the tests.
VARIABLE = "TORCH_MEMORY_SAVER_TESTS"

#: What the tests of each file come to: how many pass, and how many are skipped.
OUTCOMES = {
    # Those of Intel's GPUs are skipped.
    "test_examples.py": (24, 6) if tier.is_full() else (3, 0),
    "test_configure_subprocess.py": (3, 0),
    "test_utils.py": (5, 0),
}
#: Each example starts PyTorch anew: on every change these, every night all.
EXAMPLES = "test_cuda_graph or test_nested_region"
#: Tests of how their wheel names its libraries, of which Genesis has one.
OF_THEIR_WHEEL = (
    "test_get_binary_path_from_package_uses_unsuffixed_rocm_binary",
    "test_get_binary_path_from_package_keeps_cuda_suffix_selection",
)


def environment() -> dict[str, str]:
    stand_in = PYTHON / "genesis/stand_ins/torch_memory_saver"
    folders = (stand_in, ROOT / "saver", ROOT.parent / "torch", PYTHON)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "SIMCUDA_STORE": "bytes",
        "SIMCUDA_MEMORY": "4GiB",
        "SIMCUDA_DEVICES": "2",
    }


@pytest.mark.parametrize("file", OUTCOMES)
def test_its_own_tests_pass(file: str) -> None:
    folder = os.environ.get(VARIABLE)
    assert folder, f"{VARIABLE} names no folder: run `cargo xtask test-frameworks`"
    chosen = f"not ({' or '.join(OF_THEIR_WHEEL)})"
    if file == "test_examples.py" and not tier.is_full():
        chosen = EXAMPLES
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "auto", file]
    finished = subprocess.run(
        [*command, "-k", chosen],
        check=False,
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=1500,
    )
    passed, skipped = OUTCOMES[file]
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", last(finished))}
    found = (counts.get("passed", 0), counts.get("skipped", 0), counts.get("failed", 0))
    assert found == (passed, skipped, 0), finished.stdout + finished.stderr


def last(finished: subprocess.CompletedProcess[str]) -> str:
    """The line with the counts."""
    return (finished.stdout.strip().splitlines() or [""])[-1]
