"""The page: what was measured, how, and a table of memory and one of the driver's time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Callable

from allocators import ALLOCATORS, Result
from figures import Figures
from programs import PROGRAMS

#: Results by the names of program and allocator.
Results = Mapping[tuple[str, str], Result]

EXPLANATION = """\
Written by `cargo xtask long-runs`: programs under the real PyTorch whose steps never repeat, \
each for hundreds of steps, with Genesis as PyTorch's allocator and with PyTorch's own. It needs \
Python 3 and no GPU; PyTorch is installed from the package registry (5 GB).

- **The programs** are in `benches/long_runs/programs.py`. Their sizes are random from a fixed \
seed, so every allocator serves the same requests.
- **The same driver.** PyTorch runs on `crates/simcuda`, CUDA's own symbols over a software \
model. Kernels do nothing, so large tensors are cheap. Memory is counted, and each call of the \
driver has its price. The figures of PyTorch's own allocator repeat exactly; Genesis's vary from \
run to run, driver time more than memory.
- *Live* is what the program has asked for, *held* the device's memory in use; both are peaks \
within a step. Ratios are of the memory held in a step over the most that was live in a step so \
far; 1 is the best possible.
- *First* and *last* are the means over the first and the last tenth of the steps, and *creep* is \
last over first. A good allocator's creep is 1: it holds no more after hundreds of steps than it \
had to at the start.
- *Start* is the driver's time until the first step has ended, which includes making the model. \
Median, mean, worst and steps with calls leave out the first tenth of the steps, as warm-up.
- *Moves* are mappings of memory that had been mapped elsewhere before. *Mappings* are all that \
there are at a time; Genesis remembers some that it does not use now.
"""

MEMORY_COLUMNS = "live GiB | calls a step | at the end | worst | first | last | creep"
TIME_COLUMNS = (
    "start ms | rest of the first tenth ms | median ms | mean ms | worst ms | steps with calls for "
    "memory | moves in the first tenth | moves in the last tenth | "
    "mappings after the first tenth | mappings at the end"
)


def write(results: Results) -> str:
    """The page's text."""
    runs = "\n".join(f"- {name}: {value}" for name, value in _circumstances(results).items())
    programs = dict.fromkeys(program for program, _ in results)
    parts = [f"# Long runs\n\n{EXPLANATION}", f"## The runs\n\n{runs}\n", tables(results)]
    return "\n".join([*parts, *(_section(program, results) for program in programs)])


def tables(results: Results) -> str:
    """Both tables."""
    memory, time = _table(results, MEMORY_COLUMNS, _memory), _table(results, TIME_COLUMNS, _time)
    return f"## Memory held over memory live\n\n{memory}\n## Driver time\n\n{time}"


def title(program: str) -> str:
    return f"{program[0].upper()}{program[1:]}"


def picture_name(program: str) -> str:
    """The file of a program's picture."""
    return f"long_runs_{program.replace(' ', '_')}.svg"


def _circumstances(results: Results) -> dict[str, str]:
    """Those of all runs; where runs differ, every value."""
    values: dict[str, dict[str, None]] = {}
    for result in results.values():
        for name, value in result.circumstances.items():
            values.setdefault(name, {})[value] = None
    return {name: "; ".join(each) for name, each in values.items()}


def _section(program: str, results: Results) -> str:
    runs = [result.recording for (name, _), result in results.items() if name == program]
    steps, what, heading = len(runs[0].live_bytes), PROGRAMS[program].what, title(program)
    return f"## {heading}\n\n{steps} steps: {what}.\n\n![{heading}]({picture_name(program)})\n"


def _table(results: Results, columns: str, cells: Callable[[Figures], list[str]]) -> str:
    count = columns.count("|") + 1
    lines = [f"| program | allocator | {columns} |", f"|---|---|{'---:|' * count}"]
    for (program, allocator), result in results.items():
        row = [program, ALLOCATORS[allocator].title, *cells(Figures.of(result.recording))]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def _memory(of: Figures) -> list[str]:
    ratios = [f"{ratio:.3f}" for ratio in (of.end, of.worst, of.first, of.last, of.creep)]
    return [f"{of.live_bytes / 2**30:.1f}", f"{of.allocations:,}", *ratios]


def _time(of: Figures) -> list[str]:
    return [
        f"{of.start_ms:.1f}",
        f"{of.first_tenth_ms:.1f}",
        f"{of.median_ms:.3f}",
        f"{of.warm_ms:.3f}",
        f"{of.worst_ms:.1f}",
        f"{100 * of.steps_with_calls:.1f} %",
        f"{of.moves_first:,}",
        f"{of.moves_last:,}",
        f"{of.mappings_first:,}",
        f"{of.mappings_last:,}",
    ]
