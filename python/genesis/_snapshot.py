"""Snapshots of all segments and blocks, in the form of PyTorch's own tools."""

from __future__ import annotations

import os
from typing import Union

from . import _library

_Path = Union[str, "os.PathLike[str]"]


def snapshot(path: _Path) -> None:
    """Writes all segments and blocks of every device to ``path``, in the form of PyTorch's memory
    snapshot: a pickle if the path ends in ``.pickle``, else ``.json``. ``%p`` in the path is
    replaced by the process's number.

    ``python -m torch.cuda._memory_viz`` and PyTorch's page for snapshots read the pickle. While a
    profile is being made, and after it, the snapshot also has the history and the call sites.
    """
    _library.call("genesis_snapshot_write", os.fsencode(path))
