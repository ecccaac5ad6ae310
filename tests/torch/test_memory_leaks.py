"""Leaks of PyTorch programs are reported with the line that allocated them, and nothing else is."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import torch

import genesis
from support.models import Shape, train
from support.program import program

MIB = 1 << 20
kept: list[torch.Tensor] = []


def block(n: int) -> torch.Tensor:
    return torch.empty(n, dtype=torch.uint8, device="cuda")


def keep_two() -> None:
    for _ in range(2):
        kept.append(block(3 * MIB))


def keep_one() -> None:
    kept.append(block(5 * MIB))


def place_of(text: str, within: str) -> str:
    """The line of this file that contains ``text``, in the form of a location."""
    lines = Path(__file__).read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if text in line)
    return f"{__file__}:{number} ({within})"


@program()
def test_a_program_that_leaks_three_blocks_in_two_places_is_told_exactly_those() -> None:
    genesis.enable_memory_debugging(True)
    train(Shape(layers=1), lengths=[64])
    torch._C._cuda_clearCublasWorkspaces()
    assert genesis.check_memory_leaks() == []
    keep_two()
    keep_one()
    leaks = genesis.check_memory_leaks()
    assert [leak.size for leak in leaks] == [5 * MIB, 3 * MIB, 3 * MIB]
    place = place_of("return torch.empty", "block")
    assert {leak.location for leak in leaks} == {place}, leaks
    callers = [leak.stack[1] for leak in leaks]
    assert callers[0] == place_of("kept.append(block(5", "keep_one"), callers
    assert callers[1] == callers[2] == place_of("kept.append(block(3", "keep_two"), callers
    assert {leak.address for leak in leaks} == {tensor.data_ptr() for tensor in kept}
    assert all(leak.age is not None and 0 <= leak.age < 60 for leak in leaks), leaks
    assert {(leak.device, leak.stream, leak.tag) for leak in leaks} == {(0, 0, None)}
    assert [leak.size for leak in genesis.check_memory_leaks(0, "4MB")] == [5 * MIB]
    kept.clear()
    assert genesis.check_memory_leaks() == []


def lose_one() -> None:
    """Loses the only reference to a block. What modules hold, Python frees when it ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(block(5 * MIB)))


AT_EXIT = "genesis: 1 block of 5.00 MiB live at exit:$"
ITS_PLACE = r"  1 block of 5.00 MiB .* allocated at .*test_memory_leaks.py:\d+ \(block\)"


@program(ending="live", says=f"{AT_EXIT}|{ITS_PLACE}")
def test_what_nobody_holds_at_the_end_is_told() -> None:
    genesis.enable_memory_debugging(checks=["leaks"])
    keep_two()
    lose_one()


@program(ending="live")
def test_but_not_after_debugging_was_turned_off() -> None:
    genesis.enable_memory_debugging()
    lose_one()
    genesis.enable_memory_debugging(False)
    assert genesis.options.get("debug") == "off"


@program()
def test_garbage_that_python_would_collect_is_no_leak() -> None:
    genesis.enable_memory_debugging()
    cycle: list[object] = [block(MIB)]
    cycle.append(cycle)
    del cycle
    assert genesis.check_memory_leaks() == []


@program()
def test_a_profile_knows_places_too() -> None:
    before = block(7 * MIB)
    with genesis.memory_profiler.record():
        keep_one()
        old, new = genesis.detailed_memory_stats().get_large_allocations()
        assert (old.location, old.age, old.address) == ("unknown", None, before.data_ptr())
        assert re.match(re.escape(place_of("return torch.empty", "block")), new.location), new
        assert new.age is not None
    assert [one.location for one in genesis.check_memory_leaks()] == ["unknown"] * 2
    kept.clear()


@program()
def test_checks_are_named_rightly() -> None:
    genesis.enable_memory_debugging(checks="poison,leaks")
    assert genesis.options.get("debug") == "leaks,poison"
    genesis.enable_memory_debugging(checks=("quarantine",))
    assert genesis.options.get("debug") == "quarantine"
    try:
        genesis.enable_memory_debugging(checks="leeks")
    except genesis.InvalidArgumentError as error:
        assert "leaks" in str(error)
    else:
        raise AssertionError("there are no such checks")


@program(env={"GENESIS_POOL_TYPE": "Elastic"})
def test_a_leak_has_its_tag() -> None:
    with genesis.tag("weights"):
        keep_one()
    (leak,) = genesis.check_memory_leaks()
    assert leak.tag == "weights"
    kept.clear()
