"""The object by which programs use torch_memory_saver.

A *region* is a tag of Genesis's (:func:`genesis.tag`) with a backup, configured by the library's
functions of torch_memory_saver's names. PyTorch's own allocator caches freed memory by pool; where
it is in use, each kind of region has a pool of its own, so that cached memory of one is never used
in another.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator
from typing import Any, Optional

import torch

from .. import _library, _tags
from ..torch import _enable, _private_pools
from ..torch._pools import mem_pool
from .hooks import mode_preload
from .utils import is_xpu

_DEFAULT_TAG = "default"
_HOOK_MODES = ("preload", "torch")

#: Numbers of ``genesis_backup``.
_NONE, _PINNED, _PAGEABLE, _DISK = map(_tags.backup_number, ("none", "pinned", "pageable", "disk"))


class TorchMemorySaver:
    """Pauses and resumes memory by tag; see the package."""

    def __init__(self) -> None:
        self._hook_mode = "preload"
        self._has_begun = False
        self._pools: dict[Any, torch.cuda.MemPool] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def region(
        self,
        tag: str = _DEFAULT_TAG,
        enable_cpu_backup: bool = False,
        enable_disk_backup: bool = False,
        cpu_backup_backend: Optional[str] = None,
    ) -> Iterator[None]:
        """Within the block, this thread's tensors are of the tag ``tag``. While they are paused,
        their contents are kept in host memory with ``enable_cpu_backup`` (``cpu_backup_backend``:
        ``"pinned"``, the default, or ``"mmap"``, which is page-locked only while it is copied), in
        a file with ``enable_disk_backup``, or not at all."""
        _check_backup(enable_cpu_backup, enable_disk_backup, cpu_backup_backend)
        self._begin()
        backup = _backup(enable_cpu_backup, enable_disk_backup, cpu_backup_backend)
        with self._pool_of(tag, backup), _configured(tag, backup):
            yield

    @contextlib.contextmanager
    def cuda_graph(  # noqa: PLR0917
        self,
        cuda_graph: torch.cuda.CUDAGraph,
        pool: Any = None,
        stream: Optional[torch.cuda.Stream] = None,
        capture_error_mode: str = "global",
        tag: str = _DEFAULT_TAG,
        enable_cpu_backup: bool = False,
        cpu_backup_backend: Optional[str] = None,
    ) -> Iterator[None]:
        """``torch.cuda.graph``, with memory that is paused with ``tag``. After it was resumed, the
        graph can be replayed: its memory is at the same addresses."""
        _check_backup(enable_cpu_backup, False, cpu_backup_backend)
        self._begin()
        backup = _backup(enable_cpu_backup, False, cpu_backup_backend)
        if pool is None:
            is_mem_pool = not _enable.is_enabled() and self._hook_mode == "torch"
            pool = self._made(tag, backup).id if is_mem_pool else torch.cuda.graph_pool_handle()
        graph = torch.cuda.graph(
            cuda_graph, pool=pool, stream=stream, capture_error_mode=capture_error_mode
        )
        with graph, _configured(tag, backup):
            if _enable.is_enabled():
                device = torch.cuda.current_device()
                _private_pools.tag(device, pool, tag, backup)
            yield

    @contextlib.contextmanager
    def disable(self) -> Iterator[None]:
        """Within the block, which is in a region, tensors are of no tag."""
        self._begin()
        if not _ask("tms_get_interesting_region"):
            raise AssertionError("disable() is for use within a region")
        _tell("tms_set_interesting_region", False)
        try:
            if _enable.is_enabled():
                yield
            else:
                # PyTorch's allocator would hand out free memory of the region. It does not let a
                # pool end while another is in use.
                with torch.cuda.use_mem_pool(self._made(None, _NONE)):
                    yield
        finally:
            _tell("tms_set_interesting_region", True)

    def pause(self, tag: Optional[str] = None) -> None:
        """Gives the memory of ``tag``, or of all tags, back to the driver: all of it, or none if
        that fails. What is paused stays so. Tensors may be freed meanwhile."""
        self._begin()
        _library.call("tms_pause", _encoded(tag))

    def resume(self, tag: Optional[str] = None) -> None:
        """Brings the memory of ``tag``, or of all tags, back to its addresses: all of it, or none
        if that fails, such as for want of memory."""
        self._begin()
        _library.call("tms_resume", _encoded(tag))

    @property
    def enabled(self) -> bool:
        """True."""
        return True

    @property
    def hook_mode(self) -> str:
        """``"preload"`` or ``"torch"``: how PyTorch gets the memory of regions, if Genesis is not
        its allocator. To be set before the first use."""
        return self._hook_mode

    @hook_mode.setter
    def hook_mode(self, hook_mode: str) -> None:
        if self._has_begun:
            raise AssertionError("hook_mode is set before the first use")
        if hook_mode not in _HOOK_MODES:
            raise ValueError(f"{hook_mode!r} is not one of {_HOOK_MODES}")
        self._hook_mode = hook_mode

    @property
    def memory_margin_bytes(self) -> int:
        raise NotImplementedError("memory_margin_bytes can only be set")

    @memory_margin_bytes.setter
    def memory_margin_bytes(self, value: int) -> None:
        """Tensors in regions leave so many bytes of the device free; 0: none."""
        self._begin()
        _tell("set_memory_margin_bytes", value)

    @property
    def retain_cpu_backup(self) -> bool:
        """Whether backups in host memory stay after a resume, so that the next pause need not
        page-lock memory, which takes longer than to copy."""
        self._begin()
        return bool(_ask("tms_get_retain_cpu_backup"))

    @retain_cpu_backup.setter
    def retain_cpu_backup(self, value: bool) -> None:
        self._begin()
        _tell("tms_set_retain_cpu_backup", value)

    def get_cpu_backup(self, x: torch.Tensor, zero_copy: bool = False) -> Optional[torch.Tensor]:
        """What is kept of ``x`` in host memory, as a tensor; ``None`` if nothing is. With
        ``zero_copy`` the tensor is the backup itself: not to be used after ``x`` is freed, paused
        or resumed."""
        self._begin()
        if not x.is_cuda or not x.is_contiguous():
            raise AssertionError("a backup is had of contiguous tensors on a GPU")
        found = _library.function("tms_get_cpu_backup_pointer")(x.data_ptr(), x.nbytes)
        if not found:
            return None
        data = (ctypes.c_uint8 * x.nbytes).from_address(found)
        kept = torch.frombuffer(data, dtype=torch.uint8).view(x.dtype).view(x.shape)
        return kept if zero_copy else kept.clone()

    def set_disk_backup_dir(self, path: str) -> None:
        """Sets the folder for backups on disk, which is made if there is none."""
        self._begin()
        os.makedirs(path, exist_ok=True)
        _tell("tms_set_disk_backup_dir", os.fsencode(path))

    def _begin(self) -> None:
        """Checks, at the first use, that regions can be served."""
        if self._has_begun:
            return
        if self._hook_mode == "preload" and not _enable.is_enabled():
            mode_preload.require_preloaded()
        self._has_begun = True

    @contextlib.contextmanager
    def _pool_of(self, tag: str, backup: int) -> Iterator[None]:
        """PyTorch's allocator, if it is in use, takes segments for this kind of region only."""
        if _enable.is_enabled():
            yield
            return
        with torch.cuda.use_mem_pool(self._made(tag, backup)):
            yield

    def _made(self, tag: Optional[str], backup: int) -> torch.cuda.MemPool:
        """The pool of a kind of region on the current device; without ``tag``: of none."""
        key = (tag, backup, torch.cuda.current_device())
        with self._lock:
            if key not in self._pools:
                is_plugged = tag is not None and self._hook_mode == "torch"
                self._pools[key] = mem_pool() if is_plugged else torch.cuda.MemPool()
            return self._pools[key]


def _check_backup(in_memory: bool, on_disk: bool, backend: Optional[str]) -> None:
    if in_memory and on_disk:
        raise AssertionError("enable_cpu_backup and enable_disk_backup exclude each other")
    if backend is None:
        return
    if not in_memory:
        raise ValueError("cpu_backup_backend requires enable_cpu_backup=True")
    if is_xpu():
        raise ValueError("cpu_backup_backend is not supported on XPU")
    if backend == "mmap" and torch.version.hip:
        raise ValueError("cpu_backup_backend='mmap' is not supported on ROCm")
    if backend not in ("mmap", "pinned"):
        raise ValueError(f"cpu_backup_backend is 'mmap' or 'pinned', not {backend!r}")


def _backup(in_memory: bool, on_disk: bool, backend: Optional[str]) -> int:
    """The number of the ``genesis_backup`` that is asked for."""
    if on_disk:
        return _DISK
    if not in_memory:
        return _NONE
    chosen = backend or _ask("tms_get_cpu_backup_backend").decode()
    return _PAGEABLE if chosen == "mmap" else _PINNED


@contextlib.contextmanager
def _configured(tag: str, backup: int) -> Iterator[None]:
    """A region of this thread, and what it was before."""
    before = _configuration()
    memory = b"mmap" if backup == _PAGEABLE else b"pinned" if backup == _PINNED else before[3]
    _configure((tag.encode(), True, backup in (_PINNED, _PAGEABLE), memory, backup == _DISK))
    try:
        yield
    finally:
        _configure(before)


_SETTINGS = (
    "current_tag",
    "interesting_region",
    "enable_cpu_backup",
    "cpu_backup_backend",
    "enable_disk_backup",
)


def _configuration() -> tuple[Any, ...]:
    return tuple(_ask(f"tms_get_{name}") for name in _SETTINGS)


def _configure(values: tuple[Any, ...]) -> None:
    # Out of the region first: no tag is pushed for what is half changed.
    _tell("tms_set_interesting_region", False)
    for name, value in zip(_SETTINGS, values):
        if name != "interesting_region":
            _tell(f"tms_set_{name}", value)
    _tell("tms_set_interesting_region", values[1])


def _ask(name: str) -> Any:
    return _library.function(name)()


def _tell(name: str, value: Any) -> None:
    _library.function("genesis_last_error_clear")()
    _library.function(name)(value)
    _library.check(_library.function("genesis_last_error_get")())


def _encoded(tag: Optional[str]) -> Optional[bytes]:
    return tag.encode() if tag else None
