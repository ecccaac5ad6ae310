"""RMM's allocations from Genesis's memory::

    import genesis.rmm
    genesis.rmm.enable()

or, with RMM's adaptors around it::

    resource = genesis.rmm.resource()
    rmm.mr.set_current_device_resource(rmm.mr.StatisticsResourceAdaptor(resource))

RMM says on which stream memory is freed, which may be another than the one it was allocated for.
The block then waits for the work that is queued there, before it is used again anywhere.
"""

from __future__ import annotations

import functools
from typing import Any, Optional

import rmm
from rmm._cuda.gpu import getDevice

from . import _blocks, _library, options as _options


def enable(**options: _options.Value) -> None:
    """Makes :func:`resource` the resource of every device.

    ``options`` are Genesis's, as for :func:`genesis.torch.enable`. What was allocated before goes
    back to where it came from: RMM's buffers keep their resource.
    """
    _options.set_all(options)
    for device in range(_blocks.device_count()):
        rmm.mr.set_per_device_resource(device, resource(device))


def resource(device: Optional[int] = None) -> Any:
    """Genesis as an RMM memory resource of ``device`` (``None``: the current one).

    There is one for each device, and it lives as long as the process, as RMM's C++ side may keep
    bare pointers to it. Where memory is short, allocations raise ``MemoryError`` with the library's
    own line.
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
        # An exception from here would end the process; what is wrong is logged.
        note_use(address, stream.__cuda_stream__()[1])
        free(address, 0, device, None)

    malloc = _library.function("genesis_malloc")
    note_use = _library.function("genesis_block_record_stream")
    free = _library.function("genesis_free")
    _FUNCTIONS.append((allocate, deallocate))
    return rmm.mr.CallbackMemoryResource(allocate, deallocate)


#: RMM keeps only the addresses of these.
_FUNCTIONS: list[Any] = []
