"""The table of docs/pytorch.md: PyTorch's functions that concern memory, a row each, with a program
that asks them. The program runs with PyTorch's own allocator and under ``genesis.torch.enable()``,
and the answers are compared.

To add a row, write a program in a file of ``tests/torch/rows`` and decorate it; the table's lines
are those of ``lines()``.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

import rows
import torch

Program = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """Functions, and the program that asks them."""

    names: tuple[str, ...]
    program: Program
    #: In which way the answers differ; "": they are equal.
    differs: str = ""
    #: Returns what is compared of an answer.
    of_answer: Callable[[Any], Any] = lambda answer: answer
    #: The environment of both.
    env: Mapping[str, str] = field(default_factory=dict)
    #: What every line on standard error matches, under Genesis; ``None``: there are no lines.
    says: Optional[str] = None
    #: Lines of PyTorch's own that match do not count.
    ignored: str = "$."
    #: The functions are missing in some versions of PyTorch, which are not asked.
    of_some_versions: bool = False

    def is_there(self) -> bool:
        """Returns true if this PyTorch has the functions."""
        return all(_is_there(name) for name in self.names)

    def line(self) -> str:
        names = ", ".join(f"`{name}`" for name in self.names)
        return f"| {names} | {self.differs or 'the same'} |"


def _is_there(name: str) -> bool:
    path, parenthesis, arguments = name.partition("(")
    if not path.startswith("torch."):
        return True
    found: Any = torch
    for part in path.split(".")[1:]:
        found = getattr(found, part.partition("[")[0], None)
    if found is None or not parenthesis:
        return found is not None
    try:
        parameters = inspect.signature(found).parameters
    except (TypeError, ValueError):  # not of Python: it tells nothing
        return True
    named = [argument.partition("=")[0] for argument in arguments.split(", ")]
    return all(one in parameters for one in named if one.isidentifier())


_rows: list[Row] = []


def row(*names: str, **more: Any) -> Callable[[Program], Program]:
    """Makes a row of a program, for the functions with these full names; ``more`` are other fields
    of :class:`Row`."""

    def decorate(program: Program) -> Program:
        _rows.append(Row(names, program, **more))
        return program

    return decorate


def all_rows() -> list[Row]:
    """Every row, in the order of the table."""
    if not _rows:
        for module in pkgutil.iter_modules(rows.__path__):
            importlib.import_module(f"rows.{module.name}")
    return _rows


def lines() -> str:
    """The table."""
    head = "| function | compared with PyTorch's own allocator |\n|---|---|\n"
    return head + "".join(f"{one.line()}\n" for one in all_rows())
