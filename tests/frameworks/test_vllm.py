"""vLLM's own ``CuMemAllocator``, from its wheel, on ``genesis.vllm``, under the real PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, Callable

import pytest
import torch

import genesis
import genesis.torch
import genesis.vllm
from support import simcuda, tier
from support.program import program

ROOT = Path(__file__).resolve().parent
PYTHON = ROOT.parent.parent / "python"
MIB = 1 << 20

REAL_BYTES = {"SIMCUDA_STORE": "bytes", "SIMCUDA_MEMORY": "1GiB"}
nightly = pytest.mark.skipif(not tier.is_full(), reason=tier.NIGHTLY)
#: PyTorch's own allocator, plain and preloaded.
BOTH = ("native", pytest.param("preloaded", marks=nightly))
Test = Callable[[], Any]


def on_vllm(**more: Any) -> Callable[[Test], Callable[..., None]]:
    modes = more.pop("modes", ("native",))
    return program(modes=modes, env={**REAL_BYTES, **more.pop("env", {})}, **more)


def allocator() -> Any:
    """vLLM's, on Genesis."""
    genesis.vllm.install()
    sys.path.insert(0, str(ROOT))
    from harness import vllm_files

    return vllm_files.allocator().CuMemAllocator.get_instance()


def values(first: int) -> torch.Tensor:
    """20 MB on the host; kernels do nothing here, but copies work."""
    return torch.arange(first, first + 5_000_000, dtype=torch.int32)


def block(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def live_bytes() -> dict[str, int]:
    return {tag.name: tag.live_bytes for tag in genesis.tags(0)}


def driver_bytes() -> int:
    """What Genesis has from the driver."""
    return genesis.stats(0).reserved_bytes.current


class Engine:
    """What an engine has: weights that are kept, and a cache that is not."""

    def __init__(self) -> None:
        self.memory = allocator()
        with self.memory.use_memory_pool("weights"):
            self.weights = [values(number).cuda() for number in range(3)]
        with self.memory.use_memory_pool("kv_cache"):
            self.cache = block(64 * MIB)
        self.addresses = [tensor.data_ptr() for tensor in (*self.weights, self.cache)]

    def check(self) -> None:
        assert [t.data_ptr() for t in (*self.weights, self.cache)] == self.addresses
        for number, tensor in enumerate(self.weights):
            assert torch.equal(tensor.cpu(), values(number))
        self.cache.copy_(torch.full((64 * MIB,), 3, dtype=torch.uint8))
        assert self.cache.cpu().eq(3).all()

    def end(self) -> None:
        self.weights.clear()
        del self.cache
        self.memory.close()
        torch.cuda.empty_cache()
        assert self.memory.pointer_to_data == {}
        assert set(live_bytes().values()) == {0}, live_bytes()


@on_vllm(modes=BOTH)
def test_memory_sleeps_and_wakes() -> None:
    other = values(7).cuda()
    before = driver_bytes()
    engine = Engine()
    memory = engine.memory
    held = memory.get_current_usage()
    assert driver_bytes() - before == held == 124 * MIB
    assert live_bytes() == {"weights": 60 * MIB, "kv_cache": 64 * MIB}
    for _ in range(2):
        memory.sleep(("weights",))
        memory.sleep(("weights",))
        assert driver_bytes() == before
        assert torch.equal(other.cpu(), values(7))
        memory.wake_up(["weights"])
        assert driver_bytes() == before + 60 * MIB
        memory.wake_up(["kv_cache"])
        memory.wake_up()
        assert driver_bytes() == before + held
        engine.check()
    assert genesis.generation("kv_cache") == 2
    memory.discard("kv_cache")
    assert driver_bytes() == before + 60 * MIB
    memory.wake_up()
    engine.check()
    memory.sleep(())
    assert driver_bytes() == before
    memory.wake_up()
    assert memory.get_current_usage() == held
    del other
    engine.end()


@on_vllm(modes=BOTH)
def test_what_is_freed_goes_to_the_driver() -> None:
    memory = allocator()
    with memory.use_memory_pool("weights"):
        precise = values(1).cuda()
        kept = values(2).cuda()
        del precise
    assert driver_bytes() == 20 * MIB, "vLLM has trimmed the pool"
    assert live_bytes()["weights"] == 40 * MIB, "which PyTorch still has"
    memory.sleep(("weights",))
    with memory.use_memory_pool("other"):
        awake = block(24 * MIB)
    assert driver_bytes() == 24 * MIB
    del kept
    memory.wake_up()
    del awake
    memory.close()
    torch.cuda.empty_cache()
    assert memory.pointer_to_data == {} and driver_bytes() == 0
    assert genesis.stats(0).allocations == genesis.stats(0).frees


@on_vllm()
def test_what_is_freed_asleep_does_not_come_back() -> None:
    engine = Engine()
    engine.memory.sleep(("weights",))
    engine.weights.clear()
    engine.memory.release_pools()
    assert live_bytes() == {"weights": 0, "kv_cache": 64 * MIB}
    engine.memory.wake_up()
    assert driver_bytes() == 64 * MIB
    engine.end()


@on_vllm()
def test_graphs_sleep_and_wake() -> None:
    """After a wake the graph is replayed: into memory that nobody has asked for since."""
    memory = allocator()
    source = values(1).cuda()
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with memory.cudagraph_pool() as pool, torch.cuda.graph(graph, pool=pool, stream=stream):
        scratch = source + 1
        result = torch.empty_like(source)
        result.copy_(scratch)
        del scratch
    address = result.data_ptr()
    for offloaded in (("cudagraph",), (), ("cudagraph",)):
        graph.replay()
        result.copy_(values(9))
        memory.sleep(offloaded)
        assert driver_bytes() == 0
        memory.wake_up()
        assert result.data_ptr() == address and driver_bytes() == 40 * MIB
        assert not offloaded or torch.equal(result.cpu(), values(9))
    graph.replay()
    torch.cuda.synchronize()
    del graph, result, source
    memory.close()


@on_vllm(env={"GENESIS_LOG": "off"})
def test_tags_have_limits() -> None:
    memory = allocator()
    genesis.limit_tag("kv_cache", "32MiB")
    with memory.use_memory_pool("kv_cache"):
        kept = block(24 * MIB)
        with pytest.raises(torch.OutOfMemoryError):
            block(24 * MIB)
    assert live_bytes()["kv_cache"] == 24 * MIB
    del kept
    memory.close()


@on_vllm(env={"GENESIS_LOG": "off"})
def test_each_call_fails_in_turn() -> None:
    """A sleep or a wake ends with an error; the next one finds everything where it was left."""
    engine = Engine()
    memory, held = engine.memory, driver_bytes()
    ends = {"sleep": 0, "wake_up": 0}
    for call in ("cuMemUnmap", "cuMemRelease", "cuMemCreate", "cuMemMap", "cuMemSetAccess"):
        for nth in range(1, 6 if tier.is_full() else 3):
            for operation in (lambda: memory.sleep(("weights",)), memory.wake_up):
                simcuda.fail(f"@{call}", nth, 999)
                try:
                    operation()
                except genesis.GenesisError:
                    ends[operation.__name__.replace("<lambda>", "sleep")] += 1
                simcuda.clear_faults()
                assert simcuda.inconsistency() == ""
            memory.wake_up()
            assert driver_bytes() == held, (call, nth)
            engine.check()
    assert min(ends.values()) >= 2, ends
    engine.end()


@on_vllm(env={"GENESIS_LOG": "off"})
def test_each_call_of_a_request_fails_in_turn() -> None:
    """PyTorch gets no segment and raises its error; what was there is untouched."""
    engine = Engine()
    refused = 0
    for call in ("cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"):
        for times in (1, 1 << 40):
            simcuda.fail(f"@{call}", 1, 999, times)
            try:
                with engine.memory.use_memory_pool("kv_cache"):
                    block(24 * MIB)
            except torch.OutOfMemoryError:
                refused += 1
            simcuda.clear_faults()
            assert simcuda.inconsistency() == ""
            engine.check()
    assert refused >= 3, refused
    engine.end()


@on_vllm(env={"GENESIS_LOG": "off"})
def test_no_memory_is_an_error_and_a_wake_can_be_tried_again() -> None:
    engine = Engine()
    engine.memory.sleep(("weights",))
    taken = block(960 * MIB)
    with pytest.raises(genesis.OutOfMemoryError):
        engine.memory.wake_up()
    del taken
    torch.cuda.empty_cache()
    engine.memory.wake_up()
    engine.check()
    with engine.memory.use_memory_pool("kv_cache"), pytest.raises(torch.OutOfMemoryError):
        block(2048 * MIB)
    engine.end()


@on_vllm(says="Traceback|  |ValueError: told")
def test_memory_of_which_vllm_cannot_be_told_is_given_back() -> None:
    memory = allocator()

    def refuse(_handle: Any) -> None:
        raise ValueError("told")

    memory.python_malloc_callback = refuse
    with memory.use_memory_pool("weights"), pytest.raises(torch.OutOfMemoryError):
        block(24 * MIB)
    assert driver_bytes() == 0
    assert 0 < genesis.stats(0).allocations == genesis.stats(0).frees
    memory.close()


@on_vllm(ending="live")
def test_a_process_may_end_with_live_memory() -> None:
    engine = Engine()
    engine.memory.sleep(("weights",))
    globals()["kept"] = engine


@on_vllm(ending="any")
def test_vllms_own_module_is_not_replaced_once_it_is_there() -> None:
    sys.modules["vllm.cumem_allocator"] = types.ModuleType("vllm.cumem_allocator")
    with pytest.raises(RuntimeError, match="too late"):
        genesis.vllm.install()


@on_vllm(modes=("enabled",), ending="any")
def test_in_direct_mode_it_says_what_to_use() -> None:
    with pytest.raises(RuntimeError, match=r"genesis\.pause"):
        genesis.vllm.install()


PLUGIN = """
import sys
from harness import vllm_files
from importlib.metadata import entry_points
print([one.value for one in entry_points(group="vllm.general_plugins")])
vllm_files.stand_in()
from vllm.plugins import load_general_plugins
load_general_plugins()
print(sys.modules["vllm.cumem_allocator"].__name__)
"""


@on_vllm(ending="any")
def test_processes_that_vllm_starts_find_it() -> None:
    def said() -> list[str]:
        """What a process says that finds Genesis's package, and what its variables add."""
        added = os.environ.get("PYTHONPATH", "")
        path = os.pathsep.join(map(str, (PYTHON, ROOT, added)))
        command = [sys.executable, "-c", PLUGIN]
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.run(
            command, env=environment, check=False, capture_output=True, text=True
        ).stdout.splitlines()

    assert said() == ["[]"]
    genesis.vllm.install()
    assert said() == ["['genesis.vllm:install']", "genesis.vllm.cumem_allocator"]
