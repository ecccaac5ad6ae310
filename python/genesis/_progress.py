"""How far a pause or resume is, told to a function or shown."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any, Callable, Optional, Union

from . import _library, _prototypes, options

#: ``True``: shown, on a terminal or in a notebook. A function is called with how many bytes are
#: copied and how many are to be.
Progress = Union[bool, Callable[[int, int], object]]

#: The library's own line.
_OPTION = "progress"


@contextlib.contextmanager
def during(what: str, progress: Progress) -> Iterator[None]:
    """Within the block, the thread's pauses and resumes tell ``progress``; ``what`` they do."""
    if progress is False:
        yield
    elif progress is True:
        bar = _bar(what)
        with _line() if bar is None else bar:
            yield
    else:
        with _told(progress):
            yield


@contextlib.contextmanager
def _told(tell: Callable[[int, int], object]) -> Iterator[None]:
    def call(_data: Optional[int], done: int, total: int) -> None:
        tell(done, total)

    function = _prototypes.ProgressCallback(call)
    _library.call("genesis_progress_callback_set", function, None)
    try:
        yield
    finally:
        _library.call("genesis_progress_callback_set", _prototypes.ProgressCallback(), None)


@contextlib.contextmanager
def _line() -> Iterator[None]:
    """The library shows a line."""
    before = options.get(_OPTION)
    options.put(_OPTION, "on")
    try:
        yield
    finally:
        options.put(_OPTION, before)


def _bar(what: str) -> Optional[contextlib.AbstractContextManager[None]]:
    """tqdm shows a bar; ``None`` without tqdm."""
    try:
        auto, std = map(importlib.import_module, ("tqdm.auto", "tqdm.std"))
    except ImportError:
        return None
    return _told_to_bar(auto.tqdm, auto.tqdm is std.tqdm, what)


@contextlib.contextmanager
def _told_to_bar(make: Any, on_terminal: bool, what: str) -> Iterator[None]:
    # Disabled by None where standard error is no terminal; a notebook is none.
    disable = None if on_terminal else False
    units = {"unit": "B", "unit_scale": True, "unit_divisor": 1024}
    with make(desc=f"genesis: {what}", leave=False, delay=1, disable=disable, **units) as bar:

        def tell(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        with _told(tell):
            yield
