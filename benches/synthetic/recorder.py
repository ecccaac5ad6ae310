"""What a made-up program does, as a trace in the format of ``traces/README.md``."""

from __future__ import annotations

import random
import struct

MIB = 1 << 20
HALF, SINGLE = 2, 4  # bytes of a number

ALLOCATE, FREE, RECORD_STREAM, END_OF_ITERATION = 1, 2, 3, 5


class Recorder:
    """What a program does, as a trace."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.records = bytearray(b"GTR1\n")
        self.sizes: dict[int, int] = {}
        self.blocks = 0
        self.iterations = 0

    def allocate(self, size: float, stream: int = 0) -> int:
        """A block of ``size`` bytes, by its number."""
        self.blocks += 1
        self.sizes[self.blocks] = max(1, int(size))
        self._record(ALLOCATE, stream, self.blocks, self.sizes[self.blocks])
        return self.blocks

    def free(self, *blocks: int) -> None:
        for block in blocks:
            self._record(FREE, 0, block, 0)
            del self.sizes[block]

    def use(self, size: float) -> None:
        """A block that is freed at once."""
        self.free(self.allocate(size))

    def record_stream(self, block: int, stream: int) -> None:
        self._record(RECORD_STREAM, stream, block, 0)

    def end_iteration(self) -> None:
        self._record(END_OF_ITERATION, 0, self.iterations, 0)
        self.iterations += 1

    def _record(self, operation: int, stream: int, block: int, size: int) -> None:
        self.records += struct.pack("<BBHIQ", operation, 0, stream, block, size)
