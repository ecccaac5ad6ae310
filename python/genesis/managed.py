"""Managed memory (option ``managed``): what a program tells of its memory, and bringing it where it
is used next. Without the option, each function raises :class:`genesis.GenesisError`."""

from __future__ import annotations

from typing import Any, Optional

from . import _blocks, _library

__all__ = ["HOST", "advise", "prefetch"]

#: Stands for the host's memory, in place of a device.
HOST = -1

_ADVICE = {
    "read_mostly": 1,
    "not_read_mostly": 2,
    "preferred_location": 3,
    "no_preferred_location": 4,
    "accessed_by": 5,
    "not_accessed_by": 6,
}


def advise(memory: Any, advice: str, device: int = 0, nbytes: Optional[int] = None) -> None:
    """Tells the driver what the program does with ``memory``: a tensor, a buffer of Genesis, any
    object with ``__cuda_array_interface__``, or an address with ``nbytes``. It is in one block.

    ========================= ==================================================================
    ``read_mostly``           it is mostly read: each device that reads it may have a copy
    ``preferred_location``    ``device`` is where it should be; blocks begin with their own device
    ``accessed_by``           ``device`` uses it, and reaches it wherever it is without moving it
    ========================= ==================================================================

    Each can be taken back: ``not_read_mostly``, ``no_preferred_location``, ``not_accessed_by``.
    ``device`` may be :data:`HOST`. Not in the order of any stream. Raises ``ValueError`` for other
    advice and for bytes that are not within a block.
    """
    if advice not in _ADVICE:
        raise ValueError(f"{advice!r} is no advice; there are {', '.join(_ADVICE)}")
    address, size = _span(memory, nbytes)
    _library.call("genesis_managed_advise", address, size, _ADVICE[advice], device)


def prefetch(
    memory: Any,
    device: int = 0,
    stream: _blocks.Stream = None,
    nbytes: Optional[int] = None,
) -> None:
    """Brings ``memory`` to ``device``, or to :data:`HOST`, as work on ``stream`` (``None``: the
    default stream), and waits for nothing. So the next kernel there does not fault page by page,
    and what is not needed soon makes room. ``memory`` is as for :func:`advise`."""
    address, size = _span(memory, nbytes)
    handle = _blocks.handle_of(stream)
    _library.call("genesis_managed_prefetch", address, size, device, handle)


def _span(memory: Any, nbytes: Optional[int]) -> tuple[int, int]:
    """The address of ``memory``, and how many bytes of it are meant."""
    if isinstance(memory, int):
        if nbytes is None:
            raise TypeError("an address needs nbytes")
        return memory, nbytes
    pointer = getattr(memory, "data_ptr", None)
    if pointer is not None:
        address = int(pointer() if callable(pointer) else pointer)
    else:
        interface = getattr(memory, "__cuda_array_interface__", None)
        if interface is None:
            raise TypeError(f"{type(memory).__name__} is no memory of a device")
        address = int(interface["data"][0])
    return address, int(memory.nbytes) if nbytes is None else nbytes
