"""Where did the memory go? A training loop that keeps too much, and how to find that out.

    python where_did_it_go.py [FOLDER]

It needs PyTorch and a GPU, or simcuda instead of one, and writes a page and two files into FOLDER
(default: the current one). A comment marks the line with the mistake.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

import genesis
import genesis.torch

BATCH, WIDTH, CLASSES = 1024, 1024, 12288
MIB = 1 << 20


def train(steps: int) -> list[torch.Tensor]:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept = []
    for step in range(steps):
        genesis.mark(f"step {step}")
        batch = torch.zeros(BATCH, WIDTH, device="cuda")
        with genesis.annotate("forward"):
            scores = model(batch)
            loss = scores.square().mean()
        with genesis.annotate("backward"):
            loss.backward()
        with genesis.annotate("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        kept.append(scores.detach())  # the mistake: the scores of every step, for a plot later
    return kept


def main(folder: Path) -> None:
    genesis.torch.enable()
    with genesis.memory_profiler.record():
        kept = train(steps=12)
        show_what_is_live()

    report = genesis.memory_profiler.get_report()
    print("\nby the place that allocated it:")
    sites = sorted(report.call_sites, key=lambda site: site.counts.live_bytes, reverse=True)
    for site in sites[:3]:
        print(f"  {site.counts.live_bytes // MIB} MiB live of {site.counts.allocations} "
              f"allocations  {site.location}")  # fmt: skip
    print()
    print(report.summary())
    genesis.memory_profiler.get_timeline().plot(folder / "timeline.html")
    genesis.memory_profiler.write(folder / "profile.json")  # for `genesis report` and `diff`
    genesis.snapshot(folder / "snapshot.pickle")  # for PyTorch's own viewer
    print(f"written to {folder}: timeline.html, profile.json, snapshot.pickle")
    del kept


def show_what_is_live() -> None:
    stats = genesis.memory_stats()
    print(f"live {stats.allocated_bytes // MIB} MiB, peak {stats.peak_allocated // MIB} MiB, "
          f"reserved {stats.reserved_bytes // MIB} MiB")  # fmt: skip
    details = genesis.detailed_memory_stats()
    print(f"{details.cache_hit_rate:.0%} of allocations came from the cache")
    print("\nthe largest of what is live:")
    for allocation in details.get_large_allocations("16MB")[:5]:
        print(f"  {allocation.size // MIB} MiB  {allocation.location}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
