"""What a profile has found, in a text and in values."""

from __future__ import annotations

from . import _history, _live, _profile


class Report:
    """A profile at the moment it was asked for."""

    def __init__(self, document: _profile.Document, text: str) -> None:
        self._text = text
        #: How long the profile is, in seconds.
        self.duration: float = document.duration
        #: Every device in use.
        self.devices: list[_profile.DeviceSummary] = document.devices()
        #: What was allocated, by size of block.
        self.sizes: list[_profile.SizeSummary] = document.sizes()
        #: What was allocated, by place in the program; empty where places were not looked for.
        self.call_sites: list[_profile.CallSiteSummary] = document.call_sites()
        #: What was live, largest first.
        self.live: list[_live.Allocation] = document.live()
        #: The program's own ranges and marks, as far back as the history goes.
        self.annotations: list[_history.Annotation] = document.annotations()

    def summary(self) -> str:
        """The report as a text of a screen or two."""
        return self._text

    def __repr__(self) -> str:
        devices = ", ".join(str(device.ordinal) for device in self.devices)
        return f"<genesis report of {self.duration:.3f} s on devices {devices or 'none'}>"
