"""One run: arguments are the program, the allocator, 1 for a short run, and the result's file."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "torch"), str(ROOT / "python")]

import torch  # noqa: E402

import genesis  # noqa: E402
import genesis.torch  # noqa: E402
from allocators import ALLOCATORS, SIMCUDA, Result, write  # noqa: E402
from programs import PROGRAMS, SMOKE  # noqa: E402
from recording import record  # noqa: E402
from support import simcuda  # noqa: E402

#: Variables that may change the result; these are the same in every run.
SETTINGS = ("GENESIS_", "SIMCUDA_")
USUAL = ("GENESIS_LIBRARY", *SIMCUDA)


def main(program: str, allocator: str, is_smoke: str, file: str) -> None:
    if ALLOCATORS[allocator].is_genesis:
        genesis.torch.enable()
    chosen = PROGRAMS[program]
    recording = record(chosen.run(SMOKE if int(is_smoke) else chosen.scale))
    write(Path(file), Result(recording, circumstances()))


def circumstances() -> dict[str, str]:
    describe = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=False)
    settings = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(SETTINGS) and name not in USUAL
    }
    return {
        "date": datetime.date.today().isoformat(),
        "Genesis": commit.stdout.strip() or genesis.version(),
        "PyTorch": torch.__version__,
        "device": f"{torch.cuda.mem_get_info()[1] / 2**30:.0f} GiB",
        "driver time": f"by the prices of {simcuda.prices()}",
        **settings,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
