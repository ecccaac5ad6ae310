"""The example in ``python/examples`` prints and writes what its comments claim."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLE = ROOT / "python" / "examples" / "where_did_it_go.py"


def line_of(text: str) -> int:
    lines = EXAMPLE.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_the_example_finds_its_mistake(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, str(EXAMPLE), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0 and finished.stderr == "", finished.stderr
    said = finished.stdout
    # Scores of 12 steps: 1024 × 12288 numbers of four bytes each.
    forward = f"where_did_it_go.py:{line_of('scores = model(batch)')} (train)"
    largest, by_place = said.split("by the place that allocated it:")
    assert largest.count(f"48 MiB  {EXAMPLE.parent / forward}") == 5, said
    assert by_place.splitlines()[1].endswith(forward), said
    assert int(by_place.split()[0]) >= 12 * 48, said
    assert "Genesis memory profile" in said
    assert (tmp_path / "timeline.html").read_text().startswith("<!")
    profile = json.loads((tmp_path / "profile.json").read_text())
    assert {"forward", "backward", "optimizer", "step 0", "step 11"} <= set(profile["names"])
    snapshot = pickle.loads((tmp_path / "snapshot.pickle").read_bytes())
    assert snapshot["segments"]
