"""GENESIS_DEBUG under PyTorch: mistakes are reported with Python's file and line, and programs
without mistakes run as without it, captures included."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import torch

import genesis
from support.program import PACKAGE_FOLDER, ROOT, program

FILE = re.escape(__file__)
PLACE = rf"at {FILE}:\d+ \(\w+\)"
AGO = r"\(\d+\.\d+ s ago\)"
#: Real bytes. With addresses only, every read returns zeros, and no pattern stays.
BYTES = {"SIMCUDA_STORE": "bytes", "SIMCUDA_MEMORY": "1GiB"}


def library() -> ctypes.CDLL:
    opened = ctypes.CDLL(str(genesis.library_path()))
    opened.genesis_malloc.restype = ctypes.c_void_p
    opened.genesis_malloc.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    opened.genesis_free.restype = None
    opened.genesis_free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    return opened


def set_bytes(address: int, count: int, value: int = 1) -> int:
    """Writes as a wrong kernel might; kernels do nothing here."""
    runtime = ctypes.CDLL(None)
    runtime.cudaMemset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    return int(runtime.cudaMemset(address, value, count))


@program(
    env={"GENESIS_DEBUG": "leaks"},
    says=rf"genesis: 0x[0-9a-f]+ is already free: 1000 bytes allocated {PLACE} {AGO}, "
    rf"freed {PLACE} {AGO}; now used {PLACE}$",
)
def test_a_double_free_is_told_with_three_places() -> None:
    torch.zeros(1, device="cuda")
    block = library().genesis_malloc(1000, 0, None)
    library().genesis_free(block, 0, 0, None)
    library().genesis_free(block, 0, 0, None)


@program(
    env={"GENESIS_DEBUG": "leaks"},
    says=rf"genesis: 0x[0-9a-f]+ points into the block at 0x[0-9a-f]+, not to its start, "
    rf"allocated {PLACE} {AGO}; now used {PLACE}$",
)
def test_a_foreign_free_is_told_with_both_places() -> None:
    tensor = torch.zeros(1000, device="cuda")
    library().genesis_free(tensor.data_ptr() + 512, 0, 0, None)


@program(modes=("two_symbols", "enabled"), env={"GENESIS_DEBUG": "guard"}, violations=True)
def test_an_overrun_is_caught_by_the_guard_page() -> None:
    tensor = torch.zeros(1000, dtype=torch.uint8, device="cuda")
    assert set_bytes(tensor.data_ptr(), 1000) == 0
    assert set_bytes(tensor.data_ptr(), 1024 + 1) != 0


@program(modes=("two_symbols", "enabled"), env={"GENESIS_DEBUG": "guard"}, violations=True)
def test_a_use_after_the_free_is_caught_by_guard() -> None:
    tensor = torch.zeros(1000, dtype=torch.uint8, device="cuda")
    address = tensor.data_ptr()
    del tensor
    assert set_bytes(address, 1) != 0


@program(
    modes=("two_symbols", "enabled"),
    env={"GENESIS_DEBUG": "poison,quarantine", **BYTES},
    says=rf"genesis: device 0: the block of 1000 bytes at 0x[0-9a-f]+ was written to after it was "
    rf"freed: byte 100; 1000 bytes allocated {PLACE} {AGO}, freed {PLACE} {AGO}$",
)
def test_a_write_after_the_free_is_found_in_quarantine() -> None:
    tensor = torch.zeros(1000, dtype=torch.uint8, device="cuda")
    address = tensor.data_ptr()
    del tensor
    assert set_bytes(address + 100, 1) == 0
    genesis.empty_cache()


@program(modes=("two_symbols", "enabled"), env={"GENESIS_DEBUG": "poison", **BYTES})
def test_fresh_memory_is_poisoned() -> None:
    tensor = torch.empty(1000, dtype=torch.uint8, device="cuda")
    assert bytes(tensor.cpu().tolist()) == b"\xcd" * 1000


@program(modes=("two_symbols", "enabled", "mem_pool"), env={"GENESIS_DEBUG": "all", **BYTES})
def test_training_goes_on_as_ever() -> None:
    network = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 16)
    ).cuda()
    optimizer = torch.optim.Adam(network.parameters())
    side = torch.cuda.Stream()
    for _ in range(3):
        inputs = torch.randn(32, 256, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            copy = inputs * 2
        copy.record_stream(torch.cuda.current_stream())  # type: ignore[attr-defined]
        torch.cuda.current_stream().wait_stream(side)
        network(copy).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@program(modes=("enabled",), env={"GENESIS_DEBUG": "all", **BYTES})
def test_graphs_are_captured_and_replayed_as_ever() -> None:
    kept = torch.zeros(1 << 20, device="cuda")
    inputs = torch.zeros(1 << 16, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        # Freed in the capture, written at every replay.
        outputs = (inputs * 2).relu() + 1
        del kept
    for _ in range(3):
        graph.replay()
        torch.zeros(1 << 16, device="cuda")
    torch.cuda.synchronize()
    del graph, outputs


LEAKING = """
import ctypes

import torch

import genesis.torch

genesis.torch.enable()


def keep(count):
    for _ in range(count):
        tensor = torch.zeros(300, device="cuda")
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(tensor))


def keep_more():
    tensor = torch.zeros(1 << 20, device="cuda")
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(tensor))


torch.zeros(1 << 21, device="cuda")
AT_MODULE_LEVEL = torch.zeros(1 << 20, device="cuda")
if LEAKS:
    keep(2)
    keep_more()
"""


def said_at_exit(folder: Path, leaks: bool) -> list[str]:
    script = folder / "leaking.py"
    script.write_text(LEAKING.replace("LEAKS", str(leaks)))
    finished = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(PACKAGE_FOLDER), "GENESIS_DEBUG": "leaks"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return finished.stderr.splitlines()


def test_three_tensors_leaked_in_two_places_are_told_exactly(tmp_path: Path) -> None:
    lines = said_at_exit(tmp_path, True)
    place = re.escape(str(tmp_path / "leaking.py"))
    expected = [
        r"genesis: 3 blocks of 4\.00 MiB live at exit:",
        r"  1 block of 4\.00 MiB \(4194304 bytes at 0x[0-9a-f]+\), device 0, [\d.]+ s old, "
        rf"allocated at {place}:18 \(keep_more\)",
        r"  2 blocks of 2\.34 KiB, 1200 bytes each, device 0, [\d.]+ to [\d.]+ s old, "
        rf"allocated at {place}:13 \(keep\)",
    ]
    assert len(lines) == len(expected), lines
    for line, pattern in zip(lines, expected):
        assert re.fullmatch(pattern, line), (line, pattern)


def test_who_leaks_nothing_is_told_nothing(tmp_path: Path) -> None:
    assert said_at_exit(tmp_path, False) == []
