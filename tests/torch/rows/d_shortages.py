"""What a shortage says, in the words that programs look for."""

from __future__ import annotations

import re
from typing import Any

import torch

from support.memory import block
from support.program import OUT_OF_MEMORY
from support.rows import row

#: Up to here the line is PyTorch's.
LINE = re.compile(
    r"CUDA out of memory\. Tried to allocate .*? is free\. |.* more than 1EB memory\."
)


@row(
    "torch.OutOfMemoryError",
    "torch.cuda.OutOfMemoryError",
    differs="the same line up to “is free.”, with the size asked for where PyTorch's is the "
    "segment's; then Genesis's own figures",
    of_answer=lambda answer: [[LINE.match(text)[0], *rest] for text, *rest in answer],
    says=OUT_OF_MEMORY,
)
def messages() -> list[Any]:
    kept = [block(512)]
    found = []
    torch.cuda.set_per_process_memory_fraction(0.5)
    sizes = (41 << 30, 80 << 30, (1 << 40) + 5, 800_000_000 << 30, 8_000_000_000 << 30)
    for n in sizes:
        try:
            kept.append(torch.empty(n, dtype=torch.int8, device="cuda"))
        except torch.OutOfMemoryError as error:
            found.append([str(error), torch.cuda.memory_stats()["num_ooms"]])
    torch.cuda.set_per_process_memory_fraction(0.00001)
    for n in (12 << 20, 22 << 20, (1 << 30) + (2 << 20)):
        try:
            kept.append(torch.empty(n, dtype=torch.int8, device="cuda"))
        except torch.OutOfMemoryError as error:
            found.append([str(error), torch.cuda.memory_stats()["num_ooms"]])
    return found


@row("torch.cuda.memory_stats()['num_sync_all_streams']", says=OUT_OF_MEMORY)
def waits() -> list[int]:
    def count() -> list[int]:
        stats = torch.cuda.memory_stats()
        return [stats[f"num_{name}"] for name in ("sync_all_streams", "alloc_retries", "ooms")]

    kept = [block(100)]
    found = count()
    torch.cuda.empty_cache()
    torch.cuda.empty_cache()
    found += count()
    try:
        block(200 << 30)
    except torch.OutOfMemoryError:
        found += count()
    block(60 << 30)
    kept.append(block(70 << 30))
    found += count()
    torch.cuda.reset_accumulated_memory_stats()
    return found + count()
