"""How much the tests do: some of each large matrix on every change, all of it every night."""

from __future__ import annotations

import os
from typing import TypeVar

_Matrix = TypeVar("_Matrix")

#: Set to 1 to run every matrix in full. Not one of the library's own names, of which it would warn.
VARIABLE = "TEST_GENESIS_IN_FULL"
#: Why a test is left out on a change.
NIGHTLY = "it takes long"


def is_full() -> bool:
    return os.environ.get(VARIABLE) == "1"


def some_or_all(some: _Matrix, whole: _Matrix) -> _Matrix:
    """The part of a matrix that is tested on every change, or every night all of it."""
    return whole if is_full() else some
