"""The programs: each never repeats a step. They are generators, and each ``yield`` ends a step.

===============  ==================================================================================
varying lengths  a transformer is trained; each batch has a fresh random size and length
drifting         a transformer is trained, from a length of 512 to one of 2048
alternating      a transformer is trained for some steps, then generates with a cache of keys and
                 values that grows token by token and is freed at the end
growing          a transformer is trained beside a store that grows with each step: pieces of random
                 sizes are added, and fewer are dropped, at random
===============  ==================================================================================

Tensors stay on the device from the start, so no step waits or copies. Without a GPU kernels do
nothing, so large tensors cost as little as small ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Callable, Optional

import torch
from torch.nn import functional

from support.models import Layer, Shape, Transformer, loss_of

#: 0.74 billion parameters: 11 GiB with gradients and the optimizer's state.
LARGE = Shape(layers=12, width=2048, heads=16, vocabulary=32000, positions=2048)
#: 0.33 billion parameters.
MEDIUM = Shape(layers=8, width=1536, heads=16, vocabulary=32000, positions=2048)
SMALL = Shape(layers=2, width=512, heads=8, vocabulary=4096, positions=2048)

#: Keys and values of one layer.
Cache = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Scale:
    """How much a program does."""

    steps: int
    #: Replaces the program's model.
    shape: Optional[Shape] = None

    def of(self, shape: Shape) -> Shape:
        return self.shape or shape


SMOKE = Scale(steps=12, shape=SMALL)


class Training:
    """A model with its optimizer."""

    def __init__(self, shape: Shape) -> None:
        with torch.device("cuda"):
            self.model = Transformer(shape)
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def step(self, batch: int, length: int) -> None:
        tokens = torch.empty(batch, length, dtype=torch.long, device="cuda")
        loss_of(self.model, tokens).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)


def random_batch(chance: random.Random, tokens: int = 16384) -> tuple[int, int]:
    """A batch's size and length: at most ``tokens`` in all, in at most 16 sequences."""
    length = chance.randint(64, 2048)
    return chance.randint(1, min(16, tokens // length)), length


def varying_lengths(scale: Scale) -> Iterator[None]:
    chance, training = random.Random(1), Training(scale.of(LARGE))
    for _ in range(scale.steps):
        training.step(*random_batch(chance))
        yield


def drifting(scale: Scale) -> Iterator[None]:
    training = Training(scale.of(LARGE))
    for step in range(scale.steps):
        training.step(batch=8, length=512 + 1536 * step // max(scale.steps - 1, 1))
        yield


def alternating(scale: Scale) -> Iterator[None]:
    """A generation after every three steps of training; each counts as a step."""
    chance, training = random.Random(2), Training(scale.of(LARGE))
    for step in range(scale.steps):
        if step % 4 < 3:
            training.step(*random_batch(chance))
        else:
            prompt, count = chance.randint(128, 1500), chance.randint(32, 128)
            generate(training.model, chance.randint(8, 64), prompt, count)
        yield


def growing(scale: Scale) -> Iterator[None]:
    chance, training = random.Random(3), Training(scale.of(MEDIUM))
    store: list[torch.Tensor] = []
    for _ in range(scale.steps):
        for _ in range(4):
            rows = chance.randint(64, 2048)  # 0.5 to 16 MiB
            store.append(torch.empty(rows, 4096, dtype=torch.bfloat16, device="cuda"))
        store.pop(chance.randrange(len(store)))
        training.step(*random_batch(chance, tokens=8192))
        yield


def generate(model: Transformer, batch: int, prompt: int, count: int) -> None:
    """Makes ``count`` tokens for each of ``batch`` prompts of a length."""
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
        tokens = torch.empty(batch, prompt, dtype=torch.long, device="cuda")
        caches: list[Optional[Cache]] = [None] * len(model.layers)
        for length in range(prompt, prompt + count):
            positions = torch.arange(length - tokens.shape[1], length, device="cuda")
            x = model.tokens(tokens) + model.positions(positions)
            for number, layer in enumerate(model.layers):
                x, caches[number] = extended(layer, x, caches[number])
            tokens = model.head(model.norm(x[:, -1:])).argmax(dim=-1)


def extended(layer: Layer, x: torch.Tensor, cache: Optional[Cache]) -> tuple[torch.Tensor, Cache]:
    """What the layer makes of new tokens, and the cache with theirs."""
    batch, length, width = x.shape
    parts = layer.queries_keys_values(layer.before_attention(x)).chunk(3, dim=-1)
    shape = (batch, length, layer.heads, width // layer.heads)
    query, key, value = (part.view(shape).transpose(1, 2) for part in parts)
    if cache is not None:
        key, value = torch.cat((cache[0], key), dim=2), torch.cat((cache[1], value), dim=2)
    attended = functional.scaled_dot_product_attention(query, key, value, is_causal=cache is None)
    x = x + layer.projection(attended.transpose(1, 2).reshape(batch, length, width))
    return x + layer.feed_forward(layer.before_feed_forward(x)), (key, value)


@dataclass(frozen=True)
class Program:
    """One of them, with what is usual for it."""

    run: Callable[[Scale], Iterator[None]]
    what: str
    scale: Scale


PROGRAMS = {
    "varying lengths": Program(
        varying_lengths,
        "batches of fresh random sizes and lengths, up to 16,384 tokens",
        Scale(500),
    ),
    "drifting": Program(drifting, "the length grows from 512 to 2048 in batches of 8", Scale(500)),
    "alternating": Program(
        alternating,
        "three steps of training on random batches, then a generation of 32 to 128 tokens whose "
        "cache grows token by token",
        Scale(400),
    ),
    "growing": Program(
        growing,
        "each step adds four tensors of 0.5 to 16 MiB to a store, drops one of all, and trains",
        Scale(1200),
    ),
}
