"""How long a training step takes on the host with Genesis and with PyTorch's own allocator.

    target/release/simcuda target/torch-venv/bin/python tests/torch/step_time.py [PAIRS]

Without a GPU a step is the host's work: Python, PyTorch's dispatch, launches that do nothing, and
the allocator. Runs come in pairs, one after the other in processes of their own. The result is the
median over the pairs of the ratio within a pair, so other load on the machine matters little. Not
a test: speed is measured and never asserted.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT.parent.parent / "python")]

import torch  # noqa: E402

from support.models import Shape, Transformer, loss_of  # noqa: E402
from support.program import run  # noqa: E402

WARM_UP_ROUNDS = 5
ROUNDS = 30
DEFAULT_PAIRS = 7
#: Turns off what would cost more than the allocator.
QUIET = {"SIMCUDA_RACES": "off", "SIMCUDA_KERNEL_TOUCHES": "off"}


def fixed_lengths() -> float:
    return time_of_a_step(Shape(), [512])


def varying_lengths() -> float:
    return time_of_a_step(Shape(), [128, 513, 64, 1000, 77, 512, 333, 900])


def checkpointed() -> float:
    return time_of_a_step(Shape(checkpointed=True), [512])


PROGRAMS = (fixed_lengths, varying_lengths, checkpointed)


def time_of_a_step(shape: Shape, lengths: Sequence[int]) -> float:
    """The median time of a step, in seconds, over rounds of one step for each length."""
    with torch.device("cuda"):
        model = Transformer(shape)
    optimizer = torch.optim.AdamW(model.parameters())
    seconds = []
    for _ in range(WARM_UP_ROUNDS + ROUNDS):
        started = time.perf_counter()
        for length in lengths:
            loss_of(model, torch.zeros(4, length, dtype=torch.long, device="cuda")).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
        seconds.append((time.perf_counter() - started) / len(lengths))
    return statistics.median(seconds[WARM_UP_ROUNDS:])


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_PAIRS
    print("| program | mode | ms a step | of PyTorch's own |\n|---|---|---|---|")
    for program in PROGRAMS:
        for mode in ("enabled", "two_symbols"):
            times, ratios = [], []
            for number in range(pairs):
                # Each is first equally often.
                order = (mode, "native") if number % 2 else ("native", mode)
                seconds = {name: run(program, name, QUIET, ending="any") for name in order}
                times.append(seconds[mode])
                ratios.append(seconds[mode] / seconds["native"])
            milliseconds, ratio = statistics.median(times) * 1e3, statistics.median(ratios)
            name = program.__name__.replace("_", " ")
            print(f"| {name} | {mode} | {milliseconds:.2f} | {ratio:.3f} |", flush=True)


if __name__ == "__main__":
    main()
