"""Every call of the driver fails in turn, in programs that use pools, graph trees, captures, the
history of memory and PyTorch's profiler. Each time, the program gets an error of PyTorch's or ends
well; nothing crashes; the race detector finds nothing; and once the driver is well again, every
byte is accounted for.

A program runs once to count its calls. Nightly each of the first calls of a kind fails, once and
for good, with a shortage and with an unknown code; on every change a sample of these does, always
the same one.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import random
import re
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import Any, Optional

import pytest
import torch

from support import processes, simcuda, tier
from support.fault_programs import DEVICE, PROGRAMS
from support.program import PLAIN

#: What a call fails with: a shortage, and a code that nothing else answers.
SHORTAGE, UNKNOWN = 2, 999
#: Nightly so many of the first calls of a kind fail; on every change so many faults are drawn.
FIRST_CALLS = 6
SAMPLE = 8
#: Calls that PyTorch itself makes where it cannot bear a failure, with its own allocator, too.
ENDS_PYTORCH = {
    # Asked in destructors: the exception ends the process.
    "cuDevicePrimaryCtxGetState",
}
#: The driver's own functions, which Genesis calls. PyTorch calls those of the runtime: they are
#: left out, because PyTorch ends the process, or leaves captures open, where some of them fail.
OF_THE_DRIVER = re.compile("cu[A-Z]")
#: Many more than a program makes.
FOR_GOOD = 1 << 40
LINE = re.compile(r"\d+ \d+ (\w+)\(.*\) = (-?\d+)")

Fault = tuple[str, int, int, int]


def swept() -> Any:
    """In a process of its own: where the program's calls begin in the log, and how it ended."""
    torch.cuda.init()
    first = first_graph() if "graph" in os.environ["SWEPT"] else None
    begin = Path(os.environ["SIMCUDA_LOG"]).stat().st_size
    fault: Optional[Fault] = json.loads(os.environ["FAULT"])
    (program,) = (one for one in PROGRAMS if one.__name__ == os.environ["SWEPT"])
    if fault is not None:
        call, nth, code, times = fault
        simcuda.fail(f"@{call}", nth, code, times)
    ended = "well"
    try:
        program()
    except RuntimeError as error:
        ended = type(error).__name__
        # What a frame holds is live.
        traceback.clear_frames(error.__traceback__)
    end = Path(os.environ["SIMCUDA_LOG"]).stat().st_size
    simcuda.clear_faults()
    del first
    gc.collect()
    serves_again()
    return begin, end, ended


def first_graph() -> torch.cuda.CUDAGraph:
    """A graph for which PyTorch has made the state of its generator. If memory is short while it
    makes that state, PyTorch 2.11 ends the process when it drops the graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.zeros(1, device="cuda")
    return graph


def serves_again() -> None:
    """The driver is well: what was cached returns, and there is memory for the next request."""
    assert simcuda.inconsistency() == ""
    with contextlib.suppress(RuntimeError):
        torch.cuda.synchronize()  # reports what failed before
    torch.empty(MIB, dtype=torch.uint8, device="cuda")


MIB = 1 << 20


def run_swept(name: str, fault: Optional[Fault]) -> tuple[str, list[tuple[str, int]]]:
    """How the program ended, and its calls with their codes."""
    with tempfile.TemporaryDirectory() as folder:
        log, result = Path(folder, "log"), Path(folder, "result.json")
        arguments = {
            "file": __file__,
            "function": "swept",
            "mode": "enabled",
            "ending": "freed",
            "violations": False,
            "result": str(result),
        }
        env = {
            "SWEPT": name,
            "FAULT": json.dumps(fault),
            "SIMCUDA_LOG": str(log),
            "SIMCUDA_MEMORY": DEVICE,
            "GENESIS_LOG": "off",
        }
        finished = processes.run(PLAIN, arguments, env)
        assert finished.status == 0, f"{fault}: exit status {finished.status}\n{finished.stderr}"
        begin, end, ended = json.loads(result.read_text())
        lines = log.read_bytes()[begin:end].decode().splitlines()
    matches = [LINE.fullmatch(line) for line in lines]
    return ended, [(match[1], int(match[2])) for match in matches if match]


@functools.cache
def faults_of(name: str) -> list[Fault]:
    """Every fault that is tried nightly."""
    ended, calls = run_swept(name, None)
    assert ended == "well"
    counts = Counter(call for call, _ in calls)
    assert len(counts) > 10, counts
    ways = [(code, times) for code in (SHORTAGE, UNKNOWN) for times in (1, FOR_GOOD)]
    return [
        (call, nth, *way)
        for call, count in sorted(counts.items())
        if OF_THE_DRIVER.match(call) and call not in ENDS_PYTORCH
        for nth in range(1, min(count, FIRST_CALLS) + 1)
        for way in ways
    ]


@pytest.mark.parametrize("name", [one.__name__ for one in PROGRAMS])
def test_each_call_fails_in_turn(name: str) -> None:
    faults = faults_of(name)
    if not tier.is_full():
        faults = random.Random(name).sample(faults, SAMPLE)
    ends = Counter(run_with(name, fault) for fault in faults)
    assert ends["well"] > 0, "no fault was absorbed"
    assert ends["well"] < len(faults), "no fault reached the program"


def run_with(name: str, fault: Fault) -> str:
    ended, calls = run_swept(name, fault)
    assert any(answer == fault[2] for _, answer in calls), f"{fault} did not strike"
    return ended
