"""How the memory of a profile went over time, and a picture of it."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Callable, Optional, Union

from . import _history, _profile

_Path = Union[str, "os.PathLike[str]"]
_PAGE = ".html"
_PICTURE = ".png"


class Timeline:
    """The levels of each device over a profile, and what the program said of itself."""

    def __init__(self, document: _profile.Document, write_page: Callable[[Path], None]) -> None:
        #: How long the profile is, in seconds.
        self.duration: float = document.duration
        #: Each device in use: its levels in equal intervals.
        self.devices: list[_profile.DeviceLevels] = document.timelines()
        #: The program's own ranges and marks, as far back as the history goes.
        self.annotations: list[_history.Annotation] = document.annotations()
        self._names = {device.ordinal: device.name for device in document.devices()}
        self._write_page = write_page

    def plot(self, path: Optional[_Path] = None) -> Optional[Path]:
        """Draws the timeline: with matplotlib where it is installed, else as the HTML page of the
        profile, which is also what a ``path`` that ends in ``.html`` asks for.

        With a ``path`` the picture is written there, in the form the name ends in. Without, it is
        shown where matplotlib can show it (a notebook, a desktop), and otherwise, on a machine
        without a display for instance, written to ``genesis-timeline-<process>.png`` (or
        ``.html``) in the current folder, which is said on standard output. Returns the path that
        was written, or ``None`` if nothing was.
        """
        has_matplotlib = importlib.util.find_spec("matplotlib") is not None
        if path is not None and Path(path).suffix == _PAGE:
            return self._page(Path(path))
        if not has_matplotlib:
            return self._told(self._page(_default(_PAGE) if path is None else _beside(Path(path))))
        from . import _plot

        if path is not None:
            _plot.save(self, self._names, Path(path))
            return Path(path)
        if _plot.show(self, self._names):
            return None
        picture = _default(_PICTURE)
        _plot.save(self, self._names, picture)
        return self._told(picture)

    def _page(self, path: Path) -> Path:
        self._write_page(path)
        return path

    @staticmethod
    def _told(path: Path) -> Path:
        print(f"genesis: the timeline was written to {path}")
        return path

    def __repr__(self) -> str:
        return f"<genesis timeline of {self.duration:.3f} s, {len(self.devices)} devices>"


def _default(suffix: str) -> Path:
    return Path(f"genesis-timeline-{os.getpid()}{suffix}")


def _beside(path: Path) -> Path:
    """Where the page goes when the picture that was asked for cannot be drawn."""
    return path.with_suffix(_PAGE)
