"""Test functions that are programs: each runs in a process of its own, since PyTorch's allocator
can be chosen once a process, and since how a process ends is part of what is tested.

``@program(modes=…)`` makes a test of a function, one for each mode:

===============  =====================================================================
``two_symbols``  the library plugged in by the names of two functions, nothing else
``enabled``      ``genesis.torch.enable()``
``mem_pool``     the program runs within ``torch.cuda.use_mem_pool(genesis.torch.mem_pool())``
``native``       PyTorch's allocator; the program does the rest
``preloaded``    PyTorch's allocator, under the preload library
===============  =====================================================================

A program passes if its process ends with 0 and silent standard error, the race detector found
nothing, and every byte is accounted for (:mod:`support.child`).
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Sequence

import pytest

import genesis

TIMEOUT_SECONDS = 120
ROOT = Path(__file__).resolve().parent.parent
PACKAGE_FOLDER = ROOT.parent.parent / "python"

#: Beside the library under test, which ``cargo xtask test-torch`` names.
PRELOAD_LIBRARY = Path(genesis.library_path()).with_name("libgenesis_preload.so")
#: It comes before simcuda, which is preloaded in place of CUDA's libraries.
PRELOADED = {"LD_PRELOAD": f"{PRELOAD_LIBRARY}:{os.environ.get('LD_PRELOAD', '')}"}
#: The ways in which a program gets Genesis's memory.
EVERY_WAY = ("two_symbols", "enabled", "mem_pool", "preloaded")

#: What Genesis says when it has to refuse a request.
OUT_OF_MEMORY = "genesis: out of memory: "


def program(
    modes: Sequence[str] = ("enabled",),
    env: Optional[Mapping[str, str]] = None,
    ending: str = "freed",
    violations: bool = False,
    says: Optional[str] = None,
) -> Callable[[Callable[[], Any]], Callable[..., None]]:
    """Makes a test of a program. ``ending`` says what is checked when it has returned (see
    :mod:`support.child`); with ``violations`` the race detector is expected to find some;
    ``says`` is what every line on standard error matches, where it is not silent."""

    def decorate(function: Callable[[], Any]) -> Callable[..., None]:
        @pytest.mark.parametrize("mode", modes)
        def test(mode: str) -> None:
            run(function, mode, env, ending, violations, says)

        functools.update_wrapper(test, function)
        del test.__wrapped__  # pytest reads the arguments of what it finds there
        test.program = function  # type: ignore[attr-defined]
        return test

    return decorate


def run(
    function: Callable[[], Any],
    mode: str,
    env: Optional[Mapping[str, str]] = None,
    ending: str = "freed",
    violations: bool = False,
    says: Optional[str] = None,
) -> Any:
    """Runs a function of a test file as a program, and returns what it returned, as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        arguments = {
            "file": inspect.getsourcefile(function),
            "function": function.__name__,
            "mode": mode,
            "ending": ending,
            "violations": violations,
            "result": str(result),
        }
        finished = subprocess.run(
            [sys.executable, "-m", "support.child", json.dumps(arguments)],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": str(PACKAGE_FOLDER),
                **(PRELOADED if mode == "preloaded" else {}),
                **(env or {}),
            },
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        said = f"{finished.stdout}{finished.stderr}"
        assert finished.returncode == 0, f"exit status {finished.returncode}\n{said}"
        if violations:
            says = "simcuda: "
        lines = finished.stderr.splitlines()
        if says is None:
            assert lines == [], f"standard error is not silent:\n{said}"
        else:
            assert lines and all(re.match(says, line) for line in lines), said
        return json.loads(result.read_text())
