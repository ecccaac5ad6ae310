"""What the process of a program does: it runs the program, and takes stock.

Endings:

``freed``  the program has freed everything: nothing is live in Genesis, and after its cache is
           emptied the driver has handed out nothing.
``live``   blocks may be live, also while the process exits.
"""

from __future__ import annotations

import gc
from typing import Any

import genesis
from support import processes, simcuda


def main(arguments: dict[str, Any]) -> None:
    processes.load(arguments["file"], arguments["function"])()
    take_stock(arguments["ending"])
    found = simcuda.violations()
    if arguments["violations"]:
        assert found > 0, "the race detector was expected to find something"
    else:
        assert found == 0, simcuda.violations_text()


def take_stock(ending: str) -> None:
    if ending != "freed":
        return
    gc.collect()
    stats = genesis.stats(0)
    assert stats.allocated_bytes.current == stats.requested_bytes.current == 0, stats
    assert stats.allocations == stats.frees > 0, stats
    genesis.empty_cache()
    assert simcuda.used_bytes() == 0, simcuda.used_bytes()
