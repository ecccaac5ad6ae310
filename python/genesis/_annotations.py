"""Names that the program gives to its parts, shown with its memory in profiles."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Optional

from . import _library


class annotate(contextlib.ContextDecorator):
    """Names a part of the program in profiles, their timelines and snapshots::

        with genesis.annotate("forward"):
            loss = model(batch)

        @genesis.annotate("optimizer")
        def step(): ...

    Ranges nest, separately in each thread. While no profile is being made it does almost nothing.
    As a decorator of a generator or a coroutine it would name only their creation.
    """

    def __init__(self, name: str) -> None:
        self._name = name.encode()

    def __enter__(self) -> annotate:
        _library.call("genesis_range_push", self._name)
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        _library.call("genesis_range_pop")


def mark(name: str) -> None:
    """Marks this moment in profiles and their timelines, as in ``genesis.mark("step 12")``."""
    _library.call("genesis_mark_add", name.encode())
