"""PyTorch's settings of its allocator, and which allocator is in use."""

from __future__ import annotations

from typing import Any

import torch

from support.memory import MIB, block
from support.program import OUT_OF_MEMORY
from support.rows import row

FIRST = "per_process_memory_fraction:0.25,garbage_collection_threshold:0.8,max_split_size_mb:100"


@row(
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    differs="followed where an option has the meaning, else named once in a warning: "
    "[PyTorch's own settings](#pytorchs-own-settings)",
    env={"PYTORCH_ALLOC_CONF": FIRST},
    says=OUT_OF_MEMORY,
)
def environment() -> list[Any]:
    found: list[Any] = [torch.cuda.get_per_process_memory_fraction()]
    try:
        block(25 << 30)
    except torch.OutOfMemoryError:
        found.append("refused")
    kept = block(19 << 30)
    settings = torch.cuda.memory._snapshot()["allocator_settings"]
    names = ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size", "garbage_collection_threshold")
    found += [settings[name] for name in names]
    return [*found, torch.cuda.memory_stats()["max_split_size"], kept.nbytes]


@row(
    "torch.cuda.memory._set_allocator_settings",
    "torch._C._accelerator_setAllocatorSettings",
    differs="the same; what cannot change once CUDA is in use is named once in a warning",
)
def settings_later() -> list[Any]:
    found: list[Any] = []
    torch._C._accelerator_setAllocatorSettings("garbage_collection_threshold:0.5")
    settings = torch.cuda.memory._snapshot()["allocator_settings"]
    found.append(settings["garbage_collection_threshold"])
    for wrong in ("nothing_like_it:3", "garbage_collection_threshold:7"):
        try:
            torch._C._accelerator_setAllocatorSettings(wrong)
        except (RuntimeError, ValueError) as error:
            found.append(type(error).__name__)
    return [*found, block(3 * MIB).nbytes]


@row(
    "torch.cuda.get_allocator_backend",
    "torch._C._cuda_getAllocatorBackend",
    differs="`pluggable`, as PyTorch says of every allocator that is not its own",
    of_answer=lambda answer: answer[1:],
)
def backend() -> list[Any]:
    name = torch.cuda.get_allocator_backend()
    assert name in ("native", "pluggable"), name
    return [name, torch.cuda.memory._get_current_allocator() is not None]


@row(
    "torch.cuda.change_current_allocator",
    "torch.cuda.CUDAPluggableAllocator",
    "torch._C._cuda_changeCurrentAllocator",
    "torch._C._cuda_customAllocator",
    "torch._C._cuda_getAllocator",
    "torch.cuda.memory._get_current_allocator",
    differs="`enable()` calls it, once a process; a second choice is an error, as after any other",
    of_answer=lambda answer: answer[1:],
)
def chosen() -> list[Any]:
    import genesis

    library = str(genesis.library_path())
    other = torch.cuda.memory.CUDAPluggableAllocator(library, "genesis_malloc", "genesis_free")
    block(10)
    try:
        torch.cuda.memory.change_current_allocator(other)
    except RuntimeError as error:
        return [torch.cuda.get_allocator_backend(), "Can't swap" in str(error), other is not None]
    raise AssertionError("an allocator in use was replaced")


@row(
    "torch.cuda.memory._free_mutex",
    "torch._C._cuda_lock_mutex",
    "torch._C._cuda_unlock_mutex",
    of_some_versions=True,
)
def locked() -> int:
    with torch.cuda.memory._free_mutex():
        pass
    return block(100).nbytes


@row("torch.cuda.memory._host_allocator", "torch._C._cuda_cudaHostAllocator")
def host_allocator() -> bool:
    return torch.cuda.memory._host_allocator() is not None
