"""Two devices in one process, in each of the ways to get Genesis's memory: copies, kernels that use
a peer's memory, and blocks that another device's streams use. Streams advance only when somebody
waits for them, so work that is not ordered is a race."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

import torch
from torch import nn
from torch.cuda import comm
from torch.nn import parallel

import genesis
import genesis.torch
from support.program import EVERY_WAY, OUT_OF_MEMORY, program
from support.streams import touch

MIB = 1 << 20
#: Where PyTorch's ``record_stream`` is more than a silent no-op.
HOOKED = ("enabled", "mem_pool", "preloaded")


def two_devices(
    modes: Sequence[str] = EVERY_WAY,
    memory: str = "80GiB",
    options: Optional[Mapping[str, str]] = None,
    **more: Any,
) -> Callable[[Callable[[], Any]], Callable[..., None]]:
    env = {"SIMCUDA_DEVICES": "2", "SIMCUDA_PROGRESS": "manual", "SIMCUDA_MEMORY": memory}
    return program(modes=modes, env={**env, **(options or {})}, **more)


def block(device: int, size: int = 64 * MIB) -> torch.Tensor:
    """Memory that a kernel has written."""
    return torch.zeros(size, dtype=torch.uint8, device=f"cuda:{device}")


@two_devices()
def test_a_tensor_goes_to_the_other_device_and_back() -> None:
    for size in (100, 3 * MIB, 64 * MIB):
        for here, there in ((0, 1), (1, 0)):
            x = block(here, size)
            y = x.to(f"cuda:{there}")
            assert y.device.index == there
            del x
            back = y.to(f"cuda:{here}", non_blocking=True)
            # The next tensor may reuse the memory at once.
            del y
            block(there, size)
            back.add_(1)


@two_devices()
def test_copies_into_tensors_that_are_there() -> None:
    copy_both_ways()


@two_devices(modes=("two_symbols", "enabled"), options={"GENESIS_POOL_TYPE": "Caching"})
def test_plain_allocations_are_enabled_by_pytorch() -> None:
    copy_both_ways()


@two_devices(modes=("enabled", "preloaded"), options={"GENESIS_DEBUG": "guard"})
def test_peers_reach_memory_between_guard_pages() -> None:
    copy_both_ways()


def copy_both_ways() -> None:
    x, y = block(0), block(1)
    for _ in range(3):
        y.copy_(x)
        x.add_(1)
        x.copy_(y, non_blocking=True)
        y.add_(1)
    # Parts of tensors, and copies that a kernel makes: other types, rows apart.
    y[: 8 * MIB].copy_(x[-8 * MIB :])
    y.view(8192, -1)[:, :100].copy_(x.view(8192, -1)[:, 100:200])
    halves = torch.empty(x.numel(), dtype=torch.float16, device="cuda:1")
    halves.copy_(x)
    x.copy_(halves, non_blocking=True)


@two_devices()
def test_copies_on_streams_of_their_own() -> None:
    sides = [torch.cuda.Stream(device) for device in (0, 1)]
    for _ in range(4):
        with torch.cuda.stream(sides[0]), torch.cuda.stream(sides[1]):
            x = block(0)
            y = x.to("cuda:1", non_blocking=True)
            y.add_(1)
            x.copy_(y, non_blocking=True)
            x.add_(1)
            # Both are freed on the streams they were made on; the copies come before on these.
            del x, y


@two_devices()
def test_a_kernel_uses_a_peers_memory() -> None:
    """Memory from before and after the first use of the other device, small and large blocks."""
    small, large = block(0, 1000), block(0)
    torch.cuda.synchronize(0)
    other = block(1)
    reader = torch.cuda.current_stream(1)
    for x in (small, large):
        touch(x, reader)
        touch(x, reader, writes=True)
    late = [block(0, size) for size in (5000, 3 * MIB, 200 * MIB)]
    torch.cuda.synchronize(0)
    for x in late:
        touch(x, reader)
    torch.cuda.synchronize(1)
    touch(other, torch.cuda.current_stream(0))
    torch.cuda.synchronize(0)


@two_devices(modes=("two_symbols", "enabled"), memory="2GiB")
def test_peers_reach_memory_that_has_moved() -> None:
    move_and_read()


@two_devices(modes=("preloaded",), memory="2GiB", says=OUT_OF_MEMORY)
def test_peers_reach_memory_that_came_again() -> None:
    """PyTorch's allocator frees its segments when Genesis has to refuse one."""
    move_and_read()


def move_and_read() -> None:
    """Sizes change and the device is nearly full, so memory is mapped at other addresses."""
    reader = torch.cuda.current_stream(1)
    keeps = block(1, 100)
    for size in (200, 700, 300, 1000, 150):
        kept = [block(0, size * MIB) for _ in range(1500 // size)]
        there = [x[: 50 * MIB].to("cuda:1", non_blocking=True) for x in kept]
        torch.cuda.synchronize(0)
        for x in kept:
            touch(x, reader)
        torch.cuda.synchronize(1)
        del kept, there, x
    del keeps


@two_devices(modes=("native",))
def test_a_pool_of_one_device_is_opened_to_the_other() -> None:
    """Genesis does not see a device whose memory is PyTorch's own, so access must be enabled."""
    pool = genesis.torch.mem_pool()
    with torch.cuda.use_mem_pool(pool):
        x = block(0)
    genesis.enable_peer_access(0, 1)
    y = block(1)
    for _ in range(3):
        x.copy_(y)
        y.copy_(x, non_blocking=True)
    del x
    torch.cuda.synchronize(0)


@two_devices(modes=HOOKED)
def test_a_stream_of_the_other_device_is_recorded() -> None:
    read_there(torch.cuda.Stream(1))


@two_devices(modes=("enabled",))
def test_the_default_stream_of_the_other_device_is_recorded() -> None:
    """PyTorch's own allocator takes it for the block's stream: both have the same handle."""
    read_there(torch.cuda.default_stream(1))


def read_there(reader: torch.cuda.Stream) -> None:
    """Frees a tensor that ``reader`` may still read, and writes the next one at once."""
    keeps = block(1, 100)
    for _ in range(4):
        x = block(0)
        reader.wait_stream(torch.cuda.current_stream(0))
        touch(x, reader)
        x.record_stream(reader)
        del x
    del keeps


@two_devices(modes=("two_symbols",), violations=True)
def test_without_the_hook_the_other_devices_reader_is_not_waited_for() -> None:
    read_there(torch.cuda.Stream(1))


@two_devices(modes=("enabled",), memory="1GiB")
def test_a_shortage_waits_for_the_other_devices_reader() -> None:
    keeps, reader = block(1, 100), torch.cuda.Stream(1)
    for _ in range(6):
        x = block(0, 600 * MIB)
        reader.wait_stream(torch.cuda.current_stream(0))
        touch(x, reader)
        x.record_stream(reader)
        del x
    del keeps


@two_devices()
def test_gradients_go_back_the_way_the_tensors_came() -> None:
    first = nn.Linear(1024, 1024, device="cuda:0")
    second = nn.Linear(1024, 1024, device="cuda:1")
    for _ in range(3):
        x = torch.zeros(256, 1024, device="cuda:0")
        middle = first(x).to("cuda:1", non_blocking=True)
        second(middle).to("cuda:0").sum().backward()
        del x, middle
        for network in (first, second):
            network.zero_grad(set_to_none=True)


@two_devices()
def test_batches_are_scattered_and_gathered() -> None:
    # PyTorch warns about a thread that launches before it has called the runtime.
    warnings.filterwarnings("ignore", "Attempting to run cuBLAS, but there was no current CUDA")
    networks = [nn.Linear(1024, 1024, device="cuda:0")]
    networks.append(copy.deepcopy(networks[0]).to("cuda:1"))
    for _ in range(3):
        batch = torch.zeros(512, 1024, device="cuda:0", requires_grad=True)
        parts = parallel.scatter(batch, [0, 1])
        results = parallel.parallel_apply(networks, [(part,) for part in parts])
        parallel.gather(results, 0).sum().backward()
    pieces = comm.scatter(block(0), [0, 1])
    comm.gather(pieces, destination=1)
    # Into rows apart: the others go through NCCL, which needs more of a driver than there is here.
    comm.broadcast(block(0), out=[block(1, 128 * MIB)[::2]])


@two_devices(modes=("two_symbols", "enabled", "preloaded"))
def test_a_thread_for_each_device() -> None:
    """Each trains on its own device and copies what the other has made."""
    made: list[list[torch.Tensor]] = [[], []]
    barrier, failures = threading.Barrier(2), []

    def work(device: int) -> None:
        try:
            network = nn.Linear(1024, 1024, device=f"cuda:{device}")
            for step in range(6):
                network(torch.zeros(64 << step, 1024, device=f"cuda:{device}")).sum().backward()
                made[device] = [block(device, (step + 1) * MIB)]
                torch.cuda.synchronize(device)
                barrier.wait()
                made[1 - device][0].to(f"cuda:{device}")
                torch.cuda.synchronize()
                barrier.wait()
        except BaseException as failure:
            failures.append(failure)
            barrier.abort()
            raise

    threads = [threading.Thread(target=work, args=(device,)) for device in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def in_a_thread(work: Callable[[], None]) -> None:
    """Runs ``work`` in a thread of its own, and fails as it does."""
    failures: list[BaseException] = []

    def caught() -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=caught)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def run_short(device: int) -> None:
    """Asks for more than the device has, then allocates what fits."""
    cached = [block(device, size * MIB) for size in (100, 200, 300)]
    del cached
    try:
        torch.empty(2 << 30, dtype=torch.uint8, device=f"cuda:{device}")
    except torch.OutOfMemoryError:
        pass
    else:
        raise AssertionError("2 GiB fit into one")
    block(device, 16 * MIB)


@two_devices(modes=("enabled", "preloaded"), memory="1GiB", says=OUT_OF_MEMORY, ending="live")
def test_a_shortage_of_others_spoils_no_capture() -> None:
    """On the other device, and on the device of the capture."""
    static = block(0, MIB)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = static + 1
        in_a_thread(lambda: run_short(1))
        in_a_thread(lambda: run_short(0))
        result = result + 1
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize(0)
    in_a_thread(lambda: run_short(0))
