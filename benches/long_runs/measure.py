"""`cargo xtask long-runs`: programs whose steps never repeat, with Genesis and PyTorch's own.

===============  ==================================================================================
measure          the command line: it starts the runs, and writes the page and pictures
programs         what is run
allocators       what it is run with, and the process of each run
child            that process
recording        what is counted in it, for each step
figures          what tables say of a recording
page, picture    docs/benchmarks/long_runs.md, and a picture for each program
===============  ==================================================================================

The recordings are kept in the build folder; ``--page`` writes the page from them again, and runs of
some programs or allocators only replace theirs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Callable

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "torch")]

import page  # noqa: E402
import picture  # noqa: E402
from allocators import ALLOCATORS, Result, execute, read  # noqa: E402
from programs import PROGRAMS  # noqa: E402


def main() -> None:
    arguments = _parse()
    kept = arguments.build / "long_runs" / ("smoke" if arguments.smoke else "full")
    kept.mkdir(parents=True, exist_ok=True)
    if not arguments.page:
        for program in arguments.programs:
            for allocator in arguments.allocators:
                print(f"{program}, {ALLOCATORS[allocator].title}", file=sys.stderr)
                execute(program, allocator, arguments.smoke, _file(kept, program, allocator))
    results = _kept(kept)
    pages = kept if arguments.smoke else ROOT / "docs" / "benchmarks"
    _write(pages, results)
    print(page.tables(results))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser("cargo xtask long-runs", description=__doc__.splitlines()[0])
    for name, known in (("programs", list(PROGRAMS)), ("allocators", list(ALLOCATORS))):
        text = f"separated by commas; default: all of {', '.join(known)}"
        parser.add_argument(
            f"--{name}", type=_names(known), default=known, metavar="NAMES", help=text
        )
    parser.add_argument("--page", action="store_true", help="only write the page again")
    parser.add_argument(
        "--smoke", action="store_true", help="a few small steps; the page goes to the build folder"
    )
    parser.add_argument("--build", type=Path, default=ROOT / "target", help="the build folder")
    return parser.parse_args()


def _names(known: list[str]) -> Callable[[str], list[str]]:
    """Reads a list of them."""

    def read_names(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",")]
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(known)}")
        return names

    return read_names


def _file(kept: Path, program: str, allocator: str) -> Path:
    return kept / f"{program.replace(' ', '_')}.{allocator}.json"


def _kept(kept: Path) -> dict[tuple[str, str], Result]:
    """The results that there are, in the order in which they are shown."""
    files = {
        (program, allocator): _file(kept, program, allocator)
        for program in PROGRAMS
        for allocator in ALLOCATORS
    }
    return {names: read(file) for names, file in files.items() if file.exists()}


def _write(folder: Path, results: Mapping[tuple[str, str], Result]) -> None:
    for program in PROGRAMS:
        recordings = {
            allocator: result.recording
            for (name, allocator), result in results.items()
            if name == program
        }
        if len({tuple(recording.live_bytes) for recording in recordings.values()}) > 1:
            raise SystemExit(f"{program}: the runs asked for different memory; run all allocators")
        if recordings:
            picture.draw(folder / page.picture_name(program), page.title(program), recordings)
    (folder / "long_runs.md").write_text(page.write(results))
    print(f"The page is {folder / 'long_runs.md'}", file=sys.stderr)


if __name__ == "__main__":
    main()
