"""`genesis.neighbours`: who shares a device, and what each holds of it."""

from __future__ import annotations

import os
import subprocess
import sys

import torch

import genesis
from support.program import program

MIB = 1 << 20
NAME = f"neighbours-{os.getpid()}"

OTHER = """
import torch, genesis.torch
genesis.torch.enable(share_guarantee=64 << 20)
held = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
print("there", flush=True)
input()
"""


@program(env={"GENESIS_SHARE": NAME})
def test_each_process_is_listed_while_it_lives() -> None:
    held = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
    (own,) = genesis.neighbours()
    assert (own.process, own.is_own, own.limit_bytes, own.part_bytes) == (
        os.getpid(),
        True,
        None,
        None,
    )
    assert own.held_bytes == torch.cuda.memory_reserved() >= held.nbytes
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "there\n"
    found = {one.process: one for one in genesis.neighbours()}
    assert set(found) == {os.getpid(), other.pid}
    there = found[other.pid]
    assert not there.is_own
    assert there.guarantee_bytes == 64 * MIB
    assert there.held_bytes >= 32 * MIB
    other.communicate("\n")
    assert [one.process for one in genesis.neighbours()] == [os.getpid()]


@program()
def test_nobody_is_listed_without_a_name() -> None:
    torch.empty(MIB, device="cuda")
    assert genesis.neighbours() == []
