"""When memory will run out: whether it grows from step to step of the program."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

from . import _library, _prototypes, _structs


@dataclass(frozen=True)
class Forecast:
    """What is known of a device at the end of the last step; sizes in bytes."""

    #: Steps marked while the device was in use.
    steps: int
    #: The most bytes that were ever live.
    peak_bytes: int
    #: The most bytes that could be; 0 unless memory grows.
    possible_bytes: int
    #: More bytes in each step; 0 unless memory grows.
    bytes_per_step: float
    #: After so many more steps memory runs out; infinity unless it grows.
    steps_left: float
    #: The same if memory grows as fast as it sometimes did, and is as fragmented as so far, and the
    #: next step is as high as the highest.
    fewest_steps_left: float
    #: How sure it is that memory grows, from 0 to 1; 0 unless it grows.
    confidence: float
    #: True if what is live at the end of a step grows, false if only the peak within a step does.
    is_leak: bool

    @property
    def is_growing(self) -> bool:
        """True if memory grows from step to step."""
        return self.confidence > 0


def forecast(device: int = 0) -> Forecast:
    """Returns when the memory of ``device`` will run out, if it grows from step to step. The ends
    of steps are marked by :func:`genesis.trace.iteration`; fewer than 16 of them show nothing."""
    struct = _structs.CForecast()
    struct.struct_size = ctypes.sizeof(struct)
    _library.call("genesis_forecast_get", device, ctypes.byref(struct))
    return _of(struct)


#: All of them: a call of one that was replaced may still be under way.
_callbacks: list[Any] = []


def on_forecast(callback: Optional[Callable[[int, Forecast], None]]) -> None:
    """Has ``callback(device, forecast)`` called when memory will run out within as many steps as
    the option ``forecast_steps`` says, in place of the callback before; ``None``: none. It is
    called by :func:`genesis.trace.iteration`, once, and again when less than a quarter of the steps
    are left. There is a warning in the log in any case."""
    function = _prototypes.ForecastCallback()
    if callback is not None:
        told = callback
        function = _prototypes.ForecastCallback(
            lambda _, device, struct: told(device, _of(struct.contents))
        )
    _callbacks.append(function)
    _library.call("genesis_forecast_callback_set", function, None)


def _of(struct: _structs.CForecast) -> Forecast:
    values = {name: getattr(struct, name) for name in Forecast.__dataclass_fields__}
    return Forecast(**{**values, "is_leak": bool(struct.is_leak)})
