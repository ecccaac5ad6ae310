"""Genesis under PyTorch's own allocator, by a preloaded library."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from ..utils import change_env, get_binary_path_from_package

_VARIABLE = "LD_PRELOAD"


@contextlib.contextmanager
def configure_subprocess() -> Iterator[None]:
    """Processes that are started within the block have Genesis preloaded. What is preloaded
    already stays so, behind it."""
    library = str(get_binary_path_from_package("torch_memory_saver_hook_mode_preload"))
    before = os.environ.get(_VARIABLE, "")
    with change_env(_VARIABLE, f"{library}:{before}" if before else library):
        yield


def require_preloaded() -> None:
    """Raises an error unless this process has Genesis preloaded."""
    library = get_binary_path_from_package("torch_memory_saver_hook_mode_preload")
    preloaded = os.environ.get(_VARIABLE, "").split(":")
    if not any(os.path.basename(path) == library.name for path in preloaded):
        raise AssertionError(
            "torch_memory_saver: Genesis is neither PyTorch's allocator nor preloaded; call "
            "genesis.torch.enable(), start the process within configure_subprocess() or by "
            '`genesis run`, or set hook_mode = "torch" '
            f"({_VARIABLE}={os.environ.get(_VARIABLE, '')!r}, process {os.getpid()})"
        )
