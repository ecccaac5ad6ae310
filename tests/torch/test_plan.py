"""``genesis plan --batch``: what real PyTorch programs need at batches that were not recorded."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

import genesis
from support import program, tier
from support.models import Shape, train

#: A batch as recorded, and one that is larger than all of them.
RECORDED = (8, 16, 32)
LARGER = 80
STEPS = 3


def batch() -> int:
    return int(os.environ["BATCH"])


def steps(model: nn.Module, data: torch.Tensor) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(STEPS):
        result = model(data)
        target = torch.zeros(result.shape[0], dtype=torch.long, device="cuda")
        functional.cross_entropy(result, target).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()


def perceptron() -> None:
    widths = (1024, 4096, 4096, 1000)
    parts: list[nn.Module] = []
    for before, after in zip(widths, widths[1:]):
        parts += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(0.1)]
    steps(nn.Sequential(*parts).cuda(), torch.zeros(batch() * 64, widths[0], device="cuda"))


def convolutions() -> None:
    parts: list[nn.Module] = []
    for before, after in ((3, 64), (64, 128), (128, 256), (256, 256)):
        parts += [
            nn.Conv2d(before, after, 3, stride=2, padding=1),
            nn.BatchNorm2d(after),
            nn.ReLU(),
        ]
    parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 1000)]
    steps(nn.Sequential(*parts).cuda(), torch.zeros(batch(), 3, 128, 128, device="cuda"))


def transformer() -> None:
    train(Shape(layers=2), [256] * STEPS, batch())


class Attention(nn.Module):
    """Attention that keeps its scores: memory grows with the square of the sequence."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.parts = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.parts(x).chunk(3, dim=-1)
        scores = functional.softmax(query @ key.transpose(-1, -2), dim=-1)
        return x + self.output(scores @ value)


def sequences() -> None:
    """The sequence is what grows."""
    width = 256
    model = nn.Sequential(*(Attention(width) for _ in range(3))).cuda()
    steps(nn.Sequential(model, nn.Flatten(0, 1)), torch.zeros(4, batch() * 32, width).cuda())


#: What a peak may be off that was predicted from other recordings. Sums over many rows take scratch
#: memory from some batch on, which smaller batches do not show.
MOST_ERROR = {perceptron: 0.05, convolutions: 0.001, transformer: 0.001, sequences: 0.001}


def plan(recordings: list[tuple[int, Path]], *options: str) -> dict[str, Any]:
    command = str(genesis.library_path().with_name("genesis"))
    batches = [f"--batch={size}={path}" for size, path in recordings]
    finished = subprocess.run(
        [command, "plan", *batches, *options, "--json"], capture_output=True, check=False
    )
    assert finished.returncode == 0, finished.stderr.decode()
    return dict(json.loads(finished.stdout))


@pytest.mark.parametrize("what", tier.some_or_all([transformer], list(MOST_ERROR)))
def test_larger_batches_are_predicted(what: Callable[[], None], tmp_path: Path) -> None:
    recordings = []
    for size in (*RECORDED, LARGER):
        recordings.append((size, tmp_path / f"{size}.json"))
        profile = {"BATCH": str(size), "GENESIS_PROFILE": str(recordings[-1][1])}
        program.run(what, "enabled", profile)
    found = plan(recordings, "--device-memory=16GiB", "--strategy=Elastic", "--warm=0")
    errors = {(one["strategy"], one["batch"]): one["error_ratio"] for one in found["held_out"]}
    assert len(errors) == 2 * len(recordings), errors
    assert abs(errors[None, LARGER]) <= MOST_ERROR[what], errors
    assert found["largest"][0]["predicted"] > LARGER, found["largest"]
    assert found["largest"][0]["predicted"] <= found["bound"]
    if what is sequences:
        assert "square" in [basis for basis, _ in found["live"]["terms"]], found["live"]
