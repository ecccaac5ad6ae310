"""RMM's allocations from Genesis's memory::

    import genesis.rmm
    genesis.rmm.enable()

or, with RMM's adaptors around it::

    resource = genesis.rmm.resource()
    rmm.mr.set_current_device_resource(rmm.mr.StatisticsResourceAdaptor(resource))

RMM names the stream on which memory is freed. If that is not the stream that the block was
allocated for, the block is not reused before the work queued there has completed.
"""

from __future__ import annotations

import functools
from typing import Any, Optional

import rmm
from rmm._cuda.gpu import getDevice

from . import _blocks, _library, options as _options


def enable(**options: _options.Value) -> None:
    """Makes :func:`resource` the resource of every device.

    ``options`` are Genesis's, as for :func:`genesis.torch.enable`. Earlier allocations return to
    where they came from: RMM's buffers keep their resource.
    """
    _options.set_all(options)
    for device in range(_blocks.device_count()):
        rmm.mr.set_per_device_resource(device, resource(device))


def resource(device: Optional[int] = None) -> Any:
    """Genesis as an RMM memory resource of ``device`` (``None``: the current one).

    Each device has one, and it lives as long as the process, because RMM's C++ code may keep bare
    pointers to it. When memory is short, allocations raise ``MemoryError`` with the library's own
    line.
    """
    return _resource(getDevice() if device is None else device)


@functools.cache
def _resource(device: int) -> Any:
    def allocate(size: int, stream: Any) -> int:
        address = malloc(size, device, stream.__cuda_stream__()[1])
        if address is None and size:
            _blocks.raise_last()
        return address or 0

    def deallocate(address: int, _size: int, stream: Any) -> None:
        # An exception here would end the process; errors are logged.
        note_use(address, stream.__cuda_stream__()[1])
        free(address, 0, device, None)

    malloc = _library.function("genesis_malloc")
    note_use = _library.function("genesis_block_record_stream")
    free = _library.function("genesis_free")
    _FUNCTIONS.append((allocate, deallocate))
    return rmm.mr.CallbackMemoryResource(allocate, deallocate)


#: Kept alive here: RMM keeps only their addresses.
_FUNCTIONS: list[Any] = []
