"""Trains one model under one allocator, and prints its speed, its memory and the largest batch that
fits.

    python training.py gpt2 native --limit-bytes 34359738368 --seconds 30

The last line printed is the result so far as JSON. It is printed after each stage, so a run that is
stopped has printed what it knows.

Steps are whole training steps in mixed precision: forward, loss, backward, clipped gradients,
AdamW. *Fixed* steps have sequences of one length; *varied* ones draw a length for each step, as
real text does, which fragments memory. The largest batch is found by doubling and then
bisection: a batch fits if a series of varied steps, the longest sequence among them, runs without
an out-of-memory error, starting from an empty cache.

What the start costs: the time of some varied steps from an empty cache, of it in the driver as far
as Genesis calls it, and of the same steps again, each the median of a few rounds.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Callable

import torch
from torch import nn
from torch.nn import functional

WARM_UP_STEPS = 3
TIMED_STEPS = 15
VARIED_STEPS = 100
FIRST_STEPS = 20
FIRST_ROUNDS = 3
TRIAL_STEPS = 8
MOST_BATCH = 4096


@dataclass(frozen=True)
class Shape:
    """A decoder-only transformer."""

    layers: int
    width: int
    heads: int
    hidden: int
    vocabulary: int
    length: int
    batch: int
    llama: bool
    #: Of the weights.
    dtype: torch.dtype


SHAPES = {
    # 124 million parameters.
    "gpt2": Shape(12, 768, 12, 3072, 50257, 1024, 8, False, torch.float32),
    # 1.1 billion parameters.
    "llama": Shape(22, 2048, 32, 5632, 32000, 2048, 2, True, torch.bfloat16),
}


class Layer(nn.Module):
    """Attention and a feed-forward part, each added to its input."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        norm = nn.RMSNorm if shape.llama else nn.LayerNorm
        bias = not shape.llama
        self.before_attention = norm(shape.width)
        self.queries_keys_values = nn.Linear(shape.width, 3 * shape.width, bias=bias)
        self.projection = nn.Linear(shape.width, shape.width, bias=bias)
        self.before_feed_forward = norm(shape.width)
        self.up = nn.Linear(shape.width, shape.hidden, bias=bias)
        self.gate = nn.Linear(shape.width, shape.hidden, bias=False) if shape.llama else None
        self.down = nn.Linear(shape.hidden, shape.width, bias=bias)

    def forward(self, x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.queries_keys_values(self.before_attention(x)).chunk(3, dim=-1)
        split = (batch, length, self.shape.heads, width // self.shape.heads)
        query, key, value = (part.view(split).transpose(1, 2) for part in parts)
        if self.shape.llama:
            query, key = rotate(query, turn), rotate(key, turn)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, length, width))
        y = self.before_feed_forward(x)
        if self.gate is None:
            return x + self.down(functional.gelu(self.up(y)))
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


def rotate(x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotary position embedding."""
    length = x.shape[2]
    cosine, sine = (part[:length].to(x.dtype) for part in turn)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class Transformer(nn.Module):
    """Predicts the next token."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = None if shape.llama else nn.Embedding(shape.length, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width) if shape.llama else nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        half = shape.width // shape.heads // 2
        rates = 10000.0 ** (-torch.arange(half, dtype=torch.float32) / half)
        angles = torch.arange(shape.length, dtype=torch.float32)[:, None] * rates
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x, (self.cosine, self.sine))
        return self.head(self.norm(x))


class Trainer:
    """A model, its optimizer, and steps."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        with torch.device("cuda"):
            self.model = Transformer(shape).to(shape.dtype)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5)

    def step(self, batch: int, length: int) -> None:
        tokens = torch.randint(self.shape.vocabulary, (batch, length), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = self.model(tokens)
            loss = functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def timed(self, batch: int, lengths: Iterable[int], deadline: float) -> list[float]:
        """The time of each step until the deadline, in milliseconds."""
        times = []
        for length in lengths:
            torch.cuda.synchronize()
            started = time.perf_counter()
            self.step(batch, length)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - started) * 1e3)
            if time.monotonic() > deadline:
                break
        return times


class Memory:
    """Statistics and the cache, for every allocator."""

    def __init__(self, allocator: str) -> None:
        # With two symbols alone, PyTorch's own questions do not reach Genesis.
        self.asks_genesis = allocator == "plain"
        self.is_genesis = allocator in ("plain", "enabled")

    def empty_cache(self) -> None:
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        if self.asks_genesis:
            import genesis

            genesis.empty_cache()

    def driver_ms(self) -> float:
        """The time of the driver's calls so far; 0 if PyTorch makes them itself."""
        if not self.is_genesis:
            return 0.0
        import genesis

        return genesis.stats(0).driver_nanoseconds / 1e6

    def peaks(self) -> tuple[int, int]:
        """The most that was allocated, and reserved, at once."""
        if self.asks_genesis:
            import genesis

            stats = genesis.stats(0)
            return stats.allocated_bytes.peak, stats.reserved_bytes.peak
        return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()


def choose(allocator: str) -> None:
    """Must run before CUDA starts."""
    if allocator == "plain":
        import genesis

        plug = torch.cuda.memory.CUDAPluggableAllocator(
            str(genesis.library_path()), "genesis_malloc", "genesis_free"
        )
        torch.cuda.memory.change_current_allocator(plug)
    elif allocator == "enabled":
        import genesis.torch

        genesis.torch.enable()


def limit(allocator: str, limit_bytes: int) -> int:
    """Limits PyTorch's own allocator; Genesis reads its limit from the environment."""
    total = torch.cuda.get_device_properties(0).total_memory
    limit_bytes = min(limit_bytes, total)
    if allocator in ("native", "expandable"):
        torch.cuda.set_per_process_memory_fraction(limit_bytes / total)
    return limit_bytes


def lengths(shape: Shape, count: int, seed: int) -> list[int]:
    """Lengths of so many steps: from an eighth of the longest up, the longest among the first."""
    source = random.Random(seed)
    drawn = [source.randint(shape.length // 8, shape.length) for _ in range(count)]
    drawn[1] = shape.length
    return drawn


def fits(trainer: Trainer, memory: Memory, batch: int, deadline: float) -> bool | None:
    """Returns true if a batch fits; ``None`` if there was no time to find out."""
    memory.empty_cache()
    try:
        for length in lengths(trainer.shape, TRIAL_STEPS, seed=batch):
            if time.monotonic() > deadline:
                return None
            trainer.step(batch, length)
        torch.cuda.synchronize()
        return True
    except torch.OutOfMemoryError:
        # The error's traceback held the tensors of the step, and is gone by now.
        return False
    finally:
        trainer.optimizer.zero_grad(set_to_none=True)


def largest_batch(
    attempt: Callable[[int], bool | None], known: int, say: Callable[[int, int | None], None]
) -> None:
    """Looks for the largest batch that fits, from one that does; prints what it knows meanwhile."""
    low, high = known, None
    while high is None and low < MOST_BATCH:
        answer = attempt(2 * low)
        if answer is None:
            return
        low, high = (2 * low, None) if answer else (low, 2 * low)
        say(low, high)
    while high is not None and high - low > max(1, low // 50):
        middle = (low + high) // 2
        answer = attempt(middle)
        if answer is None:
            return
        low, high = (middle, high) if answer else (low, middle)
        say(low, high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", choices=sorted(SHAPES))
    parser.add_argument("allocator", choices=["native", "expandable", "plain", "enabled"])
    parser.add_argument("--limit-bytes", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.seconds
    # So that all runs use the same kernels: without a GPU there are none of cuDNN's.
    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_cudnn_sdp(False)
    choose(arguments.allocator)
    result: dict[str, Any] = {"pytorch": torch.__version__}

    def say(**figures: Any) -> None:
        result.update(figures)
        print(json.dumps(result), flush=True)

    shape = SHAPES[arguments.model]
    say(limit_bytes=limit(arguments.allocator, arguments.limit_bytes), batch=shape.batch)
    torch.manual_seed(1)
    trainer, memory = Trainer(shape), Memory(arguments.allocator)
    for _ in range(WARM_UP_STEPS):
        trainer.step(shape.batch, shape.length)
    # The search for the largest batch has half of the time.
    timing_deadline = time.monotonic() + (deadline - time.monotonic()) / 2
    fixed = [shape.length] * TIMED_STEPS
    say(fixed_step_ms=statistics.median(trainer.timed(shape.batch, fixed, timing_deadline)))
    drawn = lengths(shape, VARIED_STEPS, seed=7)
    varied = trainer.timed(shape.batch, drawn, timing_deadline)
    say(varied_steps=len(varied), varied_step_ms=statistics.median(varied))
    say(slowest_varied_step_ms=max(varied))
    allocated, reserved = memory.peaks()
    say(peak_allocated_bytes=allocated, peak_reserved_bytes=reserved)
    # Lengths that ran before: a new one also loads kernels.
    first_drawn = drawn[:FIRST_STEPS]
    rounds = []
    for _ in range(FIRST_ROUNDS):
        memory.empty_cache()
        before_ms = memory.driver_ms()
        first = trainer.timed(shape.batch, first_drawn, timing_deadline)
        driver_ms = memory.driver_ms() - before_ms
        again = trainer.timed(shape.batch, first_drawn, timing_deadline)
        if len(again) < FIRST_STEPS:
            break
        rounds.append((sum(first), driver_ms, sum(again)))
    if rounds:
        first_ms, driver_ms, again_ms = (statistics.median(part) for part in zip(*rounds))
        say(first_steps=FIRST_STEPS, first_steps_ms=first_ms, same_steps_again_ms=again_ms)
        if memory.is_genesis:
            say(first_steps_driver_ms=driver_ms)
    largest_batch(
        lambda batch: fits(trainer, memory, batch, deadline),
        shape.batch,
        lambda low, high: say(largest_batch=low, smallest_too_large=high),
    )
    sys.stdout.flush()
    # Live tensors end with the process.
    os._exit(0)


if __name__ == "__main__":
    main()
