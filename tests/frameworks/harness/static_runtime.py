"""Replaces a CUDA runtime that is linked into an extension module by simcuda's.

Such a runtime wants tables of the driver that are documented nowhere, and does not start on
simcuda. But where the module still has its symbol table, each of the runtime's functions can be
found in the process, and its first instructions be made a jump to simcuda's function of the same
name. x86-64.
"""

from __future__ import annotations

import ctypes
import importlib
import mmap
import platform
import struct
from collections.abc import Iterator
from pathlib import Path

#: ``SHT_SYMTAB`` and ``STT_FUNC``.
_SYMBOL_TABLE, _FUNCTION = 2, 2
#: mov rax, address; jmp rax
_JUMP = struct.Struct("<2sQ2s")
_WRITABLE_CODE = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC


def redirect(module: str) -> None:
    """Imports the extension module ``module`` and replaces the runtime in it."""
    assert platform.machine() == "x86_64", "the test knows jumps of x86-64 only"
    file = Path(importlib.import_module(module).__file__ or "").resolve()
    base, simcuda = _loaded_at(file), ctypes.CDLL(None)
    replaced = 0
    for name, offset, size in _functions(file):
        target = getattr(simcuda, name, None) if name.startswith("cuda") else None
        if target is None:
            continue
        assert size >= _JUMP.size, f"{name} is too short for a jump"
        address = ctypes.cast(target, ctypes.c_void_p).value or 0
        _write(base + offset, _JUMP.pack(b"\x48\xb8", address, b"\xff\xe0"))
        replaced += 1
    assert replaced > 100, f"{file.name} shows {replaced} functions of a runtime"


def _loaded_at(file: Path) -> int:
    """Where the first byte of ``file`` is mapped."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(str(file)):
            return int(line.split("-")[0], 16)
    raise AssertionError(f"{file} is not loaded")


def _functions(file: Path) -> Iterator[tuple[str, int, int]]:
    """Name, offset from the base and size of each function in an ELF file."""
    data = file.read_bytes()
    (sections_at,) = struct.unpack_from("<Q", data, 40)
    section_size, section_count = struct.unpack_from("<HH", data, 58)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", data, sections_at + section_size * index)
        for index in range(section_count)
    ]
    for _, kind, _, _, at, size, link, _, _, entry_size in sections:
        if kind != _SYMBOL_TABLE:
            continue
        names_at = sections[link][4]
        for entry in range(at, at + size, entry_size):
            name, info, _, section, value, length = struct.unpack_from("<IBBHQQ", data, entry)
            if info & 15 == _FUNCTION and section != 0:
                end = data.index(b"\0", names_at + name)
                yield data[names_at + name : end].decode(), value, length


def _write(address: int, code: bytes) -> None:
    first = address // mmap.PAGESIZE * mmap.PAGESIZE
    length = address + len(code) - first
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    status = protect(ctypes.c_void_p(first), ctypes.c_size_t(length), _WRITABLE_CODE)
    assert status == 0, ctypes.get_errno()
    ctypes.memmove(address, code, len(code))
