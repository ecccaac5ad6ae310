"""Warnings about what cannot be done, each once in a process."""

from __future__ import annotations

import threading
import warnings

_lock = threading.Lock()
_said: set[str] = set()


def once(message: str) -> None:
    """Warns with ``message``, unless that was said before."""
    with _lock:
        if message in _said:
            return
        _said.add(message)
    warnings.warn(f"genesis: {message}", RuntimeWarning, stacklevel=3)
