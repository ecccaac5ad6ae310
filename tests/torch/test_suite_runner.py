"""The runner of PyTorch's own tests, on a file of ours; and what it makes of outcomes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from suite import judge
from suite.judge import Outcome
from suite.run import ROOT

from support import tier

FILE = """
import os
import subprocess
import sys
import unittest

import torch


class TestOurs(unittest.TestCase):
    def test_passes(self):
        self.assertEqual(torch.empty(1000, device="cuda").numel(), 1000)

    def test_reads_what_it_copied(self):
        self.assertEqual(torch.tensor([1, 2], device="cuda").tolist(), [1, 2])

    def test_fails(self):
        self.fail("always")

    def test_crashes(self):
        os._exit(3)

    def test_looks_into_the_allocator(self):
        self.assertEqual(torch.cuda.get_allocator_backend(), "native", "it is another")

    def test_children_have_the_same_allocator(self):
        code = "import torch; print(torch.cuda.get_allocator_backend())"
        said = subprocess.check_output([sys.executable, "-c", code], text=True)
        self.assertEqual(said.strip(), torch.cuda.get_allocator_backend())

    @unittest.skip("not today")
    def test_is_skipped(self):
        pass
"""


@pytest.mark.skipif(not tier.is_full(), reason=tier.NIGHTLY)
def test_a_file_is_run_in_each_way(tmp_path: Path) -> None:
    file, differences = tmp_path / "test_ours.py", tmp_path / "differences.txt"
    file.write_text(FILE)
    differences.write_text(
        "# A list.\n"
        "enabled TestOurs.test_looks_into_the_allocator: it asks which one\n"
        "enabled TestOurs.test_passes: it does not\n"
    )
    command = [sys.executable, str(ROOT / "suite" / "run.py"), str(file), "-k", "."]
    options = ["--ways", "enabled", "--jobs", "1", "--differences", str(differences)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    for line in (
        "TestOurs.test_passes: pytorch passed, enabled passed",
        "TestOurs.test_children_have_the_same_allocator: pytorch passed, enabled passed",
        "TestOurs.test_reads_what_it_copied: pytorch passed, enabled passed",
        "TestOurs.test_looks_into_the_allocator: pytorch passed, enabled failed",
        "  TestOurs.test_fails failed: AssertionError: always",
        "  TestOurs.test_crashes crashed: exit status 3",
        "  TestOurs.test_is_skipped skipped: not today",
        "TestOurs  7      4        3",
        "  enabled TestOurs.test_looks_into_the_allocator: it asks which one",
        "  enabled TestOurs.test_passes passes, and is listed as a difference",
    ):
        assert line in done.stdout.splitlines(), f"{line}\n{done.stdout}"


def test_a_difference_is_expected_or_wrong() -> None:
    outcomes = [
        *(Outcome("A.one", way, "passed") for way in ("pytorch", "enabled", "preloaded")),
        Outcome("A.two", "pytorch", "passed"),
        Outcome("A.two", "enabled", "hung", "line\nlast line\n"),
        Outcome("A.two", "preloaded", "skipped", "why"),
        Outcome("B.three", "pytorch", "failed", "no"),
    ]
    known, wrong = judge.judge(outcomes, {("A.two", "enabled"): "a reason"})
    assert known == ["enabled A.two: a reason"]
    assert wrong == ["preloaded A.two skipped: why"]
    assert judge.judge(outcomes, {})[1][0] == "enabled A.two hung: last line"
    listed = {("A.one", "enabled"): "r", ("A.two", "enabled"): "r", ("A.two", "preloaded"): "r"}
    assert judge.judge(outcomes, listed)[1] == [
        "enabled A.one passes, and is listed as a difference"
    ]
    assert judge.table(outcomes).splitlines() == [
        "class  tests  pytorch  enabled  preloaded",
        "A      2      2        1        1",
        "B      1      0        0        0",
        "all    3      2        1        1",
    ]


def test_a_list_is_read_or_refused(tmp_path: Path) -> None:
    file = tmp_path / "list"
    file.write_text("# comment\n\nenable() A.b: both: of them\npreloaded C.d: one\n")
    assert judge.read(file) == {
        ("A.b", "enabled"): "both: of them",
        ("A.b", "caching"): "both: of them",
        ("C.d", "preloaded"): "one",
    }
    for wrong in ("enabled A.b:", "enabled A.b", "A.b: reason", "elsewhere A.b: reason"):
        file.write_text(wrong)
        with pytest.raises(ValueError, match=r"list:1: "):
            judge.read(file)


def test_the_list_of_the_repository_is_read() -> None:
    differences = judge.read(ROOT / "suite" / "differences.txt")
    assert all(reason for reason in differences.values())
