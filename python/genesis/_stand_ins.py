"""Modules of Genesis's that programs find under the names of others' modules.

Each has a folder in ``stand_ins``, which is put in front of the places where Python looks for
modules and for entry points, in this process and in those that it starts.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

_FOLDER = Path(__file__).resolve().parent / "stand_ins"


def refuse_other(name: str, own: ModuleType) -> None:
    """Raises ``RuntimeError`` if another module than ``own`` was imported as ``name``."""
    imported = sys.modules.get(name)
    if imported is not None and imported is not own:
        raise RuntimeError(f"too late for genesis: {imported} was imported as {name}")


def add_folder(name: str) -> None:
    """Puts the stand-ins for the package ``name`` in front."""
    folder = str(_FOLDER / name)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if folder not in folders:
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, folders)])
