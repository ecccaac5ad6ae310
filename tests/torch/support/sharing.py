"""A process that receives tensors, keeps them and does what it is told with them."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any, Callable

import torch
import torch.multiprocessing

from support import child, simcuda


class Consumer:
    """A spawned process with the allocator of ``mode``."""

    def __init__(self, mode: str) -> None:
        context = torch.multiprocessing.get_context("spawn")
        self._orders, self._answers = context.Queue(), context.Queue()
        self.process = context.Process(target=_consume, args=(mode, self._orders, self._answers))
        self.process.start()
        self.pid = self._answers.get()

    def ask(self, verb: str, *arguments: Any) -> Any:
        """Has the process do something, and returns what comes of it."""
        self._orders.put((verb, *arguments))
        return self._answers.get(timeout=120)

    def kill(self) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()


@contextlib.contextmanager
def consumer(mode: str) -> Iterator[Consumer]:
    """A consumer that must end well, with nothing left in its driver."""
    started = Consumer(mode)
    yield started
    if started.process.is_alive():
        left = started.ask("end")
        started.process.join()
        assert (started.process.exitcode, left) == (0, {}), left


def described(tensor: torch.Tensor) -> dict[str, Any]:
    """What is the same in every process that has the tensor."""
    return {
        "type": type(tensor).__name__,
        "dtype": str(tensor.dtype),
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "offset": tensor.storage_offset(),
        "requires_grad": tensor.requires_grad,
        "device": str(tensor.device),
        "storage_bytes": tensor.untyped_storage().nbytes(),
        "is_shared": tensor.is_shared(),
        "values": values(tensor),
    }


def values(tensor: torch.Tensor) -> list[float]:
    """The first elements. A kernel computes nothing on simcuda, so the storage is copied whole."""
    storage = tensor.detach().untyped_storage()
    host = torch.empty(storage.nbytes(), dtype=torch.uint8)
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)  # type: ignore[call-overload]
    host.copy_(flat)
    whole = host.view(tensor.dtype).as_strided(
        tensor.shape, tensor.stride(), tensor.storage_offset()
    )
    return [float(value) for value in whole.flatten()[:8]]


def write(tensor: torch.Tensor, value: float) -> None:
    """Fills the whole storage of a tensor with elements of ``value``."""
    storage = tensor.detach().untyped_storage()
    host = torch.full((storage.nbytes() // tensor.element_size(),), value, dtype=tensor.dtype)
    flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage)  # type: ignore[call-overload]
    flat.copy_(host)
    torch.cuda.synchronize()


def refusal(tensor: torch.Tensor) -> str:
    """Why the tensor cannot be sent; empty: it can."""
    try:
        ForkingPickler.dumps(tensor)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return ""


def _consume(mode: str, orders: Any, answers: Any) -> None:
    kept: dict[str, torch.Tensor] = {}
    with child.mode(mode):
        answers.put(os.getpid())
        while True:
            verb, *arguments = orders.get()
            if verb == "end":
                kept.clear()
                answers.put(_left())
                return
            answers.put(_obey(kept, verb, *arguments))
            del arguments


def _obey(kept: dict[str, torch.Tensor], verb: str, name: str, *more: Any) -> Any:
    if verb == "keep":
        kept[name] = more[0]
        return described(more[0])
    if verb == "drop":
        del kept[name]
        gc.collect()
        return None
    return _VERBS[verb](kept[name], *more)


_VERBS: dict[str, Callable[..., Any]] = {
    "values": values,
    "write": write,
    "address": lambda tensor: (tensor.data_ptr(), tensor.untyped_storage().data_ptr()),
    "refusal": refusal,
}


def _left() -> dict[str, int]:
    """What the process still has of others in its driver."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    # PyTorch's own allocator keeps what it opened until a later use of it finds it expired.
    if torch.cuda.get_allocator_backend() == "native":
        return {}
    counts = {what: simcuda.census(what) for what in ("opened", "imported_bytes", "mappings")}
    return {what: count for what, count in counts.items() if count}
