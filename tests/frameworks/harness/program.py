"""Test functions that are programs: each runs in a process of its own, since the allocator of most
frameworks is chosen once, and since how a process ends is part of what is tested.

A program passes if its process ends with 0 and a silent standard error, the race detector found
nothing, and the memory is accounted for (:mod:`harness.child`).
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Mapping, Optional

TIMEOUT_SECONDS = 120
ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (ROOT.parent.parent / "python", ROOT, ROOT.parent / "torch")

#: What simcuda says of functions that a framework looks for and can do without.
LOOKED_FOR = re.compile(r"simcuda: \w* is not implemented")


def program(
    env: Optional[Mapping[str, str]] = None,
    ending: str = "freed",
    violations: bool = False,
    static_runtime: Optional[str] = None,
    says: Optional[str] = None,
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Makes a test of a program. ``ending`` says what is checked when it has returned (see
    :mod:`harness.child`); with ``violations`` the race detector is expected to find some;
    ``static_runtime`` names a module whose runtime is taken over (:mod:`harness.static_runtime`);
    ``says`` is what every line on standard error matches, where it is not silent."""

    def decorate(function: Callable[[], None]) -> Callable[[], None]:
        def test() -> None:
            arguments = {
                "file": inspect.getsourcefile(function),
                "function": function.__name__,
                "ending": ending,
                "violations": violations,
                "static_runtime": static_runtime,
            }
            run(arguments, env or {}, "simcuda: " if violations else says)

        functools.update_wrapper(test, function)
        del test.__wrapped__  # type: ignore[attr-defined]
        test.program = function  # type: ignore[attr-defined]
        return test

    return decorate


def run(arguments: Mapping[str, Any], env: Mapping[str, str], says: Optional[str]) -> None:
    """Runs a function of a test file as a program."""
    path = os.pathsep.join(str(folder) for folder in FOLDERS)
    finished = subprocess.run(
        [sys.executable, "-m", "harness.child", json.dumps(arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, **env},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    lines = [line for line in finished.stderr.splitlines() if not LOOKED_FOR.fullmatch(line)]
    said = finished.stdout + "\n".join(lines)
    assert finished.returncode == 0, f"exit status {finished.returncode}\n{said}"
    if says is None:
        assert lines == [], f"standard error is not silent:\n{said}"
    else:
        assert lines and all(re.match(says, line) for line in lines), said
