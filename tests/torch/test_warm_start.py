"""The plan of a run of a real PyTorch program, made ready by the next one."""

from __future__ import annotations

import os
from pathlib import Path

import torch

import genesis
from support import program, tier
from support.models import Shape, train

#: At most this part of the first step's calls for memory in a cold run may be left.
MOST_LEFT = 0.01
STEPS = 4


def memory_calls() -> int:
    return genesis.stats(0).driver_memory_calls


def steps() -> list[int]:
    """The driver's calls for memory before the first step, in it, and after it."""
    torch.cuda.init()
    genesis.cuda.wait_for_plan()
    counts = [memory_calls()]
    for lengths in ([1024], [1024, 768, 1024, 512][1:STEPS]):
        train(Shape(), lengths)
        counts.append(memory_calls() - sum(counts))
    genesis.cuda.write_plan(os.environ["WRITTEN"])
    return counts


def test_the_first_step_of_a_warm_start(tmp_path: Path) -> None:
    for mode in ("enabled", "two_symbols") if tier.is_full() else ("enabled",):
        env = {"WRITTEN": str(tmp_path / "first.plan")}
        cold = program.run(steps, mode, env)
        planned = {"GENESIS_PLAN": env["WRITTEN"], "WRITTEN": str(tmp_path / "second.plan")}
        warm = program.run(steps, mode, planned)
        print(f"{mode}: before, in and after the first step: {cold} cold, {warm} warm")
        assert cold[1] > 100 and warm[0] > 0
        assert warm[1] <= cold[1] * MOST_LEFT


def preallocated() -> None:
    genesis.cuda.preallocate("256MB")
    calls = memory_calls()
    kept = [torch.empty(8 << 20, dtype=torch.uint8, device="cuda") for _ in range(30)]
    assert memory_calls() == calls
    del kept
    try:
        genesis.cuda.preallocate("64TB")
    except genesis.OutOfMemoryError:
        pass
    else:
        raise AssertionError("there is not so much")


def test_preallocated_memory_serves_pytorch() -> None:
    program.run(preallocated, "enabled")
