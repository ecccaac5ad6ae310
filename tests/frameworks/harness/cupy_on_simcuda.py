"""Replaces the CUDA runtime that is linked into CuPy by simcuda's. To be imported before CuPy."""

from harness import static_runtime

static_runtime.redirect("cupy_backends.cuda.api.runtime")
