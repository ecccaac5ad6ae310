"""Call sites under PyTorch: lines of Python in forward passes, autograd's nodes in backward passes,
in every way to plug Genesis in."""

from __future__ import annotations

import gc
import json
import tempfile
import threading
from pathlib import Path
from typing import Any

import torch
from torch import nn

from genesis import _library
from support.program import program

HERE = str(Path(__file__).resolve())
#: Larger than anything else that is allocated in the meantime.
WIDTH = 1024


def profile() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "profile.json")
        _library.call("genesis_profile_write", str(path).encode())
        written: dict[str, Any] = json.loads(path.read_text())
        return written


def sites(written: dict[str, Any], least: int) -> list[list[dict[str, Any]]]:
    """The frames of the call sites of live blocks of at least ``least`` bytes."""
    blocks = [block for block in written["live"] if block["requested_bytes"] >= least]
    return [written["sites"][block["site"]]["frames"] for block in blocks]


def mine(frames: list[dict[str, Any]]) -> list[str]:
    """The functions of this file, innermost first."""
    return [frame["function"] for frame in frames if frame["file"] == HERE]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


def forward(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(x)


def backward(y: torch.Tensor) -> None:
    y.sum().backward()


@program(modes=("enabled", "two_symbols"))
def test_forward_is_told_by_its_lines_and_backward_by_its_nodes() -> None:
    model = Model().cuda()
    _library.call("genesis_profile_start")
    for _ in range(3):
        model.zero_grad(set_to_none=True)
        x = torch.zeros(WIDTH, WIDTH, device="cuda")
        y = forward(model, x)
        backward(y)
    large = 4 * WIDTH * WIDTH
    # The model is older than the profile: its call site is not known.
    found = [frames for frames in sites(profile(), large) if frames]
    inputs = [frames for frames in found if mine(frames)[:1] == [program_name()]]
    outputs = [frames for frames in found if mine(frames)[:2] == ["forward", "forward"]]
    gradients = [frames for frames in found if not mine(frames)]
    assert inputs and outputs, found
    # A module's frames are between the line that calls it and its own.
    called = outputs[0][[frame["function"] for frame in outputs[0]].index("_call_impl")]
    assert "site-packages/torch" in called["file"], outputs[0]
    # One for each weight, and each names its node.
    assert len(gradients) == 2, gradients
    for frames in gradients:
        text = " ".join(frame["function"] for frame in frames)
        assert "Backward0" in text, frames
        assert "CUDAPluggableAllocator" not in text and "genesis" not in text, frames
    _library.call("genesis_profile_stop")
    torch._C._cuda_clearCublasWorkspaces()


def program_name() -> str:
    return "test_forward_is_told_by_its_lines_and_backward_by_its_nodes"


def allocate_here() -> torch.Tensor:
    return torch.empty(3 * WIDTH * WIDTH, device="cuda", dtype=torch.uint8)


def allocate_there() -> torch.Tensor:
    return torch.empty(5 * WIDTH * WIDTH, device="cuda", dtype=torch.uint8)


@program(modes=("enabled", "two_symbols"))
def test_threads_are_told_apart() -> None:
    _library.call("genesis_profile_start")
    kept = []

    def work(function: Any) -> None:
        for _ in range(20):
            kept.append(function())

    threads = [
        threading.Thread(target=work, args=(function,))
        for function in (allocate_here, allocate_there)
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    written = profile()
    of_size = {3 * WIDTH * WIDTH: "allocate_here", 5 * WIDTH * WIDTH: "allocate_there"}
    seen = 0
    for block in written["live"]:
        expected = of_size.get(block["requested_bytes"])
        if expected is not None:
            seen += 1
            assert mine(written["sites"][block["site"]]["frames"])[:2] == [expected, "work"]
    assert seen == 120, seen
    _library.call("genesis_profile_stop")
    kept.clear()


@program(modes=("mem_pool",))
def test_segments_are_asked_for_under_a_lock_of_pytorchs_which_others_want() -> None:
    """PyTorch's allocator holds its lock while it asks for a segment. The statistics functions wait
    for that lock while they hold Python's."""
    _library.call("genesis_profile_start")
    is_over = False

    def watch() -> None:
        while not is_over:
            torch.cuda.memory_stats()

    watchers = [threading.Thread(target=watch) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    for number in range(60):
        # New code, so that its stack is not cached.
        scope = {"torch": torch, "size": (number % 7 + 21) << 20}
        exec("block = torch.empty(size, device='cuda', dtype=torch.uint8)", scope)
        scope.clear()
        if number % 5 == 0:
            torch.cuda.empty_cache()
    is_over = True
    for watcher in watchers:
        watcher.join()
    _library.call("genesis_profile_stop")
    gc.collect()


@program(modes=("enabled",), env={"GENESIS_CALL_SITES": "native"}, ending="live")
def test_native_sites_are_those_of_operators() -> None:
    _library.call("genesis_profile_start")
    kept = allocate_here()
    [frames] = sites(profile(), kept.nbytes)
    functions = [frame["function"] for frame in frames]
    assert any(name.startswith("at::") and "empty" in name for name in functions), functions
    assert not mine(frames), frames
    _library.call("genesis_profile_stop")
