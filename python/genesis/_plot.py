"""Draws a timeline with matplotlib. Only this module imports it, and only when a picture is drawn.

A file is drawn without pyplot, which would need a display and mix with the program's own figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from matplotlib.figure import Figure

from . import _sizes

if TYPE_CHECKING:
    from ._history import Annotation
    from ._profile import DeviceLevels


class Timeline(Protocol):
    """What is drawn: ``_timeline.Timeline`` has it."""

    duration: float
    devices: list[DeviceLevels]
    annotations: list[Annotation]


_INCHES_WIDE, _INCHES_A_DEVICE = 11.0, 3.6
_DOTS_PER_INCH = 110
#: The levels from the highest down: label, attribute, colour, and true if it is filled.
_LEVELS = (
    ("reserved", "reserved_bytes", "#b8c0cc", True),
    ("active", "active_bytes", "#e0a458", False),
    ("allocated", "allocated_bytes", "#3d7ea6", True),
    ("requested", "requested_bytes", "#1b3a4b", False),
)
#: Room for the program's ranges above the highest level, as a part of that level.
_HEADROOM = 0.3
_RANGE_COLOUR = "#9b2226"
#: More ranges than this cannot be told apart in a picture of this size.
_MOST_RANGES = 400
#: A range is labelled if it is at least this part of the whole.
_NAMED_PART = 0.04
#: Backends that draw into files only.
_WITHOUT_DISPLAY = {"agg", "cairo", "pdf", "pgf", "ps", "svg", "template"}


def save(timeline: Timeline, names: dict[int, str], path: Path) -> None:
    """Draws to the file at ``path``."""
    figure = Figure(figsize=_size(timeline), dpi=_DOTS_PER_INCH)
    _draw(figure, timeline, names)
    figure.savefig(path)


def show(timeline: Timeline, names: dict[int, str]) -> bool:
    """Draws on the screen or in the notebook. Returns false if there is neither."""
    from matplotlib import pyplot

    if pyplot.get_backend().lower() in _WITHOUT_DISPLAY:
        return False
    _draw(pyplot.figure(figsize=_size(timeline)), timeline, names)
    pyplot.show()
    return True


def _size(timeline: Timeline) -> tuple[float, float]:
    return _INCHES_WIDE, _INCHES_A_DEVICE * max(len(timeline.devices), 1)


def _draw(figure: Any, timeline: Timeline, names: dict[int, str]) -> None:
    figure.set_layout_engine("constrained")
    rows = figure.subplots(max(len(timeline.devices), 1), 1, sharex=True, squeeze=False)
    for axes, levels in zip(rows[:, 0], timeline.devices):
        _draw_levels(axes, levels)
        _draw_ranges(axes, timeline.annotations, _NAMED_PART * timeline.duration)
        title = f"device {levels.device}  {names.get(levels.device, '')}"
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlim(0, max(timeline.duration, 1e-9))
        legend_at = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": len(_LEVELS)}
        axes.legend(fontsize=8, frameon=False, **legend_at)
    rows[-1, 0].set_xlabel("seconds")


def _draw_levels(axes: Any, levels: DeviceLevels) -> None:
    edges = [levels.interval * n for n in range(len(levels.peaks) + 1)]
    highest = max((max(vars(peak).values()) for peak in levels.peaks), default=0)
    unit_bytes, unit = _sizes.unit(highest)
    for label, attribute, colour, is_filled in _LEVELS:
        values = [getattr(peak, attribute) / unit_bytes for peak in levels.peaks]
        style = {"baseline": 0, "linewidth": 0} if is_filled else {"baseline": None}
        axes.stairs(values, edges, fill=is_filled, color=colour, label=label, **style)
    axes.set_ylim(0, max(highest, 1) / unit_bytes * (1 + _HEADROOM))
    axes.set_ylabel(unit)


def _draw_ranges(axes: Any, annotations: Sequence[Annotation], named_seconds: float) -> None:
    """Draws the outermost two ranges of each thread as lines above the levels, labelled if they are
    as long as ``named_seconds``; marks as dots."""
    shown = [one for one in annotations if one.depth < 2][:_MOST_RANGES]
    above = axes.get_xaxis_transform()
    for one in shown:
        height = 0.94 - 0.07 * one.depth
        if one.begin == one.end:
            axes.plot([one.begin], [0.99], "v", color=_RANGE_COLOUR, markersize=3, transform=above)
        else:
            ends, heights = [one.begin, one.end], [height, height]
            axes.plot(ends, heights, color=_RANGE_COLOUR, linewidth=2, transform=above)
        if one.end - one.begin >= max(named_seconds, 1e-9):
            style = {"fontsize": 7, "color": _RANGE_COLOUR, "clip_on": True}
            axes.text(one.begin, height + 0.01, one.name, transform=above, **style)
