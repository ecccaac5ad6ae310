"""A program recorded by Genesis, replayed without PyTorch, has the same live peak."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch

import genesis
from support.models import Shape, train
from support.program import program, run


def replayed(trace: Path) -> dict[str, Any]:
    command = genesis.library_path().with_name("genesis")
    arguments = [str(command), "replay", str(trace), "--warm", "0", "--json"]
    finished = subprocess.run(arguments, capture_output=True, text=True, check=True)
    report: dict[str, Any] = json.loads(finished.stdout)
    return report


def training_recorded_from_python() -> tuple[int, int]:
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "training.gtr.zst")
        with genesis.trace.recording(trace):
            train(Shape(layers=2), lengths=[256, 128, 512])
        peak = genesis.stats(0).requested_bytes.peak
        return peak, replayed(trace)["live_peak_bytes"]


def training_alone() -> int:
    train(Shape(layers=2), lengths=[256, 128, 512])
    return torch.cuda.memory_stats()["requested_bytes.all.peak"]


@program(modes=("enabled", "two_symbols"))
def test_a_recording_replays_to_the_same_live_peak() -> None:
    recorded, again = training_recorded_from_python()
    assert recorded == again > 0


def test_the_environment_records_a_whole_process(tmp_path: Path) -> None:
    trace = tmp_path / "training.gtr.zst"
    peak = run(training_alone, "enabled", env={"GENESIS_TRACE": str(trace)})
    report = replayed(trace)
    assert report["live_peak_bytes"] == peak > 0
    assert report["cold"]["failures"] == 0
