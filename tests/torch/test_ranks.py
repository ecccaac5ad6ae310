"""Several processes under torchrun: each rank's files have its number in their names, and the pools
for NCCL have the same blocks on all ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import genesis
from support import tier

PROGRAM = """
import os, torch, genesis, genesis.torch, torch.distributed as dist
genesis.torch.enable()
dist.init_process_group("gloo")
rank = dist.get_rank()
# Nothing before is the same on all ranks.
before = [torch.empty((rank + 1) * 3 << 20, device="cuda") for _ in range(rank)]
pool = genesis.torch.nccl_pool()
kept = []
for step in range(6):
    with torch.cuda.use_mem_pool(pool):
        kept.append(torch.empty((step % 3 + 1) << 20, dtype=torch.uint8, device="cuda"))
    if step % 2:
        kept.pop(0)
    genesis.trace.iteration(step)
pool.check_ranks()
if rank == 1:
    kept.pop()
dist.barrier()
try:
    pool.check_ranks()
except RuntimeError as error:
    assert "on ranks [1" in str(error), error
else:
    raise AssertionError("rank 1 has freed a block")
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    "count",
    [
        2,
        pytest.param(8, marks=pytest.mark.skipif(not tier.is_full(), reason=tier.NIGHTLY)),
    ],
)
def test_ranks_side_by_side(tmp_path: Path, count: int) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    package = Path(genesis.__file__).resolve().parent.parent
    variables = {
        "GENESIS_PROFILE": str(tmp_path / "profile.json"),
        "GENESIS_TRACE": str(tmp_path / "trace.gtr"),
        "PYTHONPATH": str(package),
        "OMP_NUM_THREADS": "1",
    }
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    subprocess.run(
        [*launch, f"--nproc-per-node={count}", str(program)],
        env={**os.environ, **variables},
        cwd=tmp_path,
        check=True,
        timeout=240,
        stdin=subprocess.DEVNULL,
    )
    names = {
        f"{name}-rank{rank}.{ending}"
        for rank in range(count)
        for name, ending in (("profile", "json"), ("trace", "gtr"))
    }
    assert {file.name for file in tmp_path.iterdir()} == {*names, "train.py"}
    for rank in range(count):
        profile = json.loads((tmp_path / f"profile-rank{rank}.json").read_text())
        assert profile["rank"] == rank
