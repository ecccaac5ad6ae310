"""The harness itself: a program that fails, writes or leaks fails its test, and programs that are
forked from one process share nothing else."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Callable, Optional

import pytest
import torch

from support.program import run

KEPT: list[object] = []


def raises() -> None:
    raise KeyError("mine")


def writes() -> None:
    print("a word", file=sys.stderr)


def exits() -> None:
    os._exit(3)


def is_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leaks() -> None:
    KEPT.append(torch.zeros(1000, device="cuda"))


def does_nothing() -> None:
    pass


@pytest.mark.parametrize("fresh", [False, True])
def test_an_exception_fails_the_test(fresh: bool) -> None:
    with pytest.raises(AssertionError, match=r"exit status 1\n(.*\n)*KeyError: 'mine'"):
        run(raises, "native", ending="any", fresh=fresh)


@pytest.mark.parametrize(
    ("program", "expected", "message"),
    [
        (writes, {}, "standard error is not silent:\na word"),
        (does_nothing, {"says": "genesis: "}, "standard error is not lines of 'genesis: '"),
        (does_nothing, {"violations": True}, "the race detector was expected to find something"),
        (exits, {}, "exit status 3"),
        (is_killed, {}, "exit status -9"),
    ],
)
def test_what_was_not_expected_fails_the_test(
    program: Callable[[], None], expected: dict[str, Any], message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        run(program, "native", ending="any", **expected)


def test_memory_that_is_left_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="AssertionError"):
        run(leaks, "enabled", ending="freed")
    run(leaks, "enabled", ending="live")


def state() -> list[Optional[object]]:
    KEPT.append("something")
    seen = [os.environ.get("OF_ONE_PROGRAM"), len(KEPT), torch.cuda.is_initialized()]
    os.environ["OF_ONE_PROGRAM"] = "changed"
    torch.cuda.init()
    return seen


def test_programs_share_nothing() -> None:
    assert run(state, "native", {"OF_ONE_PROGRAM": "set"}, ending="any") == ["set", 1, False]
    assert run(state, "native", ending="any") == [None, 1, False]
