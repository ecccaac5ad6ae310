"""What lies where, in the form of PyTorch's own tools."""

from __future__ import annotations

import os
from typing import Union

from . import _library

_Path = Union[str, "os.PathLike[str]"]


def snapshot(path: _Path) -> None:
    """Writes what lies where on every device, in the form of PyTorch's memory snapshot, to
    ``path``: a pickle if it ends in ``.pickle``, else ``.json``; ``%p`` in it stands for the
    process's number.

    ``python -m torch.cuda._memory_viz`` and PyTorch's page for snapshots read the pickle. While a
    profile is being made, and after it, the snapshot has its history and the places that
    allocated, too.
    """
    _library.call("genesis_snapshot_write", os.fsencode(path))
