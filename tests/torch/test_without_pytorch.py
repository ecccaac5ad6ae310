"""The package without PyTorch: programs that call the library themselves, on the host backend, each
in a process of its own."""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Optional

ROOT = Path(__file__).resolve().parent
MIB = 1 << 20


def alone(program: Callable[[], None]) -> Callable[[], None]:
    """Makes a test of a program: it passes if its process exits with 0 and writes nothing."""

    @functools.wraps(program)
    def test() -> None:
        own_variables = {"GENESIS_BACKEND": "host", "GENESIS_SIM_MEMORY": "1GiB"}
        folders = f"{ROOT}{os.pathsep}{ROOT.parent.parent / 'python'}"
        code = f"import {Path(__file__).stem} as tests; tests.{program.__name__}.program()"
        finished = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **own_variables, "PYTHONPATH": folders},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        said = f"{finished.stdout}{finished.stderr}"
        assert finished.returncode == 0 and said == "", said

    test.program = program  # type: ignore[attr-defined]
    del test.__wrapped__  # pytest reads the arguments of what it finds there
    return test


class Block:
    """A block of the library."""

    def __init__(self, size: int, stream: int = 0) -> None:
        malloc = library().genesis_malloc
        malloc.restype = ctypes.c_void_p
        malloc.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        self.address: Optional[int] = malloc(size, 0, stream)
        assert self.address is not None

    def free(self) -> None:
        free = library().genesis_free
        free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        free(self.address, 0, 0, None)


@functools.cache
def library() -> Any:
    import genesis

    return ctypes.CDLL(str(genesis.library_path()))


@alone
def test_pytorch_is_not_needed() -> None:
    import genesis

    for name in genesis.__all__:
        assert getattr(genesis, name) is not None
    assert "torch" not in sys.modules and "matplotlib" not in sys.modules
    assert genesis.version().count(".") == 2


@alone
def test_adapters_are_attributes() -> None:
    import genesis

    adapters = {"cupy", "numba", "onnxruntime", "rmm", "torch"}
    assert adapters <= set(dir(genesis)) and "stats" in dir(genesis)
    assert "torch" not in sys.modules
    genesis.torch.enable(pool_type="Caching")
    assert "torch" in sys.modules and genesis.torch is sys.modules["genesis.torch"]
    assert genesis.torch.is_enabled() and genesis.options.get("pool_type") == "Caching"
    assert not hasattr(genesis, "tensorflow")


@alone
def test_an_adapter_without_its_framework_names_the_package() -> None:
    import genesis

    for name, package in (("cupy", "cupy"), ("torch", "torch"), ("numba", "numba-cuda")):
        sys.modules[name] = None  # type: ignore[assignment]  # as if it were not installed
        assert not hasattr(genesis, name)
        try:
            getattr(genesis, name)
        except AttributeError as error:
            assert f"pip install {package}`" in str(error), error
        else:
            raise AssertionError(name)
    try:
        importlib.import_module("genesis.torch")
    except ModuleNotFoundError as error:
        assert error.name == "torch"
    else:
        raise AssertionError("an import has Python's own error")


def test_editors_know_the_adapters() -> None:
    """The names that a type checker sees are those that can be loaded."""
    from genesis import _adapters

    text = Path(_adapters.__file__).with_name("__init__.py").read_text()
    listed = re.search(r"if TYPE_CHECKING:.*\n    from \. import \(([^)]*)\)", text)
    assert listed is not None, text
    assert set(re.findall(r"(\w+) as \1", listed[1])) == set(_adapters.ADAPTERS)


def test_every_name_has_its_place_on_the_page() -> None:
    import genesis

    on_the_page = names_on((ROOT.parent.parent / "docs" / "python.md").read_text())
    names = [f"genesis.{name}" for name in genesis.__all__ if not name.endswith("Error")]
    for module in ("memory_profiler", "memory_manager", "cuda", "options"):
        names += [f"genesis.{module}.{name}" for name in getattr(genesis, module).__all__]
    assert sorted(set(names) - on_the_page) == []


def names_on(page: str) -> set[str]:
    """The full names in the code of a page. In a line, a name without its module is of the module
    of the name before: `genesis.options.get(name)`, `.set(name, value)`."""
    names = set(re.findall(r"\bgenesis(?:\.\w+)+", page))
    for line in page.splitlines():
        module = "genesis"
        for code in re.findall(r"`([\w.]+)[^`]*`", line):
            if code.startswith("genesis."):
                module = code.rpartition(".")[0]
            else:
                names.add(f"{module}.{code.lstrip('.')}")
    return names | {name.rpartition(".")[0] for name in names}


@alone
def test_statistics() -> None:
    import genesis

    kept, gone = Block(30 * MIB), Block(3 * MIB, stream=0x1000)
    gone.free()
    stats = genesis.memory_stats()
    assert (stats.allocated_bytes, stats.peak_allocated) == (30 * MIB, 33 * MIB)
    assert (stats.num_allocs, stats.num_frees) == (2, 1)
    assert stats.cached_bytes == stats.reserved_bytes - 30 * MIB
    assert 0 < stats.fragmentation_ratio() < 1
    details = genesis.detailed_memory_stats()
    assert (details.total_allocated, details.cache_hit_rate) == (30 * MIB, 0)
    (large,) = details.get_large_allocations("1MB")
    assert (large.address, large.size, large.stream) == (kept.address, 30 * MIB, 0)
    genesis.empty_cache()
    assert 30 * MIB <= genesis.memory_stats().reserved_bytes <= 64 * MIB
    assert genesis.memory_manager.collect_garbage() == genesis.memory_manager.compact(0) == 0
    kept.free()


@alone
def test_limits() -> None:
    import genesis

    genesis.cuda.set_memory_fraction(0.5)
    genesis.cuda.set_cache_size("2 MB")
    assert genesis.options.get("memory_fraction") == "0.5"
    assert genesis.options.get("cache_size") == "2MiB"
    assert genesis.memory_info()[0] == 512 * MIB
    Block(30 * MIB).free()
    assert genesis.memory_stats().cached_bytes <= 2 * MIB
    genesis.cuda.set_cache_size("unlimited")
    assert genesis.options.get("cache_size") == "unlimited"


@alone
def test_a_report_and_a_timeline() -> None:
    import genesis

    def work(size: int, thread: str) -> None:
        with genesis.annotate(thread):
            Block(size).free()

    with genesis.memory_profiler.record():
        kept = Block(10 * MIB)
        threads = [threading.Thread(target=work, args=(2 * MIB, f"thread {n}")) for n in range(3)]
        for thread in threads:
            thread.start()
            thread.join()
    report = genesis.memory_profiler.get_report()
    (device,) = report.devices
    assert (device.allocations, device.frees) == (4, 3)
    assert device.peak.requested_bytes == 12 * MIB
    names = [one.name for one in report.annotations]
    assert names == ["thread 0", "thread 1", "thread 2"], names
    assert len({one.thread for one in report.annotations}) == 3
    (live,) = report.live
    assert (live.address, live.size) == (kept.address, 10 * MIB)
    assert Path(__file__).name in live.location and "__init__" in live.location, live
    sites = {site.stack: site.counts.allocations for site in report.call_sites}
    assert sorted(sites.values()) == [1, 3], sites
    timeline = genesis.memory_profiler.get_timeline()
    assert max(peak.requested_bytes for peak in timeline.devices[0].peaks) == 12 * MIB
    kept.free()


@alone
def test_call_sites_can_be_left_out() -> None:
    import genesis

    genesis.options.set("call_sites", "off")
    with genesis.memory_profiler.record():
        Block(MIB).free()
    assert [site for site in genesis.memory_profiler.get_report().call_sites if site.stack] == []


@alone
def test_an_annotation_is_a_decorator_too() -> None:
    import genesis

    @genesis.annotate("twice")
    def twice(n: int) -> int:
        """Doubles."""
        return 2 * n if n < 3 else twice(n - 1)

    assert twice(4) == 4 and twice.__doc__ == "Doubles.", "nobody listens"
    with genesis.memory_profiler.record():
        assert twice(4) == 4
        try:
            with genesis.annotate("failing"):
                raise KeyError
        except KeyError:
            genesis.mark("after")
    found = [(one.name, one.depth) for one in genesis.memory_profiler.get_timeline().annotations]
    assert found == [("twice", 0), ("twice", 1), ("twice", 2), ("failing", 0), ("after", 0)], found


@alone
def test_a_long_history_keeps_its_latest_part() -> None:
    import genesis

    genesis.options.set("profile_events", 100_000)
    with genesis.memory_profiler.record():
        Block(MIB).free()
        for n in range(300_000):
            genesis.mark("first" if n < 10 else "other")
        genesis.mark("last")
    report = genesis.memory_profiler.get_report()
    assert report.devices[0].allocations == 1, "sums are of the whole run"
    names = [one.name for one in report.annotations]
    assert names[-1] == "last" and "first" not in names and 50_000 < len(names) < 250_000


def test_a_location_is_the_frame_that_tells_most() -> None:
    from genesis._live import location_of

    torch = "/venv/lib/python3.11/site-packages/torch"
    start = "./nptl/pthread_create.c:442 (start_thread)"
    backward = f"{torch}/lib/libtorch_cpu.so (torch::autograd::generated::MmBackward0::apply"
    operator = f"{torch}/lib/libtorch_cpu.so (at::_ops::sum::call"
    outer = f"{torch}/lib/libtorch_cpu.so (at::_ops::loss::call"
    inner = f"{torch}/lib/libtorch_cuda.so (at::(anonymous namespace)::create_out)"
    for stack, location in (
        ((), "unknown"),
        (("train.py:3 (<module>)",), "train.py:3 (<module>)"),
        ((f"{torch}/nn/linear.py:134 (forward)", "/a/train.py:12 (step)"), "/a/train.py:12 (step)"),
        ((inner, f"{backward}(std::vector<at::Tensor>&&))", operator, start), f"{backward})"),
        ((inner, f"{operator})", f"{outer}(at::Tensor const&))", start), f"{outer})"),
        ((inner, "/lib/libstdc++.so.6 (0xd44a2)", start), inner),
        (("/a/libown.so (work)", "/a/main.cpp:7 (main)"), "/a/main.cpp:7 (main)"),
    ):
        assert location_of(stack) == location, stack


@alone
def test_a_leak_is_foretold_and_compactions_are_told() -> None:
    import genesis

    told: list[tuple[int, genesis.Forecast]] = []
    done: list[genesis.memory_manager.Compaction] = []
    genesis.options.set("log", "off")
    genesis.on_forecast(lambda device, forecast: told.append((device, forecast)))
    genesis.memory_manager.on_compaction(lambda _, compaction: done.append(compaction))
    blocks = []
    for step in range(40):
        blocks.append(Block(4 * MIB))
        genesis.trace.iteration(step)
    assert [device for device, _ in told] == [0] and told[0][1].is_leak
    now = genesis.forecast()
    assert now.is_growing and now.bytes_per_step == 4 * MIB and now.steps == 40, now
    assert now.fewest_steps_left <= now.steps_left <= 256 - 40, now
    for block in blocks:
        block.free()
    genesis.options.set("compact_above", 0.3)
    larger = Block(300 * MIB)
    assert all(one.released_bytes <= one.free_bytes for one in done), done
    larger.free()
    genesis.on_forecast(None)
    genesis.memory_manager.on_compaction(None)
