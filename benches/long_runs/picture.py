"""The picture of a program: memory and moves over its steps, for each allocator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot

from allocators import ALLOCATORS
from figures import held_over_live
from recording import Recording

mpl.use("Agg")
# Text as text, and the same file from the same figures.
mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "long_runs", "font.size": 9})

#: Of calls and moves; more would overlap.
MOST_POINTS = 250


def draw(path: Path, title: str, recordings: Mapping[str, Recording]) -> None:
    """Draws the recordings of one program, by the names of the allocators."""
    figure, (memory, ratios, moves) = pyplot.subplots(
        3, sharex=True, figsize=(9, 7.5), height_ratios=(3, 2, 1.5), layout="constrained"
    )
    _memory(memory, recordings)
    _ratios(ratios, recordings)
    _moves(moves, recordings)
    figure.suptitle(title)
    moves.set_xlabel("step")
    for axes in (memory, ratios, moves):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0)
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


def _memory(axes: Any, recordings: Mapping[str, Recording]) -> None:
    live = [count / 2**30 for count in next(iter(recordings.values())).live_bytes]
    axes.fill_between(range(len(live)), live, color="#dddddd", linewidth=0, label="live")
    for name, recording in reversed(list(recordings.items())):
        held = [count / 2**30 for count in recording.held_bytes]
        label = f"held by {ALLOCATORS[name].title}"
        axes.plot(held, color=ALLOCATORS[name].color, linewidth=1.2, label=label)
    axes.set_ylabel("GiB, peak within a step")
    axes.set_ylim(bottom=0)
    # Above, where it hides nothing.
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4, frameon=False)


def _ratios(axes: Any, recordings: Mapping[str, Recording]) -> None:
    """High enough for all but PyTorch's native allocator, which may be far above."""
    highest = 1.05
    for name, recording in reversed(list(recordings.items())):
        ratios = held_over_live(recording)
        axes.plot(ratios, color=ALLOCATORS[name].color, linewidth=1.2)
        if name != "native":
            highest = max(highest, *ratios)
    axes.set_ylabel("held over the most\nlive so far")
    axes.set_ylim(1, 1 + 1.1 * (highest - 1))


def _moves(axes: Any, recordings: Mapping[str, Recording]) -> None:
    """Also calls for memory: an allocator that moves nothing makes memory instead."""
    for name, recording in reversed(list(recordings.items())):
        color = ALLOCATORS[name].color
        axes.plot(*_most(recording.memory_calls), color=color, linewidth=0.8)
        if any(recording.moves):
            axes.fill_between(*_most(recording.moves), color=color, alpha=0.3, linewidth=0)
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("calls for memory\n(filled: moves)")


def _most(counts: Sequence[int]) -> tuple[list[int], list[int]]:
    """The largest of every few counts, and where each few begin: a picture has no room for all."""
    few = -(-len(counts) // MOST_POINTS)
    steps = list(range(0, len(counts), few))
    return steps, [max(counts[step : step + few]) for step in steps]
