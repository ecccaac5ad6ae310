"""Sending tensors when calls of the driver fail, processes are killed, many threads send at once,
and for long: neither process is harmed, and every byte is accounted for."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import Any

import torch

from support import simcuda
from support.sharing import (
    GENESIS,
    MIB,
    USUALLY,
    Consumer,
    consumer,
    expect_allocated,
    footprint,
    full,
    received,
    refusal,
    sent,
    values,
    with_consumers,
)

#: What a call fails with: a shortage, and a code that nothing else answers.
CODES = (2, 999)
#: Many more than a scene makes.
FOR_GOOD = 1 << 30
#: The calls of a scene, Genesis's and PyTorch's for events. Those of the two strategies differ.
EXPORTING = (
    "cuIpcGetMemHandle",
    "cuMemExportToShareableHandle",
    "cudaEventRecordWithFlags",
    "cudaIpcGetEventHandle",
)
IMPORTING = (
    "cuIpcOpenMemHandle",
    "cuIpcCloseMemHandle",
    "cuMemAddressReserve",
    "cuMemImportFromShareableHandle",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemRelease",
    "cuCtxSynchronize",
    "cuMemUnmap",
    "cuMemAddressFree",
    "cudaIpcOpenEventHandle",
    "cudaStreamWaitEvent",
)


def scene(other: Consumer, tensors: Sequence[torch.Tensor]) -> list[str]:
    """Each tensor is sent, received, looked at and dropped; the errors."""
    errors = []
    for tensor in tensors:
        try:
            text = sent(tensor)
        except RuntimeError as error:
            errors.append(str(error))
            continue
        error = other.ask("receive", "it", text)
        if error:
            errors.append(error)
        else:
            other.ask("drop", "it")
    return errors


@with_consumers(where=GENESIS)
def test_each_call_of_the_driver_fails_in_turn() -> None:
    tensors = [full(200, value=1.0), full(12 * MIB, value=2.0)]
    absorbed = raised = 0
    with consumer() as other:
        assert scene(other, tensors) == []
        for is_exporting, kinds in ((True, EXPORTING), (False, IMPORTING)):
            for kind in kinds:
                count = count_of(other, is_exporting, kind)
                before = count()
                assert scene(other, tensors) == []
                for nth in range(1, count() - before + 1):
                    for code, times in [(code, times) for code in CODES for times in (1, FOR_GOOD)]:
                        fault = (kind, nth, code, times)
                        if is_exporting:
                            simcuda.fail(*fault)
                        else:
                            other.ask("fail", *fault)
                        errors = scene(other, tensors)
                        simcuda.clear_faults()
                        other.ask("clear_faults")
                        absorbed, raised = absorbed + (not errors), raised + bool(errors)
        assert scene(other, tensors) == [], "with the driver well again"
    assert absorbed > 0 and raised > 20, (absorbed, raised)
    del tensors
    expect_allocated(0)


def count_of(other: Consumer, is_exporting: bool, kind: str) -> Any:
    return lambda: simcuda.calls(kind) if is_exporting else other.ask("calls", kind)


@with_consumers(1, USUALLY)
def test_many_tensors_and_threads_at_once() -> None:
    texts: list[list[bytes]] = [[] for _ in range(6)]

    def send(index: int) -> None:
        for number in range(15):
            tensor = full(100 << (number % 12), value=float(index))
            texts[index].append(sent(tensor))
            del tensor

    with consumer() as other:
        threads = [threading.Thread(target=send, args=(index,)) for index in range(len(texts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        flat = [(text, float(index)) for index, some in enumerate(texts) for text in some]
        random.Random(7).shuffle(flat)
        assert other.ask("crowd", *zip(*flat)) == []
    expect_allocated(0)


@with_consumers(1, USUALLY)
def test_the_producer_frees_while_the_consumer_maps() -> None:
    with consumer() as other:
        expected = []
        for round_ in range(60):
            tensor = full(3000 << (round_ % 10), value=float(round_))
            other.tell("look", sent(tensor))
            expected.append([float(round_)] * 8)
            shape = tensor.shape
            del tensor
            if round_ % 7 == 0:
                torch.cuda.empty_cache()
            # What is made now is not what the consumer is still to see.
            full(*shape, value=-1.0)
        assert [other.answer() for _ in expected] == expected
    expect_allocated(0)


@with_consumers(4, where=GENESIS)
def test_consumers_killed_at_any_moment() -> None:
    texts = []
    for number in range(4):
        tensors = [full(1000 << (index % 9), value=float(index)) for index in range(24)]
        with consumer() as other:
            texts += [sent(tensor) for tensor in tensors]
            for text in texts[-24:]:
                other.tell("look", text)
            if number > 0:
                other.answer()
            time.sleep(random.Random(number).uniform(0, 0.1))
            other.kill()
        del tensors
    # Nobody knows which of the tensors were received; what was not is received here.
    for text in texts:
        error = refusal(received, text)
        assert error == "" or "is gone" in error, error
    expect_allocated(0)


@with_consumers(where=GENESIS)
def test_back_and_forth_for_long() -> None:
    with consumer() as other:
        there_and_back(other, 60)
        first = footprints(other)
        least_grown_bytes = [MIB, MIB]
        # What leaks grows in every window. malloc's arenas take up to a dozen to hold the largest
        # tensors in each thread, so it is enough if each process grows by nothing in one.
        for _ in range(25):
            there_and_back(other, 60)
            last = footprints(other)
            for index, (before, after) in enumerate(zip(first, last)):
                grown = after.pop("resident_bytes") - before.pop("resident_bytes")
                least_grown_bytes[index] = min(least_grown_bytes[index], grown)
            assert first == last
            first = footprints(other)
            if max(least_grown_bytes) < MIB // 16:
                break
        assert max(least_grown_bytes) < MIB // 16, least_grown_bytes
    expect_allocated(0)


def footprints(other: Consumer) -> tuple[dict[str, int], dict[str, int]]:
    return footprint(), other.ask("footprint")


def there_and_back(other: Consumer, rounds: int) -> None:
    for round_ in range(rounds):
        tensor = full(1000 << (round_ % 8), value=float(round_))
        back = other.ask("back", tensor)
        assert values(back) == [float(round_)] * 8
        del tensor, back
