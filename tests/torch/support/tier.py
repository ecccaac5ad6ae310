"""How much the tests do: some of each large matrix on every change, all of it every night."""

from __future__ import annotations

import os

#: Set to 1 to run every matrix in full.
VARIABLE = "GENESIS_TEST_FULL"
#: Why a test is left out on a change.
NIGHTLY = "it takes long"


def is_full() -> bool:
    return os.environ.get(VARIABLE) == "1"
