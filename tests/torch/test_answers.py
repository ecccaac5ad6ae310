"""Each function of PyTorch's that concerns memory answers as with PyTorch's own allocator, or
differs as docs/pytorch.md says (:mod:`support.rows`)."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import torch
import torch.accelerator
import torch.cuda.graphs

from support import rows
from support.program import run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pytorch.md"
#: Caching has PyTorch's sizes.
AS_PYTORCH = {"GENESIS_POOL_TYPE": "Caching"}
ALL = [row for row in rows.all_rows() if row.is_there()]
#: What a name says that concerns memory.
OF_MEMORY = re.compile("alloc|memory|mem_|pool|graph|cach|snapshot|history|checkpoint|ipc", re.I)
#: Names that match, or stand in a module about memory, and whose functions do not concern it.
OTHERS = {
    "modules, types, and helpers of functions that have rows": {
        "memory",
        "graphs",
        "_POOL_HANDLE",
        "_cuda_CUDAAllocator",
        "_record_memory_history_impl",
        "_cached_device_count",
        "_recurse_add_to_result",
        "cache",
    },
    "of torch.accelerator: devices and streams": {
        "current_accelerator",
        "current_device_idx",
        "current_device_index",
        "get_device_capability",
        "current_stream",
        "device_count",
        "device_index",
        "is_available",
        "set_device_idx",
        "set_device_index",
        "set_stream",
        "synchronize",
    },
    "of AMD's devices: they ask their driver": {
        "_cached_hip_to_amdsmi",
        "_get_amdsmi_device_memory_used",
        "_get_amdsmi_memory_usage",
    },
    "of a graph: what the driver writes of it": {"debug_dump"},
    "of graph trees: tensors in caches of PyTorch's dispatcher, and objects of threads": {
        "_add_cached_tensor",
        "_remove_cached_tensor",
        "_set_cached_tensors_enabled",
        "_get_obj_in_tls",
        "_is_key_in_tls",
        "_stash_obj_in_tls",
    },
    "sharing with other processes": {"ipc_collect", "_cuda_ipc_collect"},
    "of managed memory: a MemPool with an allocator of PyTorch's own": {
        "_make_uvm_allocator",
        "_use_uvm",
    },
    "of newer versions: what is done with a graph": {
        "Graph",
        "_arm_retained",
        "_graph_annotations",
        "_maybe_remap_annotations",
        "_release_python_resources",
        "get_graph_data",
        "graph_annotations",
        "register_capture_end_hook",
        "register_capture_start_hook",
        "register_destroy_callback",
        "register_post_instantiate_hook",
        "register_replay_end_hook",
        "register_replay_start_hook",
        "retain_object",
        "export_dot",
        "export_graph_data",
        "register_graph_capture_end_hook",
        "register_graph_capture_start_hook",
        "register_graph_destroy_hook",
        "register_graph_instantiate_hook",
        "register_graph_replay_end_hook",
        "register_graph_replay_start_hook",
    },
}
#: Where Inductor asks for private functions.
TREES = Path(torch.__file__).parent / "_inductor" / "cudagraph_trees.py"


@pytest.mark.parametrize("row", ALL, ids=[row.program.__name__ for row in ALL])
def test_the_answer_is_that_of_pytorchs_own(row: rows.Row) -> None:
    both = {"ending": "any", "ignored": row.ignored}
    native = run(row.program, "native", row.env, **both)
    ours = run(row.program, "enabled", {**AS_PYTORCH, **row.env}, says=row.says, **both)
    assert row.of_answer(ours) == row.of_answer(native)


def test_the_page_has_the_table() -> None:
    table = re.search(r"<!-- answers -->\n\n(.*?)\n<!-- end of answers -->", PAGE.read_text(), re.S)
    assert table is not None and table[1] == rows.lines(), rows.lines()


def test_only_functions_of_some_versions_are_missing() -> None:
    missing = [row for row in rows.all_rows() if not row.is_there()]
    assert [row.names for row in missing if not row.of_some_versions] == []


def test_every_function_has_a_row() -> None:
    """A name that is new in a version of PyTorch gets a row, or a reason why it needs none."""
    named = {name.partition("(")[0].rpartition(".")[2] for row in ALL for name in row.names}
    others = {name for names in OTHERS.values() for name in names}
    assert sorted(concerning() - named - others) == []
    assert sorted(others & named) == [], "they have rows now"


def concerning() -> set[str]:
    """The names of the installed PyTorch that may concern memory."""
    memory, graphs, accelerator = torch.cuda.memory, torch.cuda.graphs, torch.accelerator
    names = {name for module in (memory, graphs, accelerator) for name in module.__all__}
    names |= {name for name in dir(torch.cuda) if OF_MEMORY.search(name) and is_own(name)}
    defined = inspect.getmembers(memory, inspect.isroutine)
    names |= {name for name, one in defined if one.__module__ == memory.__name__}
    for members in (torch.cuda.CUDAGraph, memory.MemPool):
        names |= {name for name in vars(members) if not name.startswith("__")}
    of_c = re.compile("^_(cuda|accelerator)_")
    names |= {name for name in dir(torch._C) if of_c.search(name) and OF_MEMORY.search(name)}
    names |= set(re.findall(r"torch\._C\.(_\w+)", TREES.read_text()))
    return names


def is_own(name: str) -> bool:
    return not name.startswith("__") and name != "lru_cache"
