"""Runs PyTorch's own tests of memory: ``cargo xtask test-pytorch-suite FILE``.

``FILE`` is PyTorch's ``test/test_cuda.py``, which no package has; this project has no copy of it.
Each test runs in a process of its own on simcuda, in four ways:

=============  =========================================================
``pytorch``    PyTorch's own allocator
``enabled``    ``genesis.torch.enable()``, in processes that a test starts, too
``caching``    the same, with the strategy that has PyTorch's sizes
``preloaded``  PyTorch's allocator, under the preload library
=============  =========================================================

A test that fails with PyTorch's allocator is tried on a second machine, whose streams advance only
when they are waited for and whose copies move bytes. If it fails there, too (most of those look at
what kernels computed), it is not run in the other ways. A test that passes with PyTorch's allocator
and fails with Genesis must be in ``differences.txt``, with its reason.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Optional

ROOT = Path(__file__).resolve().parent.parent
PACKAGE_FOLDER = ROOT.parent.parent / "python"
sys.path[:0] = [str(ROOT), str(PACKAGE_FOLDER)]

import genesis  # noqa: E402
from suite import judge  # noqa: E402
from suite.judge import Outcome  # noqa: E402
from support import processes  # noqa: E402

#: Which tests concern memory: parts of their names, with their classes.
MEMORY = (
    r"CudaMallocAsync|BlockStateAbsorption|MemPool|HostAllocator|CudaAllocator|"
    r"alloc|memor|_oom|pinned|mempool|pool|graph|stream|workspace|cycles|leak|fraction|"
    r"snapshot|segment|checkpoint|blocking|lazy_init|prod_large|register"
)
#: What the tests import that does not start CUDA is imported before they are forked.
PREPARED = ("support.before_fork", "numpy", "torch.cuda._memory_viz")
PLAIN = processes.Place("suite.child", (ROOT, PACKAGE_FOLDER), prepared=PREPARED)
PRELOAD_LIBRARY = Path(genesis.library_path()).with_name("libgenesis_preload.so")


def place_of(way: str) -> processes.Place:
    if way == "preloaded":
        preloaded = f"{PRELOAD_LIBRARY}:{os.environ.get('LD_PRELOAD', '')}"
        return dataclasses.replace(PLAIN, preloaded=preloaded)
    return PLAIN


#: The memory of an H100 as its driver reports it. Of a power of two, two halves would fit.
DEVICE = {"SIMCUDA_MEMORY": "81559MiB"}
#: The machines a test is tried on, the faster first.
MACHINES = (DEVICE, {**DEVICE, "SIMCUDA_PROGRESS": "manual", "SIMCUDA_STORE": "bytes"})


def environment_of(way: str, machine: dict[str, str]) -> dict[str, str]:
    if way not in ("enabled", "caching"):
        return machine
    path = [ROOT / "suite" / "enabled", ROOT, PACKAGE_FOLDER]
    variables = {**machine, "PYTHONPATH": os.pathsep.join(map(str, path))}
    return {**variables, "GENESIS_POOL_TYPE": "Caching"} if way == "caching" else variables


def ask(file: Path, way: str, test: Optional[str], machine: dict[str, str] = DEVICE) -> Any:
    """What the child answers; without a test, the names of all."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        arguments = {
            "file": str(file),
            "test": test,
            "enable": way in ("enabled", "caching"),
            "result": str(result),
        }
        try:
            finished = processes.run(place_of(way), arguments, environment_of(way, machine))
        except TimeoutError as error:
            return {"is": "hung", "why": str(error)}
        # The answer comes before the end of the process, which must be good, too.
        if finished.status == 0 and result.exists():
            return json.loads(result.read_text())
        return {"is": "crashed", "why": f"{finished.stderr}\nexit status {finished.status}"}


def run_one(file: Path, test: str, ways: Iterable[str]) -> list[Outcome]:
    """A test in each way, PyTorch's first, on the first machine where it passes there; if it
    passes on none, how it failed on the first."""
    firsts = []
    for machine in MACHINES:
        firsts.append(outcome(file, judge.PYTORCHS, test, machine))
        if firsts[-1].state == "passed":
            return [firsts[-1], *(outcome(file, way, test, machine) for way in ways)]
    return firsts[:1]


def outcome(file: Path, way: str, test: str, machine: dict[str, str]) -> Outcome:
    answer = ask(file, way, test, machine)
    return Outcome(test, way, answer["is"], answer["why"])


def run_all(file: Path, tests: list[str], ways: list[str], jobs: int, limit: int) -> list[Outcome]:
    outcomes: list[Outcome] = []
    with concurrent.futures.ProcessPoolExecutor(jobs, initializer=begin, initargs=(limit,)) as pool:
        running = {pool.submit(run_one, file, test, ways): test for test in tests}
        for done in concurrent.futures.as_completed(running):
            found = done.result()
            outcomes += found
            states = ", ".join(f"{one.way} {one.state}" for one in found)
            print(f"{running[done]}: {states}", flush=True)
    return sorted(outcomes, key=lambda one: one.test)


def begin(limit: int) -> None:
    """In each worker, which has fork servers of its own. They end when their input does."""
    processes.TIMEOUT_SECONDS = limit


def main() -> int:
    parser = argparse.ArgumentParser(prog="cargo xtask test-pytorch-suite", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", type=Path, help="PyTorch's test/test_cuda.py")
    parser.add_argument("-k", default=MEMORY, help="a regular expression: which tests to run")
    parser.add_argument("--ways", nargs="*", default=list(judge.GENESIS), choices=judge.GENESIS)
    parser.add_argument("--limit", type=int, default=120, help="seconds that one test may take")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--differences", type=Path, default=ROOT / "suite" / "differences.txt")
    parser.add_argument("-v", action="store_true", help="print all of what failed tests said")
    given = parser.parse_args()

    names = ask(given.file, judge.PYTORCHS, None)
    processes.end()
    if isinstance(names, dict):
        print(names["why"], file=sys.stderr)
        return 2
    tests = [name for name in names if re.search(given.k, name, re.IGNORECASE)]
    outcomes = run_all(given.file, tests, given.ways, given.jobs, given.limit)
    return report(outcomes, judge.read(given.differences), given.v)


def report(outcomes: list[Outcome], expected: judge.Differences, says_all: bool) -> int:
    """Prints what was found; 1 if it is not as expected."""
    known, wrong = judge.judge(outcomes, expected)
    print("\nNot judged: they do not pass with PyTorch's allocator on simcuda.")
    for one in outcomes:
        if one.way == judge.PYTORCHS and one.state != "passed":
            print(f"  {one.test} {one.state}: {judge.reason(one.why)}")
    if says_all:
        for one in outcomes:
            if one.state not in ("passed", "skipped"):
                print(f"\n{one.way} {one.test} {one.state}:\n{one.why}")
    print(f"\n{judge.table(outcomes)}")
    for title, lines in (("Differences, as listed:", known), ("Not as listed:", wrong)):
        print("\n  ".join(["", title, *lines]) if lines else "")
    if not any(one.state == "passed" for one in outcomes):
        print("no test passed with PyTorch's allocator")
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
