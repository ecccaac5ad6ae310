"""CuPy, whose CUDA runtime is linked into it, with simcuda's functions in that runtime's place: to be
imported before CuPy."""

from harness import static_runtime

static_runtime.redirect("cupy_backends.cuda.api.runtime")
