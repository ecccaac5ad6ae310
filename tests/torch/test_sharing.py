"""Tensors sent to other processes: each program under PyTorch's own allocator, with segments and
with expandable ones, and under Genesis, with Caching and with Elastic."""

from __future__ import annotations

import functools
import gc
import time
from typing import Any, Callable

import pytest
import torch
import torch.multiprocessing

import genesis
import genesis.torch
from support.program import run
from support.sharing import consumer, described, refusal, values, write

MIB = 1 << 20
BYTES = {"SIMCUDA_STORE": "bytes"}
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
ELASTIC, CACHING = {"GENESIS_POOL_TYPE": "Elastic"}, {"GENESIS_POOL_TYPE": "Caching"}
EVERYWHERE = {
    "native": ("native", BYTES),
    "expandable": ("native", {**BYTES, **EXPANDABLE}),
    "caching": ("enabled", {**BYTES, **CACHING}),
    "elastic": ("enabled", {**BYTES, **ELASTIC}),
}


def everywhere(function: Callable[[], Any]) -> Callable[..., None]:
    """Makes a test of a program, one for each allocator."""

    @pytest.mark.parametrize("where", EVERYWHERE)
    def test(where: str) -> None:
        mode, env = EVERYWHERE[where]
        run(function, mode, env)

    functools.update_wrapper(test, function)
    del test.__wrapped__
    test.program = function  # type: ignore[attr-defined]
    return test


def mode() -> str:
    return "enabled" if genesis.torch.is_enabled() else "native"


def full(*shape: int, value: float = 1.0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    tensor = torch.empty(*shape, dtype=dtype, device="cuda")
    write(tensor, value)
    return tensor


def expect_allocated(expected: int) -> None:
    """PyTorch's own allocator is told to look; Genesis's hears of a release in a moment."""
    allocated = -1
    for _ in range(200):
        gc.collect()
        torch.cuda.ipc_collect()
        allocated = torch.cuda.memory_allocated()
        if allocated == expected:
            return
        time.sleep(0.02)
    raise AssertionError(f"{allocated} bytes are allocated, not {expected}")


@everywhere
def test_tensors_arrive_as_they_are() -> None:
    whole = full(64, 32, value=3.0)
    sent = {
        "whole": whole,
        "view": whole[::2].t(),
        "part": whole[40:, 5:9],
        "element": whole[7, 7],
        "parameter": torch.nn.Parameter(full(10, value=2.0)),
        "leaf": full(10, value=4.0).requires_grad_(),
        "half": full(33, value=5.0, dtype=torch.float16),
        "large": full(75 * MIB, value=6.0),
    }
    empty = torch.empty(0, 3, device="cuda")
    with consumer(mode()) as other:
        for name, tensor in sent.items():
            assert other.ask("keep", name, tensor) == described(tensor), name
        assert other.ask("keep", "empty", empty)["shape"] == [0, 3]
        # One storage is one mapping there, whatever is sent of it.
        base = other.ask("address", "whole")[1]
        for name in ("view", "part", "element"):
            address, storage = other.ask("address", name)
            assert storage == base, name
            assert address - storage == sent[name].data_ptr() - whole.data_ptr()
        other.ask("write", "part", 9.0)
        assert values(whole) == [9.0] * 8
        write(whole, 8.0)
        assert other.ask("values", "view") == [8.0] * 8
        assert "Attempted to send CUDA tensor received" in other.ask("refusal", "view")
    assert "Cowardly refusing" in refusal(sent["leaf"] * 2)
    assert whole.share_memory_() is whole and whole.is_shared()
    del sent, whole, tensor, empty
    expect_allocated(0)


@everywhere
def test_a_block_lives_until_the_consumer_lets_go() -> None:
    tensors = [full(5 * MIB, value=float(index)) for index in range(3)]
    held = torch.cuda.memory_allocated()
    with consumer(mode()) as other:
        for index, tensor in enumerate(tensors):
            other.ask("keep", str(index), tensor)
            other.ask("keep", f"again {index}", tensor)
        addresses = {tensor.data_ptr() for tensor in tensors}
        del tensors, tensor
        expect_allocated(held)
        torch.cuda.empty_cache()
        new = [full(5 * MIB, value=50.0) for _ in range(6)]
        assert addresses.isdisjoint(tensor.data_ptr() for tensor in new)
        for index in range(3):
            assert other.ask("values", str(index)) == [float(index)] * 8
            other.ask("drop", f"again {index}")
            assert other.ask("values", str(index)) == [float(index)] * 8
        other.ask("drop", "0")
        expect_allocated(held // 3 * 8)
        del new
        other.ask("drop", "1")
        other.ask("drop", "2")
        expect_allocated(0)


@everywhere
def test_a_tensor_may_be_sent_to_several_and_again() -> None:
    tensor = full(1000, value=1.0)
    with consumer(mode()) as first, consumer(mode()) as second:
        for round_ in range(3):
            write(tensor, float(round_))
            for other in (first, second):
                other.ask("keep", "it", tensor)
                assert other.ask("values", "it") == [float(round_)] * 8
            first.ask("drop", "it")
    del tensor
    expect_allocated(0)
