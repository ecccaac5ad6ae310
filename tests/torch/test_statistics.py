"""``torch.cuda``'s statistics from Genesis: the same keys, and for the same program the same
values, because the strategy Caching has PyTorch's sizes."""

from __future__ import annotations

from typing import Any

import torch

import genesis
import genesis.torch
from support.models import Shape, train
from support.program import program, run

MIB = 1 << 20
POOLS = ("all", "small_pool", "large_pool")
VALUES = ("current", "peak", "allocated", "freed")
AS_PYTORCH = {"GENESIS_POOL_TYPE": "Caching"}


def small_and_large_blocks() -> dict[str, Any]:
    """Blocks of both pools, some freed: splits, whole segments, peaks above what is left."""
    tensors = [
        torch.empty(n, dtype=torch.uint8, device="cuda")
        for n in (100, 1000, 300_000, MIB, MIB + 1, 5 * MIB, 11 * MIB, 30 * MIB, 513)
    ]
    del tensors[2], tensors[3], tensors[5]
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    del tensors
    return dict(stats)


def training() -> dict[str, Any]:
    train(Shape(layers=2), lengths=[128, 256, 64])
    return dict(torch.cuda.memory_stats())


def test_the_keys_and_the_values_are_pytorchs_own() -> None:
    native = run(small_and_large_blocks, "native", ending="any")
    ours = run(small_and_large_blocks, "enabled", AS_PYTORCH)
    assert list(ours) == list(native)
    # For parts of segments PyTorch counts the sum of an operation, Genesis each block that is cut
    # or joined; and Genesis's peak over small and large blocks is only a bound.
    inside = [
        f"inactive_split{unit}.{pool}.{value}"
        for unit in ("", "_bytes")
        for pool in POOLS
        for value in VALUES
        if value != "current"
    ]
    different = [key for key in native if ours[key] != native[key] and key not in inside]
    assert not different, {key: (ours[key], native[key]) for key in different}


def test_a_training_run_has_the_same_live_memory() -> None:
    native = run(training, "native", ending="any")
    ours = run(training, "enabled", AS_PYTORCH)
    for metric in ("allocated_bytes", "requested_bytes", "allocation"):
        for pool in POOLS:
            for value in VALUES:
                key = f"{metric}.{pool}.{value}"
                assert ours[key] == native[key], key


@program()
def test_everything_built_on_the_statistics_answers() -> None:
    assert torch.cuda.memory_stats() == {}, "as long as CUDA is not in use"
    tensor = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated() == 3 * MIB
    reserved = torch.cuda.memory_reserved()
    assert 3 * MIB <= reserved <= 20 * MIB
    del tensor
    assert torch.cuda.memory_allocated() == 0
    assert torch.cuda.max_memory_allocated() == 3 * MIB
    assert torch.cuda.max_memory_reserved() == reserved
    nested = torch.cuda.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["large_pool"]["freed"] == 3 * MIB
    summary = torch.cuda.memory_summary()
    assert "GPU reserved memory" in summary and f"{reserved // 1024} KiB" in summary, summary
    assert torch.cuda.memory_summary(abbreviated=True)
    assert torch.cuda.memory.memory_stats is torch.cuda.memory_stats
    assert torch.accelerator.memory_allocated() == 0
    assert torch.accelerator.max_memory_allocated() == 3 * MIB


@program()
def test_resets_of_peaks_and_of_sums() -> None:
    def value(name: str) -> int:
        return torch.cuda.memory_stats()[f"allocated_bytes.all.{name}"]

    first = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    second = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
    del first
    torch.cuda.reset_peak_memory_stats()
    assert value("peak") == 40 * MIB, "what is live, not 0"
    assert (value("allocated"), value("freed")) == (70 * MIB, 30 * MIB)
    torch.cuda.reset_accumulated_memory_stats()
    assert (value("allocated"), value("freed")) == (0, 0)
    assert value("current") == 40 * MIB
    del second
    assert (value("allocated"), value("freed")) == (0, 40 * MIB)
    assert genesis.stats(0).allocated_bytes.total == 70 * MIB, "Genesis's own sums go on"


@program(env={"SIMCUDA_DEVICES": "2"})
def test_devices_are_counted_apart() -> None:
    tensor = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda:1")
    assert torch.cuda.memory_allocated(0) == 0
    assert torch.cuda.memory_allocated("cuda:1") == 5 * MIB
    assert torch.cuda.memory_allocated(tensor.device) == 5 * MIB
    with torch.cuda.device(1):
        assert torch.cuda.memory_allocated() == 5 * MIB


@program()
def test_what_was_replaced_can_be_put_back() -> None:
    ours = torch.cuda.mem_get_info
    genesis.torch.restore()
    assert torch.cuda.mem_get_info is not ours
    torch.zeros(1, device="cuda")
    try:
        torch.cuda.memory_stats()
    except RuntimeError as error:
        assert "does not yet support getDeviceStats" in str(error)
    else:
        raise AssertionError("PyTorch's own function does not know a pluggable allocator")
