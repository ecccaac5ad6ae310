"""What the process of a program does: it sets the mode up, runs the program, and takes stock.

Endings, each after the device is idle:

``freed``  the program has freed everything: nothing is live in Genesis; what Genesis holds from
           the driver is, to the byte or the page, what the driver has handed out; and after
           emptying the cache that is nothing. Nothing is left for Python to free, so the process
           ends without that (:func:`support.processes.exit_without_python`), and without PyTorch's
           destructors (:func:`support.processes.skip_destructors`).
``live``   blocks may be live, also while the process exits; what Genesis holds is, to the byte,
           what the driver has handed out.
``any``    nothing is checked: for programs that never reach the device.
"""

from __future__ import annotations

import contextlib
import gc
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.autograd import Variable

import genesis
import genesis.torch
from support import processes, simcuda

#: The driver hands out whole pages.
PAGE_BYTES = 2 << 20


def main(arguments: dict[str, Any]) -> None:
    warnings.simplefilter("error", ResourceWarning)
    # Kernels of these libraries do not exist without a GPU.
    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_cudnn_sdp(False)
    make_autograd_engine()
    function = processes.load(arguments["file"], arguments["function"])
    if arguments["ending"] == "freed":
        processes.skip_destructors()
    with mode(arguments["mode"]):
        value = function()
    Path(arguments["result"]).write_text(json.dumps(value))
    take_stock(arguments["ending"])
    found = simcuda.violations()
    if arguments["violations"]:
        assert found > 0, "the race detector was expected to find something"
    else:
        assert found == 0, simcuda.violations_text()
    if arguments["ending"] == "freed":
        processes.exit_without_python()


def make_autograd_engine() -> None:
    """In a forked process PyTorch makes its engine anew at the first use, and crashes now and then
    if two threads are the first at once (PyTorch 2.11, without Genesis, too)."""
    Variable._execution_engine.is_checkpoint_valid()


@contextlib.contextmanager
def mode(name: str) -> Iterator[None]:
    if name == "two_symbols":
        plug = torch.cuda.memory.CUDAPluggableAllocator(
            str(genesis.library_path()), "genesis_malloc", "genesis_free"
        )
        torch.cuda.memory.change_current_allocator(plug)
        yield
    elif name == "enabled":
        genesis.torch.enable()
        yield
    elif name == "mem_pool":
        with contextlib.ExitStack() as stack:
            for device in range(torch.cuda.device_count()):
                with torch.cuda.device(device):
                    pool = genesis.torch.mem_pool()
                stack.enter_context(torch.cuda.use_mem_pool(pool, device))
                del pool
            yield
    elif name in ("native", "preloaded"):
        yield
    else:
        raise ValueError(name)


def take_stock(ending: str) -> None:
    if ending == "any":
        return
    devices = range(torch.cuda.device_count())
    for device in devices:
        torch.cuda.synchronize(device)
    if ending == "freed":
        free_everything()
    stats = [genesis.stats(device) for device in devices]
    held = sum(one.reserved_bytes.current for one in stats)
    held += sum(bytes_of_pytorchs_own(device) for device in devices)
    left = simcuda.used_bytes() - held
    if genesis.options.get("pool_type") in ("Naive", "Round", "Exact"):
        # Their segments may be smaller than a page; the driver hands out whole pages.
        assert 0 <= left < PAGE_BYTES * sum(one.allocations for one in stats), (left, stats)
    else:
        assert left == 0, (held, left, stats)
    if ending == "freed":
        for one in stats:
            assert one.allocated_bytes.current == one.requested_bytes.current == 0, one
            assert one.allocations == one.frees, one
        torch.cuda.empty_cache()
        genesis.empty_cache()
        assert simcuda.used_bytes() == 0, simcuda.used_bytes()


def free_everything() -> None:
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    if torch.cuda.get_allocator_backend() == "native":
        # Segments that PyTorch's allocator has from Genesis return with its cache; preloaded,
        # after the devices were synchronized.
        torch.cuda.empty_cache()
        for device in range(torch.cuda.device_count()):
            torch.cuda.synchronize(device)


def bytes_of_pytorchs_own(device: int) -> int:
    """What PyTorch's allocator, in a mode that keeps it, has from the driver itself. Its reserved
    bytes also count what it has from Genesis."""
    if torch.cuda.get_allocator_backend() != "native":
        return 0
    return torch.cuda.memory_reserved(device) - genesis.stats(device).allocated_bytes.current
