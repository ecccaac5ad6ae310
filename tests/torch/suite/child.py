"""What the process of one test does: it chooses the allocator, loads the file, runs the test, and
writes down how it went."""

from __future__ import annotations

import importlib.util
import json
import sys
import unittest
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from support import simcuda


def main(arguments: dict[str, Any]) -> None:
    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_cudnn_sdp(False)
    if arguments["enable"]:
        import genesis.torch

        genesis.torch.enable()
    suite = unittest.TestLoader().loadTestsFromModule(load(arguments["file"]))
    tests = {name_of(test): test for test in each(suite)}
    answer: Any = list(tests)
    if arguments["test"]:
        answer = outcome(tests[arguments["test"]])
    Path(arguments["result"]).write_text(json.dumps(answer))


def load(file: str) -> ModuleType:
    """The file as a module of its own name. What it imports from its own folder is found there."""
    path = Path(file).resolve()
    sys.path.append(str(path.parent))
    # PyTorch's `unittest` helpers read the arguments of the command line.
    sys.argv = [str(path)]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def each(suite: Any) -> list[unittest.TestCase]:
    """The tests of a suite of suites."""
    if isinstance(suite, unittest.TestCase):
        return [suite]
    return [test for part in suite for test in each(part)]


def name_of(test: unittest.TestCase) -> str:
    return ".".join(test.id().rsplit(".", 2)[-2:])


def outcome(test: unittest.TestCase) -> dict[str, Any]:
    """``passed``, ``skipped`` or ``failed``, and why."""
    result = unittest.TestResult()
    test.run(result)
    for _, reason in result.skipped:
        return {"is": "skipped", "why": reason}
    for _, text in result.errors + result.failures:
        return {"is": "failed", "why": text}
    found = simcuda.violations()
    if found:
        return {"is": "failed", "why": f"the race detector: {simcuda.violations_text()}"}
    return {"is": "passed", "why": ""}
