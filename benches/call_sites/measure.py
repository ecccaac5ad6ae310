"""Measures what a call site costs, for benches/call_sites.rs: a table of nanoseconds for each
block that is allocated and freed while a profile is made, and of what call sites add to it.

arguments: the library, the library of churn.c
"""

import ctypes
import sys

GENESIS = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
FREE, HELD = ctypes.CDLL(sys.argv[2]), ctypes.PyDLL(sys.argv[2])
for library in (FREE, HELD):
    library.churn.restype = ctypes.c_double
COUNT = 20000
ROUNDS = 15


def choose(kind):
    assert GENESIS.genesis_option_set(b"GENESIS_CALL_SITES", kind.encode()) == 0


def below(levels, library, native):
    if levels > 1:
        return below(levels - 1, library, native)
    return library.churn(native, COUNT)


def least(levels, library=FREE, native=1):
    """The best of several rounds: other work on the machine only adds."""
    return min(below(levels, library, native) for _ in range(ROUNDS))


assert GENESIS.genesis_profile_start() == 0
rows = []
for kind, what, levels, library, native in [
    ("python", "5 frames of Python, lock given up", 4, FREE, 1),
    ("python", "5 frames of Python, lock held", 4, HELD, 1),
    ("python", "20 frames of Python", 19, FREE, 1),
    ("python", "60 frames of Python", 59, FREE, 1),
    ("native", "10 frames and what called them", 1, FREE, 10),
    ("native", "32 frames and more", 1, FREE, 40),
    ("all", "20 frames of Python, and what is between", 19, FREE, 1),
]:
    choose("off")
    off = least(levels, library, native)
    choose(kind)
    on = least(levels, library, native)
    rows.append((kind, what, off, on, on - off))
print(f"Python {sys.version.split()[0]}, nanoseconds for each block")
print(f"{'sites':8}{'stack':44}{'off':>8}{'on':>8}{'cost':>8}")
for kind, what, off, on, cost in rows:
    print(f"{kind:8}{what:44}{off:8.1f}{on:8.1f}{cost:8.1f}")
