"""What the package does without any other one, under whichever Python runs this.

Run by tests/python_versions.rs with a case; a case that is wrong raises, and warnings are errors.
"""

import importlib
import io
import pkgutil
import struct
import sys

import genesis

#: The buffer protocol of classes written in Python (PEP 688).
HAS_BUFFER_PROTOCOL = sys.version_info >= (3, 12)


def modules_warn_of_nothing():
    """All modules can be imported, but those that need another package."""
    imported = 0
    for module in pkgutil.walk_packages(genesis.__path__, "genesis.", onerror=lambda name: None):
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            assert not (error.name or "").startswith("genesis"), error
        else:
            imported += 1
    assert imported > 20, imported


def described(buffer):
    """The buffer's memory as the buffer protocol describes it; ``None`` if it cannot."""
    try:
        return memoryview(buffer) if HAS_BUFFER_PROTOCOL else buffer.__buffer__(0)
    except BufferError:
        return None


def host_buffers_are_arrays():
    """NumPy asks for the buffer protocol first: what it says must be true of the array."""
    formats = {"bool": "?", "float32": "f", "float64": "d"}
    for bits, letter in ((8, "b"), (16, "h"), (32, "i"), (64, "q")):
        formats[f"int{bits}"] = letter
        formats[f"uint{bits}"] = letter.upper()
    for name, letter in formats.items():
        for shape in ((), (6,), (2, 3), (1, 2, 3, 4)):
            buffer = genesis.cpu.empty(shape, name)
            seen = described(buffer)
            assert (seen.format, seen.shape) == (letter, shape), (seen.format, seen.shape, name)
            assert seen.nbytes == buffer.nbytes == buffer.view.nbytes and not seen.readonly
            value = struct.unpack(f"@{letter}", bytes([1] * seen.itemsize))[0]
            buffer.view[:] = bytes([1] * buffer.nbytes)
            assert seen[(0,) * len(shape)] == value
    half = described(genesis.cpu.empty((2, 3), "float16"))
    assert half is None or (half.format, half.shape) == ("e", (2, 3)), half
    for name in ("bfloat16", "complex64", "complex128"):
        assert described(genesis.cpu.empty((2, 3), name)) is None, name
    assert described(genesis.cpu.empty((2, 0, 3), "float32")) is None


def host_buffers_are_files_buffers():
    """What reads into bytes reads into them, also where they are no array of bytes."""
    buffer = genesis.cpu.empty((2, 3), "int32", pinned=True)
    given = bytes(range(24))
    into = buffer if HAS_BUFFER_PROTOCOL else buffer.view
    assert io.BytesIO(given).readinto(into) == 24
    assert bytes(into) == given == buffer.view.tobytes()


globals()[sys.argv[1]]()
