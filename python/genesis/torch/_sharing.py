"""Tensors sent to other processes: what ``torch.multiprocessing`` and ``DataLoader`` call.

PyTorch's own functions ask its own allocator for handles, so three methods of
``torch.UntypedStorage`` are replaced. What they return and take has PyTorch's form:

===========================  =====================================================================
``handle``                   names the block, the same each time it is sent: a :class:`Handle`
``ref_counter_handle``       the handle of the library, which is good for one receiver
``event_handle``             an event of CUDA's, recorded on the sender's current stream
===========================  =====================================================================

The library counts who has a block (``genesis_block_export``), so there is no file of counters and
nothing to collect. The sender has one event for each of its streams and records it again for each
tensor: a receiver that is late waits for more of that stream, never for less.

A :class:`Handle` brings its functions along: a process that receives one needs no
:func:`genesis.torch.enable`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from typing import Any, Callable, Optional

import torch
from torch.multiprocessing import reductions

from .. import _library, dlpack as _dlpack, options as _options
from . import _alloc_conf

#: The size of a ``genesis_block_handle``, and of the part that is the same for all of a block.
_HANDLE_BYTES, _KEY_BYTES = 64, 40

#: What PyTorch says in the same case.
_RECEIVED = (
    "Attempted to send CUDA tensor received from another process; this is not currently "
    "supported. Consider cloning before sending."
)

_Shared = tuple[int, Any, int, int, Any, int, Any, Any]

#: This process's events, by device and stream, and by their handles: a driver opens no handle in
#: the process that made it.
_events: dict[tuple[int, int], torch.cuda.Event] = {}
_own: dict[bytes, torch.cuda.Event] = {}
_lock = threading.Lock()


def make_shareable(explicit: frozenset[str]) -> None:
    """Has memory made that can be sent, before the first is made: unless the program has chosen, or
    has told PyTorch that its segments are not for sending."""
    is_chosen = "handle_type" in explicit | _alloc_conf.set_in_environment()
    if not is_chosen and os.environ.get("TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC") != "0":
        _options.put("handle_type", "posix")


class Handle(bytes):
    """Bytes that name a block of Genesis's in another process."""

    def __reduce__(self) -> tuple[Callable[[bytes], Handle], tuple[bytes]]:
        return received, (bytes(self),)


def received(text: bytes) -> Handle:
    """A handle in the process that it was sent to."""
    for owner, name, replacement in receivers():
        if not getattr(getattr(owner, name), "of_genesis", False):
            setattr(owner, name, replacement)
    return Handle(text)


def share(storage: torch.UntypedStorage) -> _Shared:
    """``torch.UntypedStorage._share_cuda_``."""
    device = storage.device.index
    if storage.device.type != "cuda":
        raise RuntimeError("_share_cuda_: only available on CUDA")
    if not storage.data_ptr():
        return (device, None, 0, 0, None, 0, None, None)
    exported = (ctypes.c_char * _HANDLE_BYTES)()
    try:
        _library.call("genesis_block_export", storage.data_ptr(), exported)
    except _library.InvalidArgumentError:
        raise RuntimeError(_RECEIVED) from None
    handle = Handle(exported.raw)
    try:
        event = _recorded(device)
    except BaseException:
        _discard(handle)
        raise
    return (device, Handle(handle[:_KEY_BYTES]), storage.nbytes(), 0, handle, 0, event, True)


def receivers() -> list[tuple[Any, str, Any]]:
    """The methods of a process that receives."""
    base = torch.UntypedStorage
    return [
        (base, "_new_shared_cuda", staticmethod(_new_shared(base._new_shared_cuda))),
        (
            base,
            "_release_ipc_counter_cuda",
            staticmethod(_release_counter(base._release_ipc_counter_cuda)),
        ),
    ]


def replacements() -> list[tuple[Any, str, Any]]:
    """The methods of a process whose allocator Genesis is."""
    return [(torch.UntypedStorage, "_share_cuda_", share), *receivers()]


def _new_shared(original: Callable[..., Any]) -> Callable[..., Any]:
    def new_shared(device: int, handle: Any, size_bytes: int, offset_bytes: int, *more: Any) -> Any:
        if not isinstance(handle, Handle):
            return original(device, handle, size_bytes, offset_bytes, *more)
        counter, _, event_handle, event_sync_required = more
        own = reductions.storage_from_cache(torch.UntypedStorage, handle)
        if own is not None:
            _discard(counter)
            return own
        storage = _imported(device, counter, size_bytes)
        if event_sync_required:
            _wait(device, event_handle)
        return storage

    new_shared.of_genesis = True  # type: ignore[attr-defined]
    return new_shared


def _release_counter(original: Callable[..., Any]) -> Callable[..., Any]:
    def release_counter(counter: Any, counter_offset: int) -> Any:
        if not isinstance(counter, Handle):
            return original(counter, counter_offset)
        _discard(counter)
        return None

    release_counter.of_genesis = True  # type: ignore[attr-defined]
    return release_counter


def _imported(device: int, handle: bytes, size_bytes: int) -> torch.UntypedStorage:
    """The block of another process as a storage, which closes it at its end."""
    torch.cuda.init()
    buffer, tensor = ctypes.c_void_p(), ctypes.c_void_p()
    _library.call("genesis_dlpack_buffer_import", handle, device, ctypes.byref(buffer))
    try:
        _library.call(
            "genesis_dlpack_tensor_create",
            buffer,
            _dlpack.UNSIGNED,
            8,
            1,
            1,
            (ctypes.c_int64 * 1)(size_bytes),
            False,
            ctypes.byref(tensor),
        )
    finally:
        _library.function("genesis_dlpack_buffer_release")(buffer)
    shared: torch.Tensor = torch.from_dlpack(_dlpack.capsule(tensor))
    return shared.untyped_storage()


def _discard(handle: bytes) -> None:
    # An error means that its process has ended: then there is nothing to discard.
    with contextlib.suppress(_library.InvalidArgumentError):
        _library.call("genesis_block_discard", handle)


def _recorded(device: int) -> bytes:
    """The handle of an event after all that is queued on the current stream."""
    stream = torch.cuda.current_stream(device)
    with _lock, torch.cuda.device(device):
        key = (device, stream.cuda_stream)
        event: Optional[torch.cuda.Event] = _events.get(key)
        if event is None:
            event = _events[key] = torch.cuda.Event(interprocess=True)
        event.record(stream)
        handle: bytes = event.ipc_handle()
        _own[handle] = event
        return handle


def _wait(device: int, handle: bytes) -> None:
    """Lets the current stream wait for an event, mostly another process's."""
    with torch.cuda.device(device):
        event = _own.get(handle)
        if event is None:
            event = torch.cuda.Event.from_ipc_handle(torch.device("cuda", device), handle)
        event.wait(torch.cuda.current_stream(device))
