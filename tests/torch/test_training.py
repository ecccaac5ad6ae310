"""Training a transformer: the same program with two functions plugged in, with all that
``genesis.torch`` adds, and with Genesis as the source of PyTorch's segments."""

from __future__ import annotations

import threading

import torch
from torch import nn

import genesis
from support.models import Shape, Transformer, loss_of, train
from support.program import program

ALL_MODES = ("two_symbols", "enabled", "mem_pool")


@program(modes=ALL_MODES)
def test_a_transformer_trains() -> None:
    train(Shape(), lengths=[512] * 4)
    assert genesis.stats(0).allocations > 0


@program(modes=ALL_MODES)
def test_with_lengths_that_vary() -> None:
    train(Shape(layers=2), lengths=[128, 513, 64, 1000, 77, 512, 333, 900])


@program(modes=ALL_MODES)
def test_with_activation_checkpointing() -> None:
    train(Shape(checkpointed=True), lengths=[512] * 3)


@program(modes=("enabled",))
def test_checkpointing_saves_memory() -> None:
    peaks = []
    for checkpointed in (False, True):
        torch.cuda.reset_peak_memory_stats()
        train(Shape(layers=6, vocabulary=1024, checkpointed=checkpointed), [512] * 2, batch=16)
        peaks.append(torch.cuda.max_memory_allocated())
    without, with_checkpoints = peaks
    assert with_checkpoints < 0.7 * without


@program(modes=ALL_MODES)
def test_backward_on_autograds_own_threads() -> None:
    """Four threads with a stream each; their backward passes run on autograd's thread of the
    device, which allocates there for all of them."""
    failures: list[BaseException] = []

    def work(stream: torch.cuda.Stream) -> None:
        try:
            with torch.cuda.stream(stream):
                train(Shape(layers=1, vocabulary=1024), lengths=[128] * 3)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(torch.cuda.Stream(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


@program(modes=ALL_MODES, env={"SIMCUDA_DEVICES": "2"})
def test_two_devices() -> None:
    """A model cut in two: activations cross on the way forward, gradients on the way back."""
    shape = Shape(layers=2)
    with torch.device("cuda:0"):
        first = Transformer(shape)
    with torch.device("cuda:1"):
        second = nn.Sequential(nn.Linear(shape.vocabulary, 256), nn.GELU(), nn.Linear(256, 1))
    for _ in range(3):
        tokens = torch.zeros(2, 256, dtype=torch.long, device="cuda:0")
        second(first(tokens).to("cuda:1", non_blocking=True)).mean().backward()
    for device in (0, 1):
        torch.cuda.synchronize(device)
        assert genesis.stats(device).allocations > 0


def driver_memory_calls_of_steady_steps(warm_up: int) -> tuple[int, int]:
    """The driver calls for memory, and the requests, of five steps after ``warm_up`` others."""
    with torch.device("cuda"):
        model = Transformer(Shape(layers=2))
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        loss_of(model, torch.zeros(4, 256, dtype=torch.long, device="cuda")).backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(warm_up):
        step()
    before = genesis.stats(0)
    for _ in range(5):
        step()
    after = genesis.stats(0)
    calls = after.driver_memory_calls - before.driver_memory_calls
    return calls, after.allocations - before.allocations


@program(modes=("enabled",), env={"GENESIS_POOL_TYPE": "Caching"})
def test_a_steady_program_stops_asking_the_driver() -> None:
    calls, allocations = driver_memory_calls_of_steady_steps(3)
    assert allocations > 0 and calls == 0


@program(modes=("enabled",))
def test_a_steady_program_hardly_asks_the_driver_under_elastic() -> None:
    """This program is at its peak all the time. Caching holds 1.4 times that peak; Elastic holds up
    to 1.2 times, and sometimes moves memory."""
    calls, allocations = driver_memory_calls_of_steady_steps(40)
    assert allocations > 0 and calls <= allocations * 0.05, (calls, allocations)
