"""Programs that send tensors: with every allocator, and to *consumers*, processes that receive
tensors, keep them and do what they are told with them.

A consumer is forked from the program before either uses CUDA and before the program chooses its
allocator, which saves an import of PyTorch; or it is spawned, as users do.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, Callable, Optional

import pytest
import torch
import torch.multiprocessing

from support import child, simcuda
from support.program import run

MIB = 1 << 20
BYTES = {"SIMCUDA_STORE": "bytes"}
NATIVE = {
    "native": ("native", BYTES),
    "expandable": ("native", {**BYTES, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
}
GENESIS = {
    "caching": ("enabled", {**BYTES, "GENESIS_POOL_TYPE": "Caching"}),
    "elastic": ("enabled", {**BYTES, "GENESIS_POOL_TYPE": "Elastic"}),
}
#: One allocator, for what it shares with the others.
ONLY_ELASTIC = {"elastic": GENESIS["elastic"]}
EVERYWHERE = {**NATIVE, **GENESIS}
#: Where PyTorch's own segments are of one kind.
USUALLY = {"native": NATIVE["native"], **GENESIS}

#: How long an answer may take, however busy the machine is.
PATIENCE_SECONDS = 120
_MODE = "SHARING_MODE"
#: Consumers that were forked and have no test yet.
_forked: list[Consumer] = []


def with_consumers(
    count: int = 1,
    where: Mapping[str, tuple[str, Mapping[str, str]]] = EVERYWHERE,
    **expected: Any,
) -> Callable[[Callable[[], Any]], Callable[..., None]]:
    """Makes a test of a program, one for each allocator, with ``count`` consumers that have the
    same allocator; ``expected`` are the fields of :class:`support.program.Expected`."""

    def decorate(function: Callable[[], Any]) -> Callable[..., None]:
        def program() -> None:
            _forked.extend(Consumer(mode(), "fork") for _ in range(count))
            with child.mode(mode()):
                function()

        @pytest.mark.parametrize("where", where)
        def test(where: str) -> None:
            its_mode, its_env = places[where]
            run(function, "native", {**its_env, _MODE: its_mode}, **expected)

        places = where
        functools.update_wrapper(test, function)
        del test.__wrapped__
        test.program = program  # type: ignore[attr-defined]
        return test

    return decorate


def mode() -> str:
    """The allocator of a program that sends tensors."""
    return os.environ[_MODE]


class Consumer:
    """A process with the allocator of ``mode``."""

    def __init__(self, mode: str, method: str) -> None:
        assert method == "spawn" or not simcuda.has_started()
        context = torch.multiprocessing.get_context(method)
        self._orders, self._answers = context.Queue(), context.Queue()
        arguments = (mode, self._orders, self._answers)
        # A program that fails does not wait for it.
        self.process = context.Process(target=_consume, args=arguments, daemon=True)
        self.process.start()

    def tell(self, verb: str, *arguments: Any) -> None:
        """Has the process do something."""
        self._orders.put((verb, *arguments))

    def has_answered(self) -> bool:
        return not self._answers.empty()

    def answer(self) -> Any:
        """What came of the oldest order that was not asked for yet."""
        return self._answers.get(timeout=PATIENCE_SECONDS)

    def ask(self, verb: str, *arguments: Any) -> Any:
        self.tell(verb, *arguments)
        return self.answer()

    def kill(self) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        # What was not read yet would be waited for at the end.
        self._orders.cancel_join_thread()


@contextlib.contextmanager
def consumer(spawned_with: Optional[str] = None) -> Iterator[Consumer]:
    """A forked consumer, or one that is spawned with the allocator of that mode. It must end well,
    with nothing left in its driver."""
    started = Consumer(spawned_with, "spawn") if spawned_with else _forked.pop()
    yield started
    if started.process.is_alive():
        left = started.ask("end")
        started.process.join()
        assert (started.process.exitcode, left) == (0, {}), (started.process.exitcode, left)


def full(*shape: int, value: float = 1.0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor of equal elements."""
    tensor = torch.empty(*shape, dtype=dtype, device="cuda")
    write(tensor, value)
    return tensor


def expect_allocated(expected: int) -> None:
    """PyTorch's own allocator is told to look; Genesis's hears of a release in a moment."""
    allocated = -1
    for _ in range(500):
        gc.collect()
        torch.cuda.ipc_collect()
        allocated = torch.cuda.memory_allocated()
        if allocated == expected:
            return
        time.sleep(0.02)
    raise AssertionError(f"{allocated} bytes are allocated, not {expected}")


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
    torch.cuda.current_stream().synchronize()


def sent(tensor: torch.Tensor) -> bytes:
    """What a queue writes of a tensor, made here and now."""
    return bytes(ForkingPickler.dumps(tensor))


def received(text: bytes) -> torch.Tensor:
    """What a queue reads of it."""
    tensor: torch.Tensor = ForkingPickler.loads(text)
    return tensor


def refusal(act: Callable[..., Any], *arguments: Any) -> str:
    """The first line of the error that something ends with; empty: it ends well."""
    try:
        act(*arguments)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return ""


def footprint() -> dict[str, int]:
    """What a process has in use that should not grow."""
    gc.collect()
    torch.cuda.synchronize()
    # Not what simcuda maps for device memory, which is shared.
    with open("/proc/self/status", encoding="ascii") as status:
        anonymous = next(line for line in status if line.startswith("RssAnon"))
    return {
        "resident_bytes": int(anonymous.split()[1]) << 10,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "reserved_bytes": torch.cuda.memory_reserved(),
        "mappings": simcuda.mappings(),
        "opened": simcuda.census("opened"),
    }


def _consume(mode: str, orders: Any, answers: Any) -> None:
    kept: dict[str, torch.Tensor] = {}
    with child.mode(mode):
        while True:
            verb, *arguments = orders.get()
            if verb == "end":
                kept.clear()
                answers.put(_left())
                return
            answers.put(_obey(kept, verb, *arguments))
            del arguments


def _obey(kept: dict[str, torch.Tensor], verb: str, *more: Any) -> Any:
    if verb in _VERBS:
        return _VERBS[verb](*more)
    name, *more_ = more
    if verb == "keep":
        (kept[name],) = more_
        return described(kept[name])
    if verb == "receive":
        return refusal(lambda: kept.update({name: received(*more_)}))
    if verb == "drop":
        del kept[name]
        gc.collect()
        return None
    return _VERBS_OF_TENSORS[verb](kept[name], *more_)


def _crowd(texts: Sequence[bytes], expected: Sequence[float]) -> list[str]:
    """Receives each tensor in a thread of its own, looks at it and drops it; what went wrong."""
    wrong: list[str] = []

    def one(text: bytes, value: float) -> None:
        tensor = received(text)
        found = values(tensor)
        if found != [value] * 8:
            wrong.append(f"{found}, not {value}")

    threads = [threading.Thread(target=one, args=pair) for pair in zip(texts, expected)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


_VERBS: dict[str, Callable[..., Any]] = {
    "crowd": _crowd,
    "look": lambda text: values(received(text)),
    "back": lambda tensor: tensor.clone(),
    "make": lambda value: full(1000, value=value),
    "footprint": footprint,
    "calls": simcuda.calls,
    "fail": simcuda.fail,
    "clear_faults": simcuda.clear_faults,
}
_VERBS_OF_TENSORS: dict[str, Callable[..., Any]] = {
    "values": values,
    "write": write,
    "address": lambda tensor: (tensor.data_ptr(), tensor.untyped_storage().data_ptr()),
    "refusal": lambda tensor: refusal(sent, tensor),
}


def _left() -> dict[str, Any]:
    """What the process still has of others in its driver, and what the race detector found."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    found: dict[str, Any] = {"violations": simcuda.violations_text()}
    # PyTorch's own allocator keeps what it opened until a later use of it finds it expired.
    if torch.cuda.get_allocator_backend() != "native":
        kinds = ("opened", "imported_bytes", "mappings", "used_bytes")
        found.update((what, simcuda.census(what)) for what in kinds)
    return {what: some for what, some in found.items() if some}
