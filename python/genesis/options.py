"""Options by their short names: ``pool_type`` for ``GENESIS_POOL_TYPE``, and so on.

The library has the only table of options (``genesis options`` prints it). Nothing is repeated here,
so names, values and suggestions are always those of the loaded library.
"""

from __future__ import annotations

import builtins
import ctypes
from typing import Union

from . import _library

__all__ = ["get", "set"]

_PREFIX = "GENESIS_"
_CAPACITY_BYTES = 4096

Value = Union[str, int, float, None]

#: The options that the program has set itself.
_explicit: builtins.set[str] = builtins.set()


def get(name: str) -> str:
    """The value in force of the option ``name``."""
    buffer = ctypes.create_string_buffer(_CAPACITY_BYTES)
    status = _library.function("genesis_option_get")(_variable(name), buffer, _CAPACITY_BYTES)
    _check(name, status)
    return buffer.value.decode()


def set(name: str, value: Value) -> None:
    """Sets the option ``name``; ``None`` restores its default.

    Before the first allocation every option may be set, and overrides the environment; afterwards
    only those that ``genesis options`` marks as changeable.
    """
    put(name, value)
    if value is None:
        _explicit.discard(name)
    else:
        _explicit.add(name)


def put(name: str, value: Value) -> None:
    """Sets an option as :func:`set` does, for an adapter, not for the program."""
    text = "" if value is None else str(value)
    _check(name, _library.function("genesis_option_set")(_variable(name), text.encode()))


def set_all(values: dict[str, Value]) -> None:
    """Sets several options. Raises for a wrong name or a wrong environment before any change."""
    for name in ("pool_type", *values):
        get(name)
    for name, value in values.items():
        set(name, value)


def explicit() -> frozenset[str]:
    """The options that the program has set itself."""
    return frozenset(_explicit)


def _variable(name: str) -> bytes:
    return (_PREFIX + name.upper()).encode()


def _check(name: str, status: int) -> None:
    """Raises the library's error, with options by their short names. A wrong name is a
    ``TypeError``, as for any unknown keyword argument."""
    try:
        _library.check(status)
    except _library.InvalidArgumentError as error:
        line = str(error)
        if line.startswith(f"{_PREFIX}{name.upper()} is not an option"):
            raise TypeError(_in_short_names(line)) from None
        raise


def _in_short_names(line: str) -> str:
    words = line.split(" ")
    return " ".join(
        word[len(_PREFIX) :].lower() if word.startswith(_PREFIX) else word for word in words
    )
