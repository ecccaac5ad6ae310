"""The process a program runs in: runs it, and takes stock.

Endings:

``freed``  the program has let go of everything: nothing is live in Genesis, and after its cache is
           emptied the driver has given nothing to anybody.
``live``   blocks may be live, also while the process exits.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any, Callable

import genesis
from harness import static_runtime
from support import simcuda


def main() -> None:
    arguments = json.loads(sys.argv[1])
    if arguments["static_runtime"] is not None:
        static_runtime.redirect(arguments["static_runtime"])
    load(arguments["file"], arguments["function"])()
    take_stock(arguments["ending"])
    found = simcuda.violations()
    if arguments["violations"]:
        assert found > 0, "the race detector was expected to find something"
    else:
        assert found == 0, simcuda.violations_text()


def load(file: str, name: str) -> Callable[[], Any]:
    specification = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    function = getattr(module, name)
    program: Callable[[], Any] = getattr(function, "program", function)
    return program


def take_stock(ending: str) -> None:
    if ending != "freed":
        return
    gc.collect()
    stats = genesis.stats(0)
    assert stats.allocated_bytes.current == stats.requested_bytes.current == 0, stats
    assert stats.allocations == stats.frees > 0, stats
    genesis.empty_cache()
    assert simcuda.used_bytes() == 0, simcuda.used_bytes()


if __name__ == "__main__":
    main()
