"""Each function of PyTorch's that concerns memory answers as with PyTorch's own allocator, or
differs as docs/pytorch.md says (:mod:`support.rows`)."""

from __future__ import annotations

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
#: Names of the modules that do not concern memory.
OTHERS = {
    "is_current_stream_capturing",
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "get_device_capability",
    "Graph",
    "current_stream",
    "device_count",
    "device_index",
    "export_dot",
    "export_graph_data",
    "is_available",
    "register_graph_capture_end_hook",
    "register_graph_capture_start_hook",
    "register_graph_destroy_hook",
    "register_graph_instantiate_hook",
    "register_graph_replay_end_hook",
    "register_graph_replay_start_hook",
    "set_device_idx",
    "set_device_index",
    "set_stream",
    "synchronize",
}
#: Names that have no row yet.
WITHOUT_ROW = {
    "MemPool",
    "use_mem_pool",
    "graph_pool_handle",
    "CUDAGraph",
    "graph",
    "make_graphed_callables",
}


@pytest.mark.parametrize("row", ALL, ids=[row.program.__name__ for row in ALL])
def test_the_answer_is_that_of_pytorchs_own(row: rows.Row) -> None:
    native = run(row.program, "native", row.env, ending="any")
    ours = run(row.program, "enabled", {**AS_PYTORCH, **row.env}, ending="any", says=row.says)
    assert row.of_answer(ours) == row.of_answer(native)


def test_the_page_has_the_table() -> None:
    table = re.search(r"<!-- answers -->\n\n(.*?)\n<!-- end of answers -->", PAGE.read_text(), re.S)
    assert table is not None and table[1] == rows.lines(), rows.lines()


def test_only_functions_of_some_versions_are_missing() -> None:
    missing = [row for row in rows.all_rows() if not row.is_there()]
    assert [row.names for row in missing if not row.of_some_versions] == []


def test_every_function_has_a_row() -> None:
    named = {name.rpartition(".")[2] for row in ALL for name in row.names}
    modules = (torch.cuda.memory, torch.cuda.graphs, torch.accelerator)
    public = {name for module in modules for name in module.__all__}
    public |= {name for name in torch.cuda.__all__ if re.search("memory|cache|caching", name)}
    assert sorted(public - named - OTHERS - WITHOUT_ROW - {"memory"}) == []
    assert sorted(WITHOUT_ROW & named) == [], "they have rows now"
