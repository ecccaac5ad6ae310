"""Made-up programs, of kinds that the recorded ones lack.

    python3 benches/synthetic/make_traces.py FOLDER
    cargo xtask peers --cells --subjects expandable,elastic --trace-folder FOLDER

    python3 benches/synthetic/make_traces.py FOLDER --composed 300
    cargo bench --features ablations --bench ablations -- FOLDER

Each function of ``training`` and ``using`` is a program: it allocates and frees what a program of
its kind would, with sizes from a generator of random numbers with a fixed seed, so the traces are
the same everywhere. With ``--composed``, so many programs of random parts (``composed``) are made
instead. The format is that of ``traces/README.md``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Callable

import training
import using
from composed import compose
from recorder import Recorder

PROGRAMS: dict[str, Callable[[Recorder], None]] = {
    "serving": using.serving,
    "training": lambda to: training.transformer(
        to, 24, 2048, lengths=(64, 1024), batch=8, recomputes=False
    ),
    "recomputing": lambda to: training.transformer(
        to, 32, 3072, lengths=(128, 2048), batch=4, recomputes=True
    ),
    "graphs": training.graphs,
    "experts": training.experts,
    "generate_and_train": training.generate_and_train,
    "buckets": training.buckets,
    "growing": using.growing,
    "resolutions": training.resolutions,
    "caching": using.caching,
    "sharded": training.sharded,
    "preferences": training.preferences,
    "pictures": using.pictures,
    "points": training.points,
    "index": using.index,
    "pipeline": training.pipeline,
    "beams": using.beams,
    "accumulating": training.accumulating,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes up programs, and writes their traces.")
    parser.add_argument("folder", type=Path, help="where to write them")
    parser.add_argument("--composed", type=int, metavar="COUNT", help="so many of random parts")
    arguments = parser.parse_args()
    programs = PROGRAMS
    if arguments.composed is not None:
        programs = {f"composed_{number:03}": compose for number in range(arguments.composed)}
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, program) in enumerate(programs.items()):
        recorder = Recorder(seed)
        program(recorder)
        (arguments.folder / f"{name}.gtr").write_bytes(recorder.records)


if __name__ == "__main__":
    main()
