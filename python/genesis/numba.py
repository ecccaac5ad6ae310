"""Numba's device arrays in Genesis's memory: a plugin for its external memory management::

    import genesis.numba
    genesis.numba.enable()

or ``NUMBA_CUDA_MEMORY_MANAGER=genesis.numba``.

Numba does not tell its memory manager which stream uses memory. So memory is allocated for the
legacy default stream, with which all streams that Numba makes are ordered. Freed blocks are
collected, and returned to Genesis after one wait for the whole context. That happens when

    blocks > NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT, or
    bytes > NUMBA_CUDA_MAX_PENDING_DEALLOCS_RATIO × memory of the device,

which are Numba's own limits, and before a request fails. Host memory stays Numba's.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from typing import Any, Callable

from cuda.bindings import driver as _driver
from numba import cuda
from numba.cuda import config
from numba.cuda.cudadrv.driver import (
    CudaAPIError,
    GetIpcHandleMixin,
    MemoryInfo,
    driver as _numba_driver,
)

from . import _blocks, _statistics, options as _options
from ._library import OutOfMemoryError

_LEGACY_DEFAULT_STREAM = 0
#: For a smaller request the free memory is not looked up.
_LARGE_BYTES = 1 << 20
_OUT_OF_MEMORY = _driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY


def enable(**options: _options.Value) -> None:
    """Makes Genesis the manager of Numba's device memory. To be called before Numba uses CUDA.

    ``options`` are Genesis's, as for :func:`genesis.torch.enable`. Raises ``RuntimeError`` if it
    is too late.
    """
    devices = _numba_driver.devices.values()
    started = [one.primary_context for one in devices if one.primary_context is not None]
    if any(not isinstance(one.memory_manager, Manager) for one in started):
        raise RuntimeError(
            "genesis.numba.enable came too late: Numba uses CUDA in this process already"
        )
    _options.set_all(options)
    cuda.set_memory_manager(Manager)


class Manager(GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
    """Numba's interface to Genesis; Numba makes one for each context."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._freed = _Freed()

    def initialize(self) -> None:
        """Does nothing: the library opens the device at the first request."""

    def memalloc(self, size: int) -> Any:
        """Returns memory on the device of this context. Raises Numba's ``CudaAPIError`` with
        ``CUDA_ERROR_OUT_OF_MEMORY`` when memory is short."""
        device = self.context.device.id
        if self._freed.is_due(self._total_bytes) or self._would_help(size):
            self._give_back()
        try:
            address = _blocks.allocate(size, device, _LEGACY_DEFAULT_STREAM)
        except OutOfMemoryError:
            self._give_back()
            address = self._last_try(size, device)
        pointer = _driver.CUdeviceptr(address)
        finalizer = self._freed.finalizer(address, size)
        return cuda.MemoryPointer(self.context, pointer, size, finalizer=finalizer)

    def get_memory_info(self) -> Any:
        """Free and total bytes, within the limits in force, with cached memory counted as free."""
        free, total = _statistics.memory_info(self.context.device.id)
        return MemoryInfo(free=free, total=total)

    def get_ipc_handle(self, memory: Any) -> Any:
        """Returns a handle for another process, of the whole driver allocation that contains
        ``memory``. Memory of the strategy Elastic has none."""
        try:
            return super().get_ipc_handle(memory)
        except CudaAPIError as error:
            raise NotImplementedError(
                f"memory of the strategy {_options.get('pool_type')} cannot be shared with another "
                f"process by an IPC handle; pool_type='Naive' or 'Caching' can be: {error}"
            ) from error

    def reset(self) -> None:
        """Returns all freed blocks. Existing arrays keep their memory."""
        super().reset()
        self._give_back()

    @property
    def interface_version(self) -> int:
        return 1

    def _would_help(self, size: int) -> bool:
        """Returns true if a large request may need the freed blocks."""
        if size < _LARGE_BYTES or not self._freed:
            return False
        return size > _statistics.memory_info(self.context.device.id)[0]

    @functools.cached_property
    def _total_bytes(self) -> int:
        return _statistics.memory_info(self.context.device.id)[1]

    def _give_back(self) -> None:
        """Returns all freed blocks after one wait; does nothing while Numba defers that."""
        if not self.deallocations.is_disabled:
            self._freed.give_back(_numba_driver.cuCtxSynchronize)

    def _last_try(self, size: int, device: int) -> int:
        try:
            return _blocks.allocate(size, device, _LEGACY_DEFAULT_STREAM)
        except OutOfMemoryError as error:
            raise CudaAPIError(_OUT_OF_MEMORY, str(error)) from error


class _Freed:
    """Blocks that Numba has freed and that the device may still use.

    Finalizers run at any time, on any thread, even while this object is in use: they only append,
    which needs no lock.
    """

    def __init__(self) -> None:
        self._blocks: deque[tuple[int, int]] = deque()
        self._giving_back = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def finalizer(self, address: int, size: int) -> Callable[[], None]:
        blocks = self._blocks
        return lambda: blocks.append((address, size))

    def is_due(self, total_bytes: int) -> bool:
        """Returns true if Numba's limits are exceeded, on a device with ``total_bytes``."""
        if len(self._blocks) > config.CUDA_DEALLOCS_COUNT:
            return True
        pending_bytes = sum(size for _, size in list(self._blocks))
        return bool(pending_bytes > config.CUDA_DEALLOCS_RATIO * total_bytes)

    def give_back(self, wait: Callable[[], Any]) -> None:
        """Frees the blocks that are here now, after ``wait`` has returned."""
        with self._giving_back:
            count = len(self._blocks)
            if count == 0:
                return
            wait()
            for _ in range(count):
                _blocks.free(self._blocks.popleft()[0])


#: The name that Numba looks up in the module of ``NUMBA_CUDA_MEMORY_MANAGER``.
_numba_memory_manager = Manager
