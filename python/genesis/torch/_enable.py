"""Direct mode: Genesis replaces PyTorch's allocator.

PyTorch allows this once per process, before CUDA has started. :func:`enable` checks everything
that can be wrong before it changes anything.
"""

from __future__ import annotations

import threading
from typing import Optional

import torch

from .. import _nvtx, options as _options
from . import _alloc_conf, _observers, _plug, _replacements, _sharing

_lock = threading.Lock()
_enabled_with: Optional[dict[str, _options.Value]] = None


def enable(*, nvtx: Optional[bool] = None, **options: _options.Value) -> None:
    """Makes Genesis PyTorch's allocator, with all hooks and statistics.

    ``options`` are Genesis's, in lower case and without prefix: ``pool_type="Caching"``,
    ``memory_fraction=0.9``, ``memory_limit="40GB"``; they override the environment. PyTorch's own
    settings in ``PYTORCH_ALLOC_CONF`` are followed where Genesis has an option of that meaning that
    is not set, and named in a warning where it has none.

    With ``nvtx``, ranges of ``torch.cuda.nvtx`` and of other users of NVTX count as annotations,
    like those of :func:`genesis.annotate`, unless a tool such as Nsight Systems gets them. ``None``
    means true if the whole process is profiled (``GENESIS_PROFILE``), else false. A profile that
    starts later also sees ranges, if the program has not used NVTX before.

    Call it once, before anything uses CUDA; a second call with the same options does nothing.
    Raises ``TypeError`` for an unknown option, :class:`genesis.InvalidArgumentError` for a wrong
    value, :class:`genesis.ConfigurationError` for a wrong environment, and ``RuntimeError`` if it
    is too late.
    """
    global _enabled_with
    with _lock:
        if _enabled_with is not None:
            _check_same(options, _enabled_with)
            if nvtx:
                _nvtx.listen()
            return
        _check_in_time()
        _options.set_all(options)
        _alloc_conf.apply_environment(frozenset(options))
        _sharing.make_shareable(frozenset(options))
        try:
            torch.cuda.memory.change_current_allocator(_plug.allocator())
        except RuntimeError as error:
            raise RuntimeError(
                "genesis.torch.enable: PyTorch refused the allocator, because one is in use "
                f"or was chosen before: {error}"
            ) from error
        _replacements.install()
        _observers.follow_trace()
        if _is_profiled() if nvtx is None else nvtx:
            _nvtx.listen()
        _enabled_with = dict(options)


def is_enabled() -> bool:
    """Returns true if :func:`enable` has been called in this process."""
    return _enabled_with is not None


def restore() -> None:
    """Puts back the functions of PyTorch that :func:`enable` replaced.

    Genesis stays the allocator, so most of them then raise, as with any other pluggable one.
    """
    _replacements.remove()


def _is_profiled() -> bool:
    """Returns true if the whole process is being profiled."""
    try:
        return _options.get("profile") != "off"
    except TypeError:  # a library that knows no profiles
        return False


def _check_same(options: dict[str, _options.Value], before: dict[str, _options.Value]) -> None:
    if options != before:
        raise RuntimeError(
            f"genesis.torch.enable was called before with {_show(before)}, and cannot be called "
            f"again with {_show(options)}; genesis.options.set changes what can still change"
        )


def _show(options: dict[str, _options.Value]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items()) or "no options"


def _check_in_time() -> None:
    if torch.version.cuda is None:
        raise RuntimeError("genesis.torch.enable: this PyTorch was built without CUDA")
    if torch.cuda.is_initialized():
        raise RuntimeError(
            "genesis.torch.enable came too late: CUDA is already in use in this process; call it "
            "right after `import torch`, before any tensor or module moves to the GPU"
        )
