"""Sizes as people write them: numbers of bytes, or texts such as ``"2GB"``.

The grammar is that of the library's options: a decimal number and a unit in upper or lower case.
All units are binary, as GPU users mean them: ``"2GB"`` is 2 × 2³⁰.
"""

from __future__ import annotations

import re
from typing import Union

#: A size in bytes, or as text with a unit.
Size = Union[int, str]

_UNITS = "BKMGT"
_TEXT = re.compile(r"(\d+\.?\d*|\.\d+)\s*(?:([KMGT])(?:I?B)?|B)?", re.IGNORECASE)


def to_bytes(size: Size) -> int:
    """Returns ``size`` in bytes. Raises ``ValueError`` if it is not a size."""
    if isinstance(size, str):
        match = _TEXT.fullmatch(size.strip())
        if match is None:
            raise ValueError(f"{size!r} is not a size such as 4096, '512KB' or '2GB'")
        unit = 1 << (10 * _UNITS.index((match[2] or "B").upper()))
        return int(match[1]) * unit if match[1].isdigit() else int(float(match[1]) * unit)
    if size < 0:
        raise ValueError(f"a size of {size} bytes is below 0")
    return int(size)


def unit(size_bytes: int) -> tuple[int, str]:
    """The largest unit that is at most ``size_bytes``: its bytes and its name."""
    power = min(max(size_bytes.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return 1 << (10 * power), f"{_UNITS[power]}iB" if power else "B"
