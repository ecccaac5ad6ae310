"""torch_memory_saver's interface, in each way in which PyTorch gets Genesis's memory."""

from __future__ import annotations

import os
import threading
from typing import Any, Callable

import torch

import genesis
from support import simcuda
from support.program import program

REAL_BYTES = {"SIMCUDA_STORE": "bytes", "SIMCUDA_MEMORY": "4GiB"}
MIB = 1 << 20


def in_every_mode(**more: Any) -> Callable[[Callable[[], Any]], Callable[..., None]]:
    """In direct mode, in MemPool mode and preloaded."""
    env = {**REAL_BYTES, **more.pop("env", {})}
    return program(modes=("enabled", "native", "preloaded"), env=env, ending="any", **more)


def saver() -> Any:
    """The object, with the mode set that the process is in."""
    from genesis.torch_memory_saver import torch_memory_saver

    if "libgenesis_preload" not in os.environ.get("LD_PRELOAD", ""):
        torch_memory_saver.hook_mode = "torch"
    return torch_memory_saver


def values(first: int) -> torch.Tensor:
    """20 MB on the host; kernels do nothing here, but copies work."""
    return torch.arange(first, first + 5_000_000, dtype=torch.int32)


@in_every_mode()
def test_memory_goes_and_comes_back_at_its_address() -> None:
    memory = saver()
    with memory.region():
        paused = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    other = values(1).cuda()
    address, used = paused.data_ptr(), simcuda.used_bytes()
    for _ in range(2):
        memory.pause()
        memory.pause()
        assert simcuda.used_bytes() <= used - 64 * MIB
        assert torch.equal(other.cpu(), values(1))
        memory.resume()
        memory.resume()
        assert simcuda.used_bytes() >= 64 * MIB and paused.data_ptr() == address
        paused.copy_(torch.full((64 * MIB,), 3, dtype=torch.uint8))
        assert paused.cpu().eq(3).all()


@in_every_mode()
def test_each_kind_of_backup_keeps_the_contents() -> None:
    memory = saver()
    kinds = {
        "pinned": {"enable_cpu_backup": True},
        "mmap": {"enable_cpu_backup": True, "cpu_backup_backend": "mmap"},
        "disk": {"enable_disk_backup": True},
        "none": {},
    }
    kept = {}
    for number, (name, backup) in enumerate(kinds.items()):
        with memory.region(tag="weights", **backup):
            kept[name] = values(number).cuda()
    for _ in range(2):
        memory.pause("weights")
        for name in ("pinned", "mmap"):
            expected = values(list(kinds).index(name))
            for zero_copy in (True, False):
                backup = memory.get_cpu_backup(kept[name], zero_copy=zero_copy)
                assert backup.dtype == torch.int32 and torch.equal(backup, expected)
        assert memory.get_cpu_backup(kept["disk"]) is None
        memory.resume("weights")
        for number, name in enumerate(("pinned", "mmap", "disk")):
            assert torch.equal(kept[name].cpu(), values(number)), name
        assert memory.get_cpu_backup(kept["pinned"]) is None
    memory.retain_cpu_backup = True
    memory.pause()
    memory.resume()
    assert memory.retain_cpu_backup
    assert torch.equal(memory.get_cpu_backup(kept["pinned"]), values(0))


@in_every_mode()
def test_tags_are_paused_one_by_one() -> None:
    memory = saver()
    with memory.region(tag="one", enable_cpu_backup=True):
        one = values(1).cuda()
        with memory.region(tag="two"):
            two = values(2).cuda()
        rest = values(3).cuda()
    memory.pause("one")
    assert torch.equal(two.cpu(), values(2))
    memory.pause("two")
    memory.resume("one")
    assert torch.equal(one.cpu(), values(1)) and torch.equal(rest.cpu(), values(3))
    memory.pause("never used")
    memory.resume("never used")
    memory.resume()
    two.copy_(values(4))
    assert torch.equal(two.cpu(), values(4))


@in_every_mode()
def test_what_is_in_no_region_stays() -> None:
    memory = saver()
    with memory.region(enable_cpu_backup=True):
        inside = values(1).cuda()
        with memory.disable():
            outside = values(2).cuda()
        also_inside = values(3).cuda()
    seen = []
    memory.pause()
    assert torch.equal(outside.cpu(), values(2))
    # Regions are a thread's own, and new ones are served while others are paused.
    thread = threading.Thread(target=lambda: seen.append(values(4).cuda()))
    with memory.region(tag="new", enable_cpu_backup=True):
        thread.start()
        thread.join()
        new = values(5).cuda()
    memory.pause("new")
    assert torch.equal(seen[0].cpu(), values(4))
    del also_inside
    memory.resume()
    assert torch.equal(inside.cpu(), values(1)) and torch.equal(new.cpu(), values(5))


@in_every_mode()
def test_the_memory_of_a_graph() -> None:
    """After it was resumed the graph is replayed: into memory that nobody has asked for since."""
    memory = saver()
    with memory.region(tag="inputs", enable_cpu_backup=True):
        given = values(1).cuda()
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    captured = memory.cuda_graph(graph, stream=side, tag="graph", enable_cpu_backup=True)
    with torch.cuda.stream(side), captured:
        between = given + 1
        result = torch.empty_like(given)
        result.copy_(between)
        del between
    torch.cuda.synchronize()
    address, used = result.data_ptr(), simcuda.used_bytes()
    result.copy_(values(9))
    for _ in range(2):
        graph.replay()
        torch.cuda.synchronize()
        expected = result.cpu()
        memory.pause("graph")
        assert simcuda.used_bytes() <= used - 2 * given.nbytes
        memory.pause()
        memory.resume()
        assert result.data_ptr() == address and simcuda.used_bytes() >= used - 4 * MIB
        assert torch.equal(given.cpu(), values(1))
        assert torch.equal(result.cpu(), expected)


@in_every_mode(env={"SIMCUDA_MEMORY": "512MiB"}, says="genesis: ")
def test_a_resume_that_fails_changes_nothing() -> None:
    memory = saver()
    with memory.region(tag="one", enable_cpu_backup=True):
        one = values(1).cuda()
        big = torch.empty(200 * MIB, dtype=torch.uint8, device="cuda")
    memory.pause()
    used = simcuda.used_bytes()
    guest = torch.empty(400 * MIB, dtype=torch.uint8, device="cuda")
    for _ in range(2):
        try:
            memory.resume()
        except genesis.OutOfMemoryError:
            continue
        raise AssertionError("512 MiB do not hold 620")
    assert simcuda.used_bytes() <= used + 402 * MIB
    del guest
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    memory.resume()
    assert torch.equal(one.cpu(), values(1)) and big.nbytes == 200 * MIB
    raise_a_line()


def raise_a_line() -> None:
    """Programs of this mode say something; those that had nothing to say do it here."""
    import sys

    print("genesis: done", file=sys.stderr)


@in_every_mode(says="genesis: .* under a tag would leave less than ")
def test_a_margin_stays_free() -> None:
    memory = saver()
    memory.memory_margin_bytes = 3 << 30
    with memory.region():
        torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
        try:
            torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            pass
        else:
            raise AssertionError("it would leave less than the margin")
    torch.empty(2 << 30, dtype=torch.uint8, device="cuda")


@program(
    modes=("preloaded",),
    env={**REAL_BYTES, "TMS_INIT_ENABLE": "1", "TMS_INIT_ENABLE_CPU_BACKUP": "1"},
    ending="any",
)
def test_a_whole_process_in_a_region() -> None:
    memory = saver()
    tensor = values(1).cuda()
    with memory.disable():
        outside = values(2).cuda()
    used = simcuda.used_bytes()
    memory.pause("default")
    assert simcuda.used_bytes() <= used - tensor.nbytes
    assert torch.equal(outside.cpu(), values(2))
    memory.resume()
    assert torch.equal(tensor.cpu(), values(1))


@program(modes=("enabled",), ending="any")
def test_misuse_is_refused() -> None:
    memory = saver()
    for wrong in (
        {"cpu_backup_backend": "mmap"},
        {"enable_cpu_backup": True, "cpu_backup_backend": "tape"},
    ):
        try:
            with memory.region(**wrong):
                pass
        except ValueError:
            continue
        raise AssertionError(wrong)
    try:
        with memory.disable():
            pass
    except AssertionError:
        return
    raise RuntimeError("disable() outside of a region")


@program(modes=("native",), ending="any")
def test_the_other_name() -> None:
    from genesis.torch_memory_saver import install

    install()
    install()
    import torch_memory_saver
    from torch_memory_saver.entrypoint import TorchMemorySaver

    ours = genesis.torch_memory_saver
    assert torch_memory_saver.torch_memory_saver is ours.torch_memory_saver
    assert TorchMemorySaver is ours.TorchMemorySaver
    assert torch_memory_saver.configure_subprocess is ours.configure_subprocess
