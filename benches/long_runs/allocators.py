"""The allocators that are compared, and the process of each run."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from recording import Recording

FOLDER = Path(__file__).resolve().parent
#: Of every run. The detector and what kernels touch cost more time than the allocator. PyTorch's
#: own allocator depends a little on the order of addresses; its recorded runs have this one.
SIMCUDA = {
    "SIMCUDA_RACES": "off",
    "SIMCUDA_KERNEL_TOUCHES": "off",
    "SIMCUDA_ADDRESSES": "descending",
}


@dataclass(frozen=True)
class Allocator:
    """One of them."""

    title: str
    color: str
    #: The value of ``PYTORCH_ALLOC_CONF``.
    pytorch: str = ""
    is_genesis: bool = False


ALLOCATORS = {
    "genesis": Allocator("Genesis", "#d62728", is_genesis=True),
    "expandable": Allocator("PyTorch expandable", "#1f77b4", "expandable_segments:True"),
    "native": Allocator("PyTorch native", "#8c8c8c"),
}


@dataclass
class Result:
    """What a run's process returns."""

    recording: Recording
    #: Date, versions and settings.
    circumstances: dict[str, str]


def execute(program: str, allocator: str, is_smoke: bool, file: Path) -> None:
    """Makes the file of a result, in a process of its own: PyTorch's allocator is chosen once per
    process."""
    chosen = {"PYTORCH_ALLOC_CONF": ALLOCATORS[allocator].pytorch}
    arguments = [program, allocator, str(int(is_smoke)), str(file)]
    subprocess.run(
        [sys.executable, str(FOLDER / "child.py"), *arguments],
        env={**SIMCUDA, **os.environ, **chosen},
        check=True,
    )


def read(file: Path) -> Result:
    found = json.loads(file.read_text())
    return Result(Recording(**found["recording"]), found["circumstances"])


def write(file: Path, result: Result) -> None:
    file.write_text(json.dumps(dataclasses.asdict(result)))
