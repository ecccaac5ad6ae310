"""The command ``genesis`` of an installed wheel: runs the program that the wheel contains."""

from __future__ import annotations

import os
import sys
from pathlib import Path

#: It finds the libraries in ``../lib``, relative to its own folder.
_PROGRAM = Path(__file__).resolve().parent / "bin" / "genesis"


def main() -> None:
    """Replaces this process by the program; does not return."""
    if not _PROGRAM.is_file():
        sys.exit(
            f"genesis: {_PROGRAM} is not there: this package was built without the program; "
            "`cargo install --path crates/genesis-cli` makes it"
        )
    os.execv(_PROGRAM, [sys.argv[0], *sys.argv[1:]])
