"""The results of a profile, as a text and as values."""

from __future__ import annotations

from . import _history, _live, _profile


class Report:
    """A profile at the moment it was asked for."""

    def __init__(self, document: _profile.Document, text: str) -> None:
        self._text = text
        #: The length of the profile, in seconds.
        self.duration: float = document.duration
        #: Every device in use.
        self.devices: list[_profile.DeviceSummary] = document.devices()
        #: All blocks, by size.
        self.sizes: list[_profile.SizeSummary] = document.sizes()
        #: All blocks, by call site; empty if call sites were off.
        self.call_sites: list[_profile.CallSiteSummary] = document.call_sites()
        #: The live blocks, largest first.
        self.live: list[_live.Allocation] = document.live()
        #: The program's own ranges and marks, as far back as the history goes.
        self.annotations: list[_history.Annotation] = document.annotations()

    def summary(self) -> str:
        """The report as a text of a screen or two."""
        return self._text

    def __repr__(self) -> str:
        devices = ", ".join(str(device.ordinal) for device in self.devices)
        return f"<genesis report of {self.duration:.3f} s on devices {devices or 'none'}>"
