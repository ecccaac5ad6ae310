"""The live blocks, one by one.

The library knows a block's age and call site only if the block was allocated while memory
debugging was on. A profile that is being made also knows them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from . import _library, _prototypes, _structs

#: The location of a block whose call site was not recorded.
UNKNOWN = "unknown"
#: A frame with a source line; and a frame that is not the program's own: of a package, of
#: Genesis, of a standard library, of a C library with debug information.
_WITH_LINE = re.compile(r".*:\d+( \(|$)")
_OF_OTHERS = re.compile(
    r".*/(site|dist)-packages/|.*/python/genesis/|.*/lib/python3|<frozen "
    r"|.*/include/c\+\+/|.*/genesis/allocator\.hpp|.*/sysdeps/|\./(nptl|misc|csu)/"
)
#: In stacks of PyTorch's own threads: the step of a backward pass, and an operator.
_BACKWARD = re.compile(r".*torch::autograd::generated::\w+::apply\b")
_OPERATOR = re.compile(r".*at::_ops::\w+::call\b")


@dataclass(frozen=True)
class Allocation:
    """A live block."""

    #: Where it was allocated, as ``"train.py:12 (forward)"``: the innermost frame of the stack
    #: that is not in an installed package. In the threads of a backward pass: the step of the
    #: pass. ``"unknown"`` without a stack.
    location: str
    #: The requested bytes.
    size: int
    #: The extent of the block, in bytes.
    allocated_bytes: int
    #: Its address, as ``Tensor.data_ptr()`` returns it.
    address: int
    #: The ordinal of its device.
    device: int
    #: The handle of the stream it was allocated on; 0 is the default stream.
    stream: int
    #: Seconds since it was allocated; ``None`` if not known.
    age: Optional[float]
    #: The tag it was allocated under (:func:`genesis.tag`), or ``None``.
    tag: Optional[str]
    #: The whole stack, innermost frame first; empty if not known.
    stack: tuple[str, ...]


def allocations(device: int, least_bytes: int) -> list[Allocation]:
    """The live blocks of at least ``least_bytes`` requested bytes on ``device`` (−1: on every
    device in use), largest first."""
    found: list[Allocation] = []

    def visit(_user: Any, block: Any) -> None:
        found.append(_allocation(block.contents))

    visitor = _prototypes.LiveBlockVisitor(visit)
    _library.call("genesis_live_blocks_visit", device, least_bytes, visitor, None)
    return found


def location_of(stack: Sequence[str]) -> str:
    """The most telling frame of ``stack``, the first of these that exists: the innermost frame of
    the program's own code; in PyTorch's threads the step of the backward pass, or the outermost
    operator; the innermost frame."""
    for frame in stack:
        if _WITH_LINE.match(frame) and not _OF_OTHERS.match(frame):
            return frame
    for telling, frames in ((_BACKWARD, stack), (_OPERATOR, reversed(stack))):
        for frame in frames:
            match = telling.match(frame)
            if match is not None:
                return f"{match[0]})"  # without the arguments' types
    return stack[0] if stack else UNKNOWN


def _allocation(raw: _structs.CLiveBlock) -> Allocation:
    stack = tuple((raw.location or b"").decode(errors="replace").splitlines())
    return Allocation(
        location=location_of(stack),
        size=raw.requested_bytes,
        allocated_bytes=raw.allocated_bytes,
        address=raw.address or 0,
        device=raw.device,
        stream=raw.stream or 0,
        age=None if raw.age_ns == _prototypes.AGE_UNKNOWN else raw.age_ns / 1e9,
        tag=raw.tag.decode(errors="replace") if raw.tag is not None else None,
        stack=stack,
    )
