"""The memory levels of a profile over time, and a picture of them."""

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
    """The levels of each device over a profile, and the program's annotations."""

    def __init__(self, document: _profile.Document, write_page: Callable[[Path], None]) -> None:
        #: The length of the profile, in seconds.
        self.duration: float = document.duration
        #: Each device in use: its levels in equal intervals.
        self.devices: list[_profile.DeviceLevels] = document.timelines()
        #: The program's own ranges and marks, as far back as the history goes.
        self.annotations: list[_history.Annotation] = document.annotations()
        self._names = {device.ordinal: device.name for device in document.devices()}
        self._write_page = write_page

    def plot(self, path: Optional[_Path] = None) -> Optional[Path]:
        """Draws the timeline with matplotlib. If that is not installed, or ``path`` ends in
        ``.html``, it writes the HTML page of the profile instead.

        With a ``path`` the picture is written there, in the format of the path's suffix. Without,
        it is shown in the notebook or on the desktop. Where it cannot be shown, it is written to
        ``genesis-timeline-<process>.png`` (or ``.html``) in the current folder, and a line on
        standard output names the file. Returns the path that was written, or ``None``.
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
    """The path of the page, when the picture at ``path`` cannot be drawn."""
    return path.with_suffix(_PAGE)
