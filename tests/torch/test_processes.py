"""Forked workers, and how a process ends."""

from __future__ import annotations

import os

import torch
from torch.utils.data import DataLoader, Dataset

import genesis
from support import tier
from support.program import program


class Squares(Dataset):
    """A data set of the host; its workers are forked from a process that uses the GPU."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((1000,), float(index * index))


@program(modes=("two_symbols", "enabled", "mem_pool"))
def test_a_data_loader_with_forked_workers() -> None:
    network = torch.nn.Linear(1000, 1000, device="cuda")
    loader = DataLoader(Squares(), batch_size=8, num_workers=2, multiprocessing_context="fork")
    for _ in range(2):
        for batch in loader:
            network(batch.to("cuda", non_blocking=True)).sum().backward()


@program(modes=("two_symbols", "enabled"))
def test_a_forked_child_may_free_and_leave() -> None:
    """The child frees its copies of tensors; nothing hangs, and nothing is written."""
    tensor = torch.zeros(1 << 20, device="cuda")
    child = os.fork()
    if child == 0:
        del tensor
        try:
            genesis.stats(0)
        except genesis.GenesisError:
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


KEPT: list[object] = []


@program(
    modes=tier.some_or_all(("enabled",), ("two_symbols", "enabled", "mem_pool")),
    ending="live",
    fresh=True,
)
def test_exit_with_live_tensors() -> None:
    KEPT.append(torch.zeros(1 << 20, device="cuda"))
    KEPT.append(torch.nn.Linear(1000, 1000, device="cuda"))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        KEPT.append(torch.zeros(1 << 20, device="cuda"))
    KEPT[-1].record_stream(torch.cuda.current_stream())  # type: ignore[attr-defined]


@program(modes=("enabled",), ending="live", fresh=True)
def test_exit_with_a_live_graph() -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        KEPT.append(torch.zeros(1 << 20, device="cuda"))
    graph.replay()
    KEPT.append(graph)
