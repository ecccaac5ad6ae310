"""Profiles of PyTorch programs: levels, annotations, timelines, snapshots."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import genesis
import genesis.torch
from support.models import Shape, train
from support.program import program, run

MIB = 1 << 20


def block(n: int) -> torch.Tensor:
    return torch.empty(n, dtype=torch.uint8, device="cuda")


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder, which is the current one while the block runs."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            os.chdir(before)


@contextlib.contextmanager
def without_matplotlib() -> Iterator[None]:
    find_spec: Any = importlib.util.find_spec

    def found(name: str, *arguments: Any) -> Any:
        return None if name == "matplotlib" else find_spec(name, *arguments)

    importlib.util.find_spec = found  # type: ignore[assignment]
    try:
        yield
    finally:
        importlib.util.find_spec = find_spec


@program(modes=("enabled", "two_symbols"))
def test_a_report_says_what_happened() -> None:
    with genesis.memory_profiler.record():
        kept = block(30 * MIB)
        for _ in range(4):
            block(10 * MIB)
        torch.cuda.synchronize()
    after = block(MIB)
    report = genesis.memory_profiler.get_report()
    (device,) = report.devices
    assert device.ordinal == 0 and device.total_bytes == 80 << 30, device
    assert (device.allocations, device.frees) == (5, 4), device
    assert device.peak.requested_bytes == 40 * MIB, device
    assert device.now.requested_bytes == 30 * MIB, device
    assert device.now.allocated_bytes + MIB == genesis.memory_stats().allocated_bytes
    assert device.peak.reserved_bytes >= 40 * MIB
    counts = {size.block_bytes: size.counts for size in report.sizes}
    assert counts[30 * MIB].live_bytes == counts[30 * MIB].peak_bytes == 30 * MIB
    assert (counts[10 * MIB].allocations, counts[10 * MIB].frees) == (4, 4)
    assert counts[10 * MIB].hits == 3
    live = {one.address: one for one in report.live}
    assert live[kept.data_ptr()].size == 30 * MIB
    assert live[kept.data_ptr()].age is not None
    summary = report.summary()
    assert "30.0 MiB" in summary and "40.0 MiB" in summary, summary
    del kept, after


@program()
def test_profiling_is_turned_on_and_off() -> None:
    genesis.enable_memory_profiling(True)
    genesis.enable_memory_profiling()
    block(5 * MIB)
    genesis.enable_memory_profiling(False)
    genesis.enable_memory_profiling(False)
    block(7 * MIB)
    assert [size.block_bytes for size in genesis.memory_profiler.get_report().sizes] == [5 * MIB]
    for misuse in (genesis.memory_profiler.stop, lambda: genesis.memory_profiler.write("x.odt")):
        try:
            misuse()
        except genesis.InvalidArgumentError:
            continue
        raise AssertionError(misuse)


@program()
def test_without_a_profile_there_is_no_report() -> None:
    for ask in (genesis.memory_profiler.get_report, genesis.memory_profiler.get_timeline):
        try:
            ask()
        except genesis.InvalidArgumentError:
            continue
        raise AssertionError(ask)


@program()
def test_a_recording_within_a_profile_is_part_of_it() -> None:
    genesis.memory_profiler.start()
    with genesis.memory_profiler.record():
        block(3 * MIB)
    block(5 * MIB)
    genesis.memory_profiler.stop()
    sizes = [size.block_bytes for size in genesis.memory_profiler.get_report().sizes]
    assert sorted(sizes) == [3 * MIB, 5 * MIB]


@program()
def test_a_recording_ends_with_an_error_too() -> None:
    try:
        with genesis.memory_profiler.record():
            raise KeyError
    except KeyError:
        genesis.memory_profiler.start()  # it would raise if a profile was being made
        genesis.memory_profiler.stop()


@program()
def test_annotations_stand_in_the_timeline() -> None:
    @genesis.annotate("step")
    def step(number: int) -> None:
        genesis.mark(f"step {number}")
        with genesis.annotate("forward"):
            block(3 * MIB)

    with genesis.annotate("before"), genesis.memory_profiler.record():
        step(1)
        step(2)
        unfinished = genesis.annotate("unfinished")
        unfinished.__enter__()
    timeline = genesis.memory_profiler.get_timeline()
    found = [(one.name, one.depth) for one in timeline.annotations]
    one_step = [("step", 0), ("step 1", 1), ("forward", 1)]
    assert found[:3] == one_step, found
    assert found[3:] == [("step", 0), ("step 2", 1), ("forward", 1), ("unfinished", 0)], found
    for one in timeline.annotations:
        assert 0 <= one.begin <= one.end <= timeline.duration, one
        assert (one.begin == one.end) == (one.name in ("step 1", "step 2")), one
    (levels,) = timeline.devices
    assert max(peak.requested_bytes for peak in levels.peaks) == 3 * MIB
    assert levels.interval * len(levels.peaks) >= timeline.duration


@program()
def test_a_timeline_is_a_page_where_there_is_no_matplotlib() -> None:
    with genesis.memory_profiler.record():
        block(3 * MIB)
    timeline = genesis.memory_profiler.get_timeline()
    said = io.StringIO()
    with folder() as here, without_matplotlib(), contextlib.redirect_stdout(said):
        assert timeline.plot("a.html") == Path("a.html")
        assert said.getvalue() == "", "what is as asked for need not be said"
        assert timeline.plot("b.png") == Path("b.html")
        default = Path(f"genesis-timeline-{os.getpid()}.html")
        assert timeline.plot() == default
        assert said.getvalue().splitlines()[-1].endswith(f"written to {default}")
        pages = sorted(here.iterdir())
        assert len(pages) == 3 and all(page.read_text().startswith("<!") for page in pages)


@program()
def test_a_timeline_is_a_picture_with_matplotlib() -> None:
    with genesis.memory_profiler.record(), genesis.annotate("allocate"):
        block(3 * MIB)
    timeline = genesis.memory_profiler.get_timeline()
    with folder() as here, contextlib.redirect_stdout(io.StringIO()):
        assert timeline.plot("a.png") == Path("a.png")
        assert timeline.plot("a.svg") == Path("a.svg")
        assert timeline.plot() == Path(f"genesis-timeline-{os.getpid()}.png")
        assert all(len(path.read_bytes()) > 1000 for path in here.iterdir())


@program()
def test_every_form_is_written() -> None:
    with genesis.memory_profiler.record():
        train(Shape(layers=1), lengths=[64])
    with folder() as here:
        for name in ("a.html", "a.json", "a.trace.json", "a.txt", "%p.txt"):
            genesis.memory_profiler.write(name)
        genesis.memory_profiler.write(here / "b.json")
        assert Path(f"{os.getpid()}.txt").read_text() == Path("a.txt").read_text()
        for failing in (genesis.memory_profiler.write, genesis.snapshot):
            try:
                failing("no such folder/a.json")
            except genesis.GenesisError as error:
                assert "no such folder" in str(error)
                continue
            raise AssertionError(failing)


@program(ending="live")
def test_a_snapshot_agrees_with_the_statistics() -> None:
    tensors = [block(n * MIB) for n in (1, 3, 30, 300)]
    del tensors[1]
    with folder():
        genesis.snapshot("a.pickle")
        snapshot = pickle.loads(Path("a.pickle").read_bytes())
    stats = genesis.memory_stats()
    segments = snapshot["segments"]
    blocks = [one for segment in segments for one in segment["blocks"]]
    live = [one for one in blocks if one["state"] == "active_allocated"]
    assert sum(one["size"] for one in live) == stats.allocated_bytes
    assert {one["address"] for one in live} == {tensor.data_ptr() for tensor in tensors}


def profiled() -> None:
    train(Shape(layers=1), lengths=[64, 128])


def test_the_environment_profiles_a_whole_process(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run(profiled, "enabled", env={"GENESIS_PROFILE": str(page)})
    assert page.stat().st_size > 10_000
