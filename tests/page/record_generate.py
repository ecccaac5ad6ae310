"""Records ``generate.gtr.zst``, the trace with which the page is tested at a million events:

    GENESIS_LIBRARY=target/release/libgenesis.so target/release/simcuda \\
        target/torch-venv/bin/python tests/page/record_generate.py tests/page/generate.gtr.zst

A language model generates text for one request after another, as Hugging Face's ``generate`` does:
a cache of keys and values per layer grows by ``torch.cat`` with every token; prompts and answers
have all lengths. The GPU is simulated and its kernels do nothing, so tokens are chosen here.
"""

from __future__ import annotations

import random
import sys

import torch
from torch import nn
from torch.nn import functional

import genesis
import genesis.torch

LAYERS, HEADS, WIDTH, VOCABULARY = 16, 16, 2048, 32_000
EVENTS = 1_000_000


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, cache: list[torch.Tensor]) -> torch.Tensor:
        batch, length, _ = x.shape
        parts = self.qkv(self.before(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = (part.transpose(1, 2) for part in parts.unbind(2))
        if cache:
            key, value = torch.cat([cache[0], key], 2), torch.cat([cache[1], value], 2)
        cache[:] = [key, value]
        scores = functional.softmax(query @ key.transpose(2, 3), -1)
        x = x + self.out((scores @ value).transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(functional.gelu(self.up(self.between(x))))


@torch.inference_mode()
def main(path: str) -> None:
    genesis.torch.enable(trace=path)
    dice = random.Random(1)
    embed = nn.Embedding(VOCABULARY, WIDTH).half().cuda()
    blocks = nn.ModuleList(Block() for _ in range(LAYERS)).half().cuda()
    head = nn.Linear(WIDTH, VOCABULARY, bias=False).half().cuda()
    request = 0

    def is_enough() -> bool:
        return genesis.stats().allocations >= EVENTS // 2

    while not is_enough():
        batch = dice.choice([1, 2, 4])
        prompt, answer = dice.randint(16, 1024), dice.randint(16, 256)
        caches: list[list[torch.Tensor]] = [[] for _ in blocks]
        tokens = torch.zeros(batch, prompt, dtype=torch.long, device="cuda")
        for _ in range(answer):
            x = embed(tokens)
            for block, cache in zip(blocks, caches):
                x = block(x, cache)
            functional.softmax(head(x[:, -1]).float(), -1)
            tokens = torch.zeros(batch, 1, dtype=torch.long, device="cuda")
            if is_enough():
                break
        del caches, tokens, x, cache
        genesis.trace.iteration(request)
        request += 1
    genesis.trace.stop()
    print(request, "requests,", genesis.stats().allocations, "allocations")


main(sys.argv[1])
