"""libgenesis.so: finding it, calling its functions, and its errors.

The library is loaded once, when one of its functions is first needed, and never unloaded. The
first of these files that exists is loaded; if ``GENESIS_LIBRARY`` is set, no other is tried:

1. the file that ``GENESIS_LIBRARY`` names,
2. the package's own copy (in a wheel),
3. the build tree's, release before debug.

Loading it starts nothing: no driver call is made before the first call that needs a device, so a
process may still fork.

A library may lack functions: it may be older than this package, or built for a platform without
them. :func:`has` returns true if a function exists; using one that does not is an error.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Any, Optional

from ._prototypes import NAMED_BY_OTHERS, PROTOTYPES

FILE_NAME = "libgenesis.so"


class GenesisError(RuntimeError):
    """A call of the library failed; the text is the library's own error line."""

    #: The number of the failure: a ``genesis_status`` of genesis.h.
    status: int

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class InvalidArgumentError(GenesisError, ValueError):
    """An argument is outside what the call accepts; nothing was changed."""


class ConfigurationError(GenesisError, ValueError):
    """A setting in the environment is wrong; no allocation succeeds until it is fixed."""


class OutOfMemoryError(GenesisError, MemoryError):
    """Memory is short, even after everything cached was returned to the driver."""


class LimitReachedError(OutOfMemoryError):
    """A tag or a private pool has reached its limit; memory itself may not be short."""


class OutOfHostMemoryError(GenesisError, MemoryError):
    """The host has no memory for the library's own tables; nothing was changed."""


class BusyError(GenesisError):
    """The call would disturb another operation in progress; nothing was changed."""


class LibraryNotFoundError(OSError):
    """No libgenesis.so was found, or it cannot be loaded."""


SUCCESS = 0
INVALID_ARGUMENT = 1
_ERRORS = {
    INVALID_ARGUMENT: InvalidArgumentError,
    2: OutOfMemoryError,
    3: InvalidArgumentError,  # no such device
    6: ConfigurationError,
    13: BusyError,
    14: LimitReachedError,
    15: OutOfHostMemoryError,
}


def _candidates() -> list[Path]:
    named = os.environ.get("GENESIS_LIBRARY")
    if named:
        return [Path(named)]
    package = Path(__file__).resolve().parent
    target = os.environ.get("CARGO_TARGET_DIR")
    root = package.parent.parent
    build = root / target if target else root / "target"
    return [package / "lib" / FILE_NAME, build / "release" / FILE_NAME, build / "debug" / FILE_NAME]


@functools.cache
def path() -> Path:
    """The library's file."""
    candidates = _candidates()
    for candidate in candidates:
        if candidate.is_file():
            return candidate.resolve()
    looked = ", ".join(str(candidate) for candidate in candidates)
    raise LibraryNotFoundError(
        f"{FILE_NAME} was not found (looked for {looked}); build it with "
        "`cargo build --release`, or let GENESIS_LIBRARY name it"
    )


@functools.cache
def _load() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path()))
    except OSError as error:
        if isinstance(error, LibraryNotFoundError):
            raise
        raise LibraryNotFoundError(f"{path()} cannot be loaded: {error}") from error


@functools.cache
def has(name: str) -> bool:
    """Returns true if the library has a function of that name."""
    return hasattr(_load(), name)


@functools.cache
def function(name: str) -> Any:
    """The function ``name``, with its C types."""
    if not has(name):
        raise NotImplementedError(f"{path()} has no {name}: it is older than this package")
    loaded = getattr(_load(), name)
    known = NAMED_BY_OTHERS if name in NAMED_BY_OTHERS else PROTOTYPES
    loaded.restype, loaded.argtypes = known[name]
    return loaded


def address(name: str) -> Optional[int]:
    """The address of a function, for other code to call; ``None`` if it does not exist."""
    if not has(name):
        return None
    return ctypes.cast(getattr(_load(), name), ctypes.c_void_p).value


def check(status: int) -> None:
    """Raises the library's error if ``status``, of this thread's last call, is a failure."""
    if status == SUCCESS:
        return
    line = function("genesis_last_error_message_get")() or b""
    text = line or function("genesis_status_text_get")(status)
    raise _ERRORS.get(status, GenesisError)(status, text.decode(errors="replace"))


def call(name: str, *arguments: Any) -> None:
    """Calls a function that returns a status, and raises if the call failed."""
    check(function(name)(*arguments))
