"""What the outcomes of a run mean: a table, and whether they are as expected.

A test counts if it passes with PyTorch's own allocator. Where it then fails with Genesis, the list
of expected differences must have it, with its reason; and what is on the list must fail.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

#: The way that the others are compared with.
PYTORCHS = "pytorch"
#: The ways in which Genesis serves a test.
GENESIS = ("enabled", "caching", "preloaded")
#: In a list of differences: in each of the ways of `enable()`.
BOTH = "enable()"


@dataclass(frozen=True)
class Outcome:
    """How a test went in one way."""

    test: str
    way: str
    #: ``passed``, ``failed``, ``skipped``, ``crashed`` or ``hung``.
    state: str
    why: str = ""


#: Test and way → why it is not as with PyTorch's allocator.
Differences = dict[tuple[str, str], str]


def read(path: Path) -> Differences:
    """A list of differences: a line each, ``WAY CLASS.TEST: REASON``; ``#`` begins a comment."""
    found: Differences = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        head, colon, why = line.partition(": ")
        words = head.split()
        if not colon or not why.strip() or len(words) != 2:
            raise ValueError(f"{path}:{number}: not of the form 'WAY CLASS.TEST: REASON'")
        way, test = words
        if way not in (*GENESIS, BOTH):
            raise ValueError(f"{path}:{number}: there is no way {way!r}")
        for one in ("enabled", "caching") if way == BOTH else (way,):
            found[test, one] = why.strip()
    return found


def table(outcomes: list[Outcome]) -> str:
    """How many tests of each class passed in each way, of those that pass with PyTorch's."""
    own = {one.test for one in outcomes if one.way == PYTORCHS and one.state == "passed"}
    ways = [way for way in GENESIS if any(one.way == way for one in outcomes)]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for one in outcomes:
        of_class = counts[one.test.split(".")[0]]
        of_class["tests"] += one.way == PYTORCHS
        of_class[one.way] += one.state == "passed" and one.test in own
    head = ["class", "tests", PYTORCHS, *ways]
    rows = [[name, *(str(of[key]) for key in head[1:])] for name, of in sorted(counts.items())]
    total = [str(sum(of[key] for of in counts.values())) for key in head[1:]]
    rows = [head, *rows, ["all", *total]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows
    )


def judge(outcomes: list[Outcome], expected: Differences) -> tuple[list[str], list[str]]:
    """The differences that are expected, with their reasons, and what is wrong, a line each."""
    own = {one.test for one in outcomes if one.way == PYTORCHS and one.state == "passed"}
    known, wrong = [], []
    for one in outcomes:
        if one.way == PYTORCHS or one.test not in own:
            continue
        listed = expected.get((one.test, one.way))
        if one.state != "passed" and listed is not None:
            known.append(f"{one.way} {one.test}: {listed}")
        elif one.state != "passed":
            wrong.append(f"{one.way} {one.test} {one.state}: {reason(one.why)}")
        elif listed is not None:
            wrong.append(f"{one.way} {one.test} passes, and is listed as a difference")
    return known, wrong


def reason(text: str) -> str:
    """The line of a traceback that has the exception, or the last one."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(\w+\.)*\w+(Error|Exception)\b", line)]
    return (errors or lines or ["nothing said"])[-1]
