"""Test functions that are programs: each runs in a process of its own, because PyTorch's allocator
can be chosen once per process, and because how a process ends is part of what is tested. The
processes are forked from one that has imported PyTorch (:mod:`support.processes`).

``@program(modes=…)`` makes a test of a function, one for each mode:

===============  =====================================================================
``two_symbols``  the library plugged in by the names of two functions, nothing else
``enabled``      ``genesis.torch.enable()``
``mem_pool``     the program runs within ``torch.cuda.use_mem_pool(genesis.torch.mem_pool())``
``native``       PyTorch's allocator; the program does the rest
``preloaded``    PyTorch's allocator, under the preload library
===============  =====================================================================

A program passes if its process exits with 0 and wrote nothing to standard error, the race detector
found nothing, and every byte is accounted for (:mod:`support.child`).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

import genesis
from support import processes

ROOT = Path(__file__).resolve().parent.parent
PACKAGE_FOLDER = ROOT.parent.parent / "python"

#: Beside the library under test, which ``cargo xtask test-torch`` names.
PRELOAD_LIBRARY = Path(genesis.library_path()).with_name("libgenesis_preload.so")
#: Where programs run as they are, and where under the preload library. That one comes before
#: simcuda, which is preloaded in place of CUDA's libraries.
PLAIN = processes.Place(
    "support.child",
    (ROOT, PACKAGE_FOLDER),
    # The files with the programs import this module, which imports pytest for half a second.
    prepared=("support.before_fork", "support.program"),
)
PRELOADED = dataclasses.replace(
    PLAIN, preloaded=f"{PRELOAD_LIBRARY}:{os.environ.get('LD_PRELOAD', '')}"
)
#: The ways in which a program gets Genesis's memory.
EVERY_WAY = ("two_symbols", "enabled", "mem_pool", "preloaded")

#: What Genesis writes when it has to refuse a request.
OUT_OF_MEMORY = "genesis: out of memory: "


@dataclasses.dataclass(frozen=True)
class Expected:
    """What must hold at a program's end, and how it is started."""

    #: What is checked when the program has returned (see :mod:`support.child`).
    ending: str = "freed"
    #: The race detector finds something.
    violations: bool = False
    #: What every line on standard error matches; ``None``: there are no lines.
    says: Optional[str] = None
    #: Lines of PyTorch's own that match do not count: some versions write them.
    ignored: str = "$."
    #: The process is started for this program alone, not forked.
    fresh: bool = False


def program(
    modes: Sequence[str] = ("enabled",), env: Optional[Mapping[str, str]] = None, **expected: Any
) -> Callable[[Callable[[], Any]], Callable[..., None]]:
    """Makes a test of a program, which runs with the variables ``env``; ``expected`` are the
    fields of :class:`Expected`."""

    def decorate(function: Callable[[], Any]) -> Callable[..., None]:
        @pytest.mark.parametrize("mode", modes)
        def test(mode: str) -> None:
            run(function, mode, env, **expected)

        functools.update_wrapper(test, function)
        del test.__wrapped__  # pytest reads the arguments of what it finds there
        test.program = function  # type: ignore[attr-defined]
        return test

    return decorate


def run(
    function: Callable[[], Any], mode: str, env: Optional[Mapping[str, str]] = None, **more: Any
) -> Any:
    """Runs a function of a test file as a program, and returns what it returned, as JSON."""
    expected = Expected(**more)
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        arguments = {
            "file": inspect.getsourcefile(function),
            "function": function.__name__,
            "mode": mode,
            "ending": expected.ending,
            "violations": expected.violations,
            "result": str(result),
        }
        place = PRELOADED if mode == "preloaded" else PLAIN
        finished = processes.run(place, arguments, env or {}, expected.fresh)
        says = "simcuda: " if expected.violations else expected.says
        finished.check(says, expected.ignored)
        return json.loads(result.read_text())
