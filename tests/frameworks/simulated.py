"""Runs a Python program with CuPy or RMM on simcuda: ``simcuda python simulated.py PROGRAM…``.

Their CUDA runtimes are linked into them and start only on a real driver; simcuda's replace them
(:mod:`harness.static_runtime`, :mod:`harness.bindings`), as in the tests of this folder.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path


def main() -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from harness import bindings, static_runtime

    if importlib.util.find_spec("cupy_backends") is not None:
        static_runtime.redirect("cupy_backends.cuda.api.runtime")
    bindings.redirect()
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
