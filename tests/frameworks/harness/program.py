"""Test functions that are programs: each runs in a process of its own, because most frameworks let
their allocator be chosen once, and because how a process ends is part of what is tested. The
processes are forked from one that has imported the framework (:mod:`support.processes`).

A program passes if its process exits with 0 and wrote nothing to standard error, the race detector
found nothing, and the memory is accounted for (:mod:`harness.child`).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable, Optional

from support import processes

ROOT = Path(__file__).resolve().parent.parent
PLACE = processes.Place(
    "harness.child", (ROOT, ROOT.parent.parent / "python", ROOT.parent / "torch")
)

#: What simcuda writes about functions that a framework looks for and can do without.
LOOKED_FOR = r"simcuda: \w* is not implemented"


@dataclasses.dataclass(frozen=True)
class Expected:
    """What must hold at a program's end, and how it is started."""

    #: What is checked when the program has returned (see :mod:`harness.child`).
    ending: str = "freed"
    #: The race detector finds something.
    violations: bool = False
    #: What every line on standard error matches; ``None``: there are no lines.
    says: Optional[str] = None
    #: What is imported before the program.
    imports: tuple[str, ...] = ()
    #: The process is started for this program alone, not forked.
    fresh: bool = False


def program(
    env: Optional[Mapping[str, str]] = None, **more: Any
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Makes a test of a program, which runs with the variables ``env``; ``more`` are the fields of
    :class:`Expected`."""
    expected = Expected(**more)

    def decorate(function: Callable[[], None]) -> Callable[[], None]:
        def test() -> None:
            run(function, env or {}, expected)

        functools.update_wrapper(test, function)
        del test.__wrapped__  # type: ignore[attr-defined]
        test.program = function  # type: ignore[attr-defined]
        return test

    return decorate


def run(function: Callable[[], None], env: Mapping[str, str], expected: Expected) -> None:
    """Runs a function of a test file as a program."""
    arguments = {
        "file": inspect.getsourcefile(function),
        "function": function.__name__,
        "ending": expected.ending,
        "violations": expected.violations,
    }
    place = dataclasses.replace(PLACE, imports=expected.imports)
    finished = processes.run(place, arguments, env, expected.fresh)
    finished.check("simcuda: " if expected.violations else expected.says, ignored=LOOKED_FOR)
