"""The blocks that are live, one by one, with what is known of each.

The library keeps a block's age and the place where it was allocated only while somebody wants
them: memory debugging or a profile, and only for blocks allocated meanwhile.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from typing import Any, Optional, Sequence

from . import _library

#: The location of a block that was allocated while nobody wanted to know.
UNKNOWN = "unknown"
#: Frames that are not the program's own: of packages, of the standard library, of the system's
#: libraries and, with debug information, of the C library.
_OF_OTHERS = re.compile(
    r".*/(site|dist)-packages/|.*/lib/python3|<frozen |/lib|/usr/lib|\./(nptl|misc|csu)/"
)
#: In stacks of PyTorch's own threads: the step of a backward pass, and an operator.
_BACKWARD = re.compile(r".*torch::autograd::generated::\w+::apply\b")
_OPERATOR = re.compile(r".*at::_ops::\w+::call\b")


@dataclass(frozen=True)
class Allocation:
    """A live block."""

    #: Where it was allocated, as ``"train.py:12 (forward)"``: the innermost frame of the stack
    #: that is not in an installed package; in the threads of a backward pass, its step;
    #: ``"unknown"`` without a stack.
    location: str
    #: What was asked for, in bytes.
    size: int
    #: The extent of the block, in bytes.
    allocated_bytes: int
    #: Where it lies, as ``Tensor.data_ptr()`` gives it.
    address: int
    #: The ordinal of its device.
    device: int
    #: The handle of the stream it was allocated on; 0 is the default stream.
    stream: int
    #: For how long it has lived, in seconds; ``None`` where that is not known.
    age: Optional[float]
    #: The tag it was allocated under (:func:`genesis.tag`), if any.
    tag: Optional[str]
    #: The whole stack, innermost frame first; empty where it is not known.
    stack: tuple[str, ...]


def allocations(device: int, least_bytes: int) -> list[Allocation]:
    """The live blocks of ``device`` of at least ``least_bytes``, largest first."""
    if _library.has("genesis_live_blocks_visit"):
        found = _visited(device, least_bytes)
    else:
        found = _listed(device, least_bytes)
    return sorted(found, key=lambda block: (-block.size, block.address))


def location_of(stack: Sequence[str]) -> str:
    """The frame of ``stack`` that says most to its reader: the innermost of the program's own; in
    PyTorch's threads the step of the backward pass or the outermost operator; or the innermost."""
    for frame in stack:
        if not _OF_OTHERS.match(frame):
            return frame
    for telling, frames in ((_BACKWARD, stack), (_OPERATOR, reversed(stack))):
        for frame in frames:
            match = telling.match(frame)
            if match is not None:
                return f"{match[0]})"  # without the arguments' types
    return stack[0] if stack else UNKNOWN


def _visited(device: int, least_bytes: int) -> list[Allocation]:
    found: list[Allocation] = []

    def visit(_user: Any, block: Any) -> None:
        found.append(_allocation(block.contents))

    visitor = _library.LiveBlockVisitor(visit)
    _library.call("genesis_live_blocks_visit", device, least_bytes, visitor, None)
    return found


def _allocation(raw: _library.CLiveBlock) -> Allocation:
    stack = tuple((raw.location or b"").decode(errors="replace").splitlines())
    return Allocation(
        location=location_of(stack),
        size=raw.requested_bytes,
        allocated_bytes=raw.allocated_bytes,
        address=raw.address or 0,
        device=raw.device,
        stream=raw.stream or 0,
        age=None if raw.age_ns == _library.AGE_UNKNOWN else raw.age_ns / 1e9,
        tag=raw.tag.decode(errors="replace") if raw.tag is not None else None,
        stack=stack,
    )


def _listed(device: int, least_bytes: int) -> list[Allocation]:
    """The same from a library that knows nothing of ages and places."""
    count = ctypes.c_size_t()
    capacity = 0
    while True:
        blocks = (_library.CBlockInfo * capacity)()
        _library.call(
            "genesis_largest_allocations_get",
            device,
            least_bytes,
            blocks,
            capacity,
            ctypes.byref(count),
        )
        if count.value <= capacity:
            break
        # Others allocate meanwhile: with some room the second look is the last.
        capacity = count.value + count.value // 8
    return [
        Allocation(
            location=UNKNOWN,
            size=block.requested_bytes,
            allocated_bytes=block.allocated_bytes,
            address=block.address or 0,
            device=block.device,
            stream=block.stream or 0,
            age=None,
            tag=None,
            stack=(),
        )
        for block in blocks[: count.value]
    ]
