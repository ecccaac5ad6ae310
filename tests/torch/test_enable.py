"""``genesis.torch.enable()``: once, in time, with options that exist."""

from __future__ import annotations

import re
from typing import Any, Callable

import torch

import genesis
import genesis.torch
from support.program import OUT_OF_MEMORY, program


def raises(kind: type[BaseException], pattern: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except kind as error:
        assert re.search(pattern, str(error)), str(error)
    else:
        raise AssertionError(f"{kind.__name__} expected")


@program(modes=("native",), says=OUT_OF_MEMORY)
def test_options_are_set() -> None:
    genesis.torch.enable(pool_type="Round", memory_fraction=0.9, memory_limit=1 << 30)
    assert genesis.options.get("pool_type") == "Round"
    assert genesis.options.get("memory_fraction") == "0.9"
    tensor = torch.zeros(5000, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated() == 8192, "Round's powers of two"
    assert torch.cuda.get_per_process_memory_fraction() == 0.9
    raises(torch.OutOfMemoryError, "", lambda: torch.zeros(1 << 29, device="cuda"))
    del tensor


@program(modes=("native",), ending="any")
def test_what_is_wrong_is_said_and_changes_nothing() -> None:
    enable = genesis.torch.enable
    raises(
        TypeError,
        "pol_type is not an option; did you mean pool_type",
        lambda: enable(pol_type="Round"),
    )
    raises(ValueError, "valid: Naive, Round", lambda: enable(pool_type="Cashing"))
    assert not genesis.torch.is_enabled()
    assert torch.cuda.get_allocator_backend() == "native"
    enable()
    assert genesis.torch.is_enabled()
    assert torch.cuda.get_allocator_backend() != "native"


@program(modes=("native",))
def test_too_late() -> None:
    tensor = torch.zeros(1, device="cuda")
    raises(RuntimeError, "too late", genesis.torch.enable)
    assert torch.cuda.memory_allocated() == 512, "PyTorch's allocator goes on"
    del tensor


@program(modes=("two_symbols",))
def test_after_another_choice() -> None:
    raises(RuntimeError, "in use or was chosen before", genesis.torch.enable)


@program(modes=("native",))
def test_twice() -> None:
    genesis.torch.enable(memory_fraction=0.5)
    genesis.torch.enable(memory_fraction=0.5)
    raises(
        RuntimeError,
        "before with memory_fraction=0.5.* again with no options",
        genesis.torch.enable,
    )
    torch.zeros(1, device="cuda")
    genesis.torch.enable(memory_fraction=0.5)


@program(modes=("native",), env={"GENESIS_POOL_TYPE": "Cashing"}, ending="any")
def test_a_wrong_environment() -> None:
    raises(genesis.ConfigurationError, "GENESIS_POOL_TYPE=Cashing", genesis.torch.enable)
    assert torch.cuda.get_allocator_backend() == "native"


@program(modes=("native",), ending="any")
def test_the_two_kinds_of_pools_are_told_apart() -> None:
    raises(RuntimeError, "call genesis.torch.enable", lambda: genesis.torch.pool().__enter__())
    genesis.torch.enable()
    raises(RuntimeError, "use genesis.torch.pool", genesis.torch.mem_pool)


@program(modes=("native",), ending="any")
def test_importing_and_enabling_start_nothing() -> None:
    genesis.torch.enable()
    assert not torch.cuda.is_initialized()
    assert torch.cuda.memory_allocated() == 0
    assert not torch.cuda.is_initialized()
