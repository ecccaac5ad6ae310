"""PyTorch's own settings: followed, or named once; explicit options of Genesis win."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import genesis
from genesis.torch._alloc_conf import parse
from support.memory import MIB, block
from support.program import OUT_OF_MEMORY, program

GIB = 1 << 30


@contextmanager
def warned() -> Iterator[list[str]]:
    """The texts of Genesis's warnings within the block."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    texts += [str(one.message) for one in caught if "genesis: " in str(one.message)]


def enable(**options: Any) -> list[str]:
    with warned() as texts:
        genesis.torch.enable(**options)
    return texts


@program(
    modes=("native",),
    env={
        "PYTORCH_ALLOC_CONF": "per_process_memory_fraction:0.1, garbage_collection_threshold:0.6,"
        "pinned_num_register_threads:4,release_lock_on_cudamalloc:True"
    },
    says="genesis: out of memory: ",
)
def test_what_has_an_option_is_followed() -> None:
    assert enable() == []
    assert torch.cuda.get_per_process_memory_fraction() == 0.1
    with pytest.raises(torch.OutOfMemoryError):
        block(20 * GIB)
    assert genesis.options.get("gc_threshold") == "0.6"
    settings = torch.cuda.memory._snapshot()["allocator_settings"]
    assert settings["garbage_collection_threshold"] == 0.6
    assert settings["pinned_num_register_threads"] == 4
    assert settings["release_lock_on_cudamalloc"] is True


@program(
    modes=("native",),
    env={
        "PYTORCH_CUDA_ALLOC_CONF": "per_process_memory_fraction:0.1,expandable_segments:False",
        "GENESIS_MEMORY_FRACTION": "0.5",
    },
)
def test_explicit_options_win() -> None:
    texts = enable(pool_type="Elastic")
    assert ["expandable_segments:False is not followed" in text for text in texts] == [True], texts
    assert torch.cuda.get_per_process_memory_fraction() == 0.5
    assert genesis.options.get("pool_type") == "Elastic"
    assert block(20 * GIB).nbytes == 20 * GIB


@program(modes=("native",), env={"PYTORCH_ALLOC_CONF": "expandable_segments:False"})
def test_segments_that_are_not_expandable_are_those_of_caching() -> None:
    assert enable() == []
    kept = block(3 * MIB)
    assert genesis.options.get("pool_type") == "Caching"
    assert torch.cuda.memory_reserved() == 20 * MIB
    del kept


@program(modes=("native",), env={"PYTORCH_ALLOC_CONF": "expandable_segments:True"})
def test_expandable_segments_are_elastic() -> None:
    assert enable() == []
    assert genesis.options.get("pool_type") == "Elastic"


@program(
    modes=("native",),
    env={"PYTORCH_ALLOC_CONF": "roundup_power2_divisions:[256:4,512:4,>:4],max_split_size_mb:64"},
)
def test_what_only_caching_has() -> None:
    assert enable(pool_type="Caching") == []
    kept = block(1200)
    assert torch.cuda.memory_allocated() == 1536, "1280, in blocks of 512"
    stats = torch.cuda.memory_stats()
    assert stats["max_split_size"] == 64 * MIB
    settings = torch.cuda.memory._snapshot()["allocator_settings"]
    assert settings["roundup_power2_divisions"]["256"] == 4
    del kept


@program(
    modes=("native",),
    env={
        "PYTORCH_ALLOC_CONF": "roundup_power2_divisions:[256:1,512:2,>:8],max_split_size_mb:64,"
        "large_segment_size_mb:40,graph_capture_record_stream_reuse:True,"
        "max_non_split_rounding_mb:30,brand_new_key:[1,2]"
    },
    ending="any",
)
def test_what_is_not_followed_is_named_once() -> None:
    texts = enable()
    for name in (
        "roundup_power2_divisions: the option has one number",
        "max_split_size_mb:64 has no effect under the strategy Elastic",
        "large_segment_size_mb: ",
        "graph_capture_record_stream_reuse: ",
        "max_non_split_rounding_mb: ",
        "brand_new_key: ",
    ):
        assert sum(name in text for text in texts) == 1, (name, texts)
    assert len(texts) == 6, texts


def test_a_text_is_read_as_pytorch_reads_it() -> None:
    """PyTorch ends the process that is started with a wrong one."""
    assert parse("a:1, b:[x:2, >:3],c:d") == {"a": "1", "b": ["x:2", ">:3"], "c": "d"}
    assert parse("") == {}
    for wrong in ("a", "a:", "a:[1,2", "a:[1]b:2", ":1", "a:1,b"):
        with pytest.raises(ValueError, match=r"expected|missing"):
            parse(wrong)


@program(env={"PYTORCH_ALLOC_CONF": "per_process_memory_fraction:0.0"}, says=OUT_OF_MEMORY)
def test_a_fraction_of_nothing() -> None:
    assert torch.cuda.get_per_process_memory_fraction() == 0.0
    with pytest.raises(torch.OutOfMemoryError):
        torch.zeros(1, device="cuda")
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.zeros(1, device="cuda")


@program(
    modes=("native",), env={"PYTORCH_ALLOC_CONF": "per_process_memory_fraction:7"}, ending="any"
)
def test_a_value_out_of_range() -> None:
    with pytest.raises(ValueError, match=r"fraction is invalid.*per_process_memory_fraction:7"):
        genesis.torch.enable()


@program()
def test_settings_while_the_program_runs() -> None:
    kept = block(100)
    with warned() as texts:
        torch._C._accelerator_setAllocatorSettings("garbage_collection_threshold:0.7")
    assert (texts, genesis.options.get("gc_threshold")) == ([], "0.7")
    with warned() as texts:
        for _ in range(2):
            torch._C._accelerator_setAllocatorSettings("expandable_segments:False")
    assert ["pool_type cannot be changed once" in text for text in texts] == [True], texts
    with warned() as texts:
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    assert texts == []
    settings = torch.cuda.memory._snapshot()["allocator_settings"]
    assert settings["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    assert settings["garbage_collection_threshold"] == 0.7
    genesis.options.set("gc_threshold", 0.5)
    torch._C._accelerator_setAllocatorSettings("garbage_collection_threshold:0.9")
    assert genesis.options.get("gc_threshold") == "0.5", "the program has set it itself"
    with pytest.raises((RuntimeError, ValueError)):
        torch._C._accelerator_setAllocatorSettings("garbage_collection_threshold:seven")
    del kept


@program()
def test_without_a_cache() -> None:
    torch.cuda.init()
    with warned() as texts:
        torch.cuda.caching_allocator_enable(False)
        torch.cuda.caching_allocator_enable(False)
    assert ["caching_allocator_enable(False)" in text for text in texts] == [True], texts
    kept = block(30 * MIB)
    assert torch.cuda.memory_reserved() >= 30 * MIB
    del kept
    assert torch.cuda.memory_reserved() == 0
    torch.cuda.caching_allocator_enable(True)
    assert genesis.options.get("cache_size") == "unlimited"
    block(30 * MIB)
    assert torch.cuda.memory_reserved() >= 30 * MIB
