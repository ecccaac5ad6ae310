"""Models of real sizes without arithmetic: kernels do nothing without a GPU, so a program costs
only its allocations and launches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Shape:
    """A decoder-only transformer: GPT-2's proportions with fewer layers."""

    layers: int = 4
    width: int = 768
    heads: int = 12
    vocabulary: int = 50257
    positions: int = 1024
    checkpointed: bool = False


class Layer(nn.Module):
    """Attention and a feed-forward part, each added to its input."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.before_attention = nn.LayerNorm(shape.width)
        self.queries_keys_values = nn.Linear(shape.width, 3 * shape.width)
        self.projection = nn.Linear(shape.width, shape.width)
        self.before_feed_forward = nn.LayerNorm(shape.width)
        self.feed_forward = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width),
            nn.GELU(),
            nn.Linear(4 * shape.width, shape.width),
            nn.Dropout(0.1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.queries_keys_values(self.before_attention(x)).chunk(3, dim=-1)
        shape = (batch, length, self.heads, width // self.heads)
        query, key, value = (part.view(shape).transpose(1, 2) for part in parts)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed_forward(self.before_feed_forward(x))


class Transformer(nn.Module):
    """Predicts the next token."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.checkpointed = shape.checkpointed
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.positions, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(positions)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)
        return self.head(self.norm(x))


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """The training loss on one batch, in mixed precision."""
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(tokens)
        return functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())


def train(
    shape: Shape, lengths: Iterable[int], batch: int = 4, device: Optional[str] = "cuda"
) -> None:
    """One AdamW step for each sequence length."""
    with torch.device(device):
        model = Transformer(shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for length in lengths:
        tokens = torch.zeros(batch, length, dtype=torch.long).to(device, non_blocking=True)
        loss_of(model, tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize(device)
