"""NVTX ranges of PyTorch's own libraries are annotations if a profile or the program asks."""

from __future__ import annotations

import os
from pathlib import Path

import torch

import genesis
import genesis.torch
from support.program import program, run

VARIABLE = "NVTX_INJECTION64_PATH"


def seen() -> list[tuple[str, int]]:
    found = genesis.memory_profiler.get_timeline().annotations
    return [(one.name, one.depth) for one in found]


def use_nvtx() -> None:
    with torch.cuda.nvtx.range("forward"):
        torch.cuda.nvtx.range_push("layer 1")
        torch.empty(1 << 20, device="cuda")
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.mark("half")


RANGES = [("forward", 0), ("layer 1", 1), ("half", 1)]


@program()
def test_a_profile_sees_the_ranges() -> None:
    assert VARIABLE not in os.environ, "nothing is changed for a program that is not profiled"
    with genesis.memory_profiler.record():
        use_nvtx()
        with torch.autograd.profiler.emit_nvtx():
            torch.ones(8, device="cuda").add_(1)
    assert seen()[:3] == RANGES
    # The operators, by PyTorch's own names.
    assert any(name.startswith("aten::add_") for name, _ in seen()), seen()


@program()
def test_ranges_before_the_first_profile_make_the_library_deaf() -> None:
    use_nvtx()
    with genesis.memory_profiler.record():
        use_nvtx()
    assert seen() == []


@program(modes=("native",))
def test_unless_it_was_asked_for() -> None:
    genesis.torch.enable(nvtx=True)
    assert os.environ[VARIABLE] == str(genesis.library_path())
    use_nvtx()
    with genesis.memory_profiler.record():
        use_nvtx()
    assert seen() == RANGES


def seen_without_asking() -> None:
    torch.cuda.init()  # the profile begins when Genesis does
    use_nvtx()
    assert seen() == RANGES


def test_or_the_whole_process_is_profiled(tmp_path: Path) -> None:
    run(seen_without_asking, "enabled", env={"GENESIS_PROFILE": str(tmp_path / "report.txt")})
    assert "Device 0" in (tmp_path / "report.txt").read_text()


@program(env={VARIABLE: "/another/tool.so"})
def test_another_tool_is_left_alone() -> None:
    genesis.memory_profiler.start()
    assert os.environ[VARIABLE] == "/another/tool.so"
    use_nvtx()
    assert seen() == []


@program(modes=("native",))
def test_it_can_be_declined() -> None:
    genesis.torch.enable(nvtx=False, profile="off")
    assert VARIABLE not in os.environ
    use_nvtx()
