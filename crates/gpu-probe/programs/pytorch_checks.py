"""Checks what PyTorch computes over an allocator, on a device whose kernels run.

    python pytorch_checks.py native --losses FILE      PyTorch's own allocator
    python pytorch_checks.py enabled --losses FILE     genesis.torch.enable()

Each check is a function below. The last line printed is a JSON array of
``{"name", "passed", "detail"}``. The first run writes what a training computes into FILE; all later
ones must compute the same to the last bit.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import random
import threading
from pathlib import Path
from typing import Any, Callable

# cuBLAS computes the same in each run only with a workspace of a fixed size.
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch
from torch import nn

MIB = 1 << 20
Check = Callable[[argparse.Namespace], "str | None"]
CHECKS: list[Check] = []


def check(function: Check) -> Check:
    """Adds a check: it raises an error, or returns what it saw; ``None`` if it does not apply."""
    CHECKS.append(function)
    return function


def expect(what: bool, message: str) -> None:
    if not what:
        raise AssertionError(message)


def network() -> nn.Module:
    layer = functools.partial(nn.TransformerEncoderLayer, 256, 4, 1024, 0.1, batch_first=True)
    return nn.Sequential(*(layer() for _ in range(4)), nn.Linear(256, 256)).cuda()


@check
def training_is_the_same_to_the_last_bit(arguments: argparse.Namespace) -> str:
    """Losses of steps with sequences of fresh lengths."""
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(5)
    model, lengths = network(), random.Random(3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(40):
        data = torch.randn(lengths.randint(1, 24), lengths.randint(8, 512), 256, device="cuda")
        loss = (model(data) - data).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach().double().item().hex())
    torch.use_deterministic_algorithms(False)
    file: Path = arguments.losses
    if file.exists():
        expect(json.loads(file.read_text()) == losses, "other losses than in the first run")
    else:
        file.write_text(json.dumps(losses))
    return f"{len(losses)} steps, the last loss {float.fromhex(losses[-1]):.6f}"


@check
def blocks_keep_their_bytes_across_streams(_: argparse.Namespace) -> str:
    """Random tensors on four streams, some used on another one and recorded there."""
    source, streams = random.Random(1), [torch.cuda.Stream() for _ in range(4)]
    wrong = torch.zeros(1, dtype=torch.int64, device="cuda")
    torch.cuda.synchronize()
    living: list[tuple[torch.Tensor, int, torch.cuda.Stream]] = []
    checked = 0
    for number in range(4000):
        if len(living) > 60 or (living and source.random() < 0.4):
            tensor, value, stream = living.pop(source.randrange(len(living)))
            user = source.choice(streams)
            if user != stream:
                user.wait_stream(stream)
            with torch.cuda.stream(user):
                torch.add(wrong, (tensor != value).sum(), out=wrong)
                if user != stream:
                    tensor.record_stream(user)
            for other in streams:
                # The sum is one tensor, so its users take turns.
                if other != user:
                    other.wait_stream(user)
            checked += 1
            del tensor
        else:
            stream = source.choice(streams)
            with torch.cuda.stream(stream):
                words = 1 << source.randint(4, 20)
                made = torch.full((words + source.randrange(words),), number, device="cuda")
            living.append((made, number, stream))
    torch.cuda.synchronize()
    expect(wrong.item() == 0, f"{wrong.item()} words were wrong")
    return f"{checked} tensors"


@check
def graphs_replay_between_other_work(_: argparse.Namespace) -> str:
    """A captured network computes what it does eagerly, while memory comes and goes."""
    torch.manual_seed(2)
    model, given = network().eval(), torch.randn(8, 128, 256, device="cuda")
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.no_grad():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            model(given)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            result = model(given)
        for round_number in range(20):
            others = [torch.full((MIB + 7,), 3.0, device="cuda") for _ in range(round_number)]
            fresh = torch.randn_like(given)
            given.copy_(fresh)
            graph.replay()
            expected = model(fresh)
            torch.testing.assert_close(result, expected)
            expect(all(bool((other == 3.0).all()) for other in others), "other tensors changed")
            del others
            if round_number % 5 == 4:
                torch.cuda.empty_cache()
    graph.reset()
    return "20 replays"


@check
def compiled_graph_trees_compute_the_same(_: argparse.Namespace) -> str:
    """``torch.compile(mode="reduce-overhead")`` beside the same function, eagerly."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return (torch.nn.functional.gelu(x @ x.t()) @ x).softmax(dim=-1).sum(dim=0)

    compiled = torch.compile(function, mode="reduce-overhead")
    for size in (64, 64, 64, 96, 64, 96, 96, 96):
        x = torch.randn(size, 64, device="cuda")
        torch.compiler.cudagraph_mark_step_begin()
        torch.testing.assert_close(compiled(x).clone(), function(x), atol=1e-3, rtol=1e-3)
    torch._dynamo.reset()
    return "8 calls of two shapes"


@check
def a_request_too_large_is_pytorchs_error(_: argparse.Namespace) -> str:
    total = torch.cuda.get_device_properties(0).total_memory
    for size in (total, 1 << 50):
        try:
            torch.empty(size, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            pass
        else:
            raise AssertionError(f"{size} bytes were served")
    expect(torch.ones(1000, device="cuda").sum().item() == 1000, "the next request failed")
    return "the next request is served"


@check
def the_card_is_filled_and_joined_again(_: argparse.Namespace) -> str:
    """Every second of many blocks is freed, and their sum asked for in one piece."""
    gc.collect()
    torch.cuda.empty_cache()
    piece = 256 * MIB
    free, _total = torch.cuda.mem_get_info()
    count = int(free * 0.85) // piece
    blocks = [torch.full((piece,), n % 251, dtype=torch.uint8, device="cuda") for n in range(count)]
    kept = blocks[1::2]
    del blocks
    whole = torch.full(((count - len(kept)) * piece,), 252, dtype=torch.uint8, device="cuda")
    expect(bool((whole[:: 4096 * 3] == 252).all()), "the large block is not as written")
    right = [bool((block[::4096] == (2 * n + 1) % 251).all()) for n, block in enumerate(kept)]
    expect(all(right), "surviving blocks changed")
    return f"{count} blocks of 256 MiB, {whole.numel() >> 30} GiB in one piece"


@check
def statistics_add_up_and_memory_goes_back(_: argparse.Namespace) -> str:
    gc.collect()
    torch.cuda.empty_cache()
    before, free = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]
    tensor = torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
    held = torch.cuda.memory_allocated() - before
    expect(held == tensor.numel(), f"{held} bytes allocated")
    segments = torch.cuda.memory._snapshot()["segments"]
    listed = sum(segment["total_size"] for segment in segments)
    expect(listed == torch.cuda.memory_reserved(), "the snapshot and memory_reserved() differ")
    del tensor
    torch.cuda.empty_cache()
    missing = free - torch.cuda.mem_get_info()[0]
    expect(missing <= 0, f"{missing} bytes did not come back")
    return "3 GiB"


@check
def threads_train_at_the_same_time(_: argparse.Namespace) -> str:
    problems: list[str] = []

    def work(seed: int) -> None:
        source = random.Random(seed)
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                weight = torch.eye(256, device="cuda", requires_grad=True)
                for _ in range(60):
                    data = torch.full((source.randint(1, 4000), 256), float(seed), device="cuda")
                    (data @ weight).mean().backward()
                    expect(bool((data == seed).all()), "a thread's tensor changed")
                    weight.grad = None
        except Exception as error:
            problems.append(repr(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not problems, "; ".join(problems))
    return "8 threads"


@check
def pinned_memory_is_copied_without_waiting(_: argparse.Namespace) -> str:
    source, stream = random.Random(4), torch.cuda.Stream()
    for number in range(200):
        host = torch.full((source.randint(1, MIB),), number, dtype=torch.int32).pin_memory()
        with torch.cuda.stream(stream):
            device = host.to("cuda", non_blocking=True)
            back = device.to("cpu", non_blocking=True)
        del host
        stream.synchronize()
        expect(bool((back == number).all()), "a copy was wrong")
    return "200 tensors"


@check
def a_pool_gives_its_memory_back(_: argparse.Namespace) -> str:
    gc.collect()
    torch.cuda.empty_cache()
    reserved = torch.cuda.memory_reserved()
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        tensors = [torch.full((MIB,), 1.0, device="cuda") for _ in range(32)]
    expect(all(bool((tensor == 1.0).all()) for tensor in tensors), "a tensor of the pool changed")
    del tensors, pool
    torch.cuda.empty_cache()
    expect(torch.cuda.memory_reserved() <= reserved, "the pool's memory stays reserved")
    return "128 MiB"


@check
def tags_sleep_and_wake(arguments: argparse.Namespace) -> str | None:
    if arguments.mode != "enabled":
        return None
    import genesis

    with genesis.tag("weights", backup="pinned"):
        weights = torch.randn(256 * MIB, device="cuda")
    total, address = weights.double().sum().item(), weights.data_ptr()
    for is_first in (True, False):
        free = torch.cuda.mem_get_info()[0]
        genesis.pause("weights")
        given_back = torch.cuda.mem_get_info()[0] - free
        # For new page-locked memory the driver takes tables on the device.
        expect(is_first or given_back >= weights.nbytes, f"{given_back} bytes came back")
        genesis.resume("weights")
    expect(weights.data_ptr() == address, "the address changed")
    expect(weights.double().sum().item() == total, "the contents changed")
    return f"{weights.nbytes >> 20} MiB, twice"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("mode", choices=["native", "enabled"])
    parser.add_argument("--losses", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.mode == "enabled":
        import genesis.torch

        genesis.torch.enable()
    results: list[dict[str, Any]] = []
    for one in CHECKS:
        try:
            passed, detail = True, one(arguments)
        except Exception as error:
            passed, detail = False, f"{type(error).__name__}: {error}".split("\n")[0][:300]
        gc.collect()
        if detail is None:
            continue
        results.append({"name": one.__name__.replace("_", " "), "passed": passed, "detail": detail})
        print(json.dumps(results), flush=True)
    # Live tensors end with the process.
    os._exit(0)


if __name__ == "__main__":
    main()
