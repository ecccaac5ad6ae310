"""The real PyTorch with its own allocator on simcuda.

    simcuda python crates/simcuda/tests/test_pytorch.py

Each test is a program, run in a process of its own: with pytest or without. It fails when PyTorch
does, when the race detector finds something, or when memory is left behind. The processes are
forked from one that has imported PyTorch (``tests/torch/support/processes.py``).
"""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TORCH_TESTS = HERE.parent.parent.parent / "tests" / "torch"
PROGRAMS = {}


def program(says: str | None = None, is_nightly: bool = False, **environment: str):
    """Makes a function a test that runs it in a process of its own, with this environment. It
    writes to standard error only what is expected."""

    def decorate(body):
        PROGRAMS[body.__name__] = body

        def test():
            if str(TORCH_TESTS) not in sys.path:
                sys.path.append(str(TORCH_TESTS))
            from support import processes, tier

            if is_nightly and not tier.is_full():
                import pytest

                pytest.skip(tier.NIGHTLY)
            prepared = ("support.before_fork",)
            place = processes.Place("test_pytorch", (HERE, TORCH_TESTS), ("torch",), prepared)
            result = processes.run(place, body.__name__, environment)
            assert result.status == 0, result.stderr + result.stdout
            said = "\n".join(result.lines())
            assert says in said if says is not None else said == "", said

        test.__name__ = test.__qualname__ = body.__name__
        return test

    return decorate


class Simulation:
    """The functions of simcuda's ``control``."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        for name in ("check", "census", "calls", "peak_bytes", "advance"):
            getattr(self._library, f"simcuda_{name}").restype = ctypes.c_int64

    def violations(self) -> str:
        text = ctypes.create_string_buffer(1 << 16)
        self._library.simcuda_violations(text, len(text))
        return text.value.decode()

    def clear(self) -> None:
        self._library.simcuda_violations_clear()

    def census(self, what: str) -> int:
        return self._library.simcuda_census(what.encode())

    def calls(self, name: str) -> int:
        return self._library.simcuda_calls(name.encode())


def finish(torch, simulation: Simulation) -> None:
    """Everything is given back, and nothing was wrong."""
    gc.collect()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    assert simulation.violations() == "", simulation.violations()
    left = {name: simulation.census(name) for name in ("used_bytes", "handles", "graphs")}
    assert not any(left.values()), left


def transformer(torch):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
            self.attention, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            batch, length, width = x.shape
            parts = self.attention(self.norms[0](x)).split(width, -1)
            heads = [p.view(batch, length, self.heads, -1).transpose(1, 2) for p in parts]
            y = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))

    class Model(nn.Module):
        def __init__(self, words: int = 1000, width: int = 256) -> None:
            super().__init__()
            self.embed = nn.Embedding(words, width)
            self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(3)))
            self.head = nn.Linear(width, words)

        def forward(self, words):
            logits = self.head(self.blocks(self.embed(words)))
            return nn.functional.cross_entropy(logits.flatten(0, 1), words.flatten())

    return Model()


def train(torch, device: str = "cuda") -> None:
    model = transformer(torch).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(4):
        words = torch.randint(0, 1000, (4, 64 + 16 * step)).to(device)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(words)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    assert loss.item() == 0.0  # what is copied from a device is zeros


@program()
def test_a_transformer_is_trained(torch, simulation):
    assert torch.cuda.get_device_capability() == (9, 0)
    train(torch)
    assert torch.cuda.max_memory_allocated() > 50 << 20


@program(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
def test_a_transformer_is_trained_in_expandable_segments(torch, simulation):
    train(torch)
    assert simulation.calls("cuMemMap") > 10


@program(is_nightly=True, PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
def test_a_transformer_is_trained_in_the_drivers_pool(torch, simulation):
    train(torch)


# Not from a file in which PyTorch keeps what was compiled.
@program(is_nightly=True, USE_PYTORCH_KERNEL_CACHE="0")
def test_a_kernel_is_compiled_while_the_program_runs(torch, simulation):
    """By NVRTC, which looks for functions of the driver that no header describes."""
    for dtype in (torch.float32, torch.cdouble):
        assert torch.ones(240_000, device="cuda", dtype=dtype).prod().shape == ()


@program(SIMCUDA_DEVICES="2")
def test_two_devices_copy_to_each_other(torch, simulation):
    for device in ("cuda:0", "cuda:1"):
        train(torch, device)
    there = torch.ones(1 << 20, device="cuda:0").to("cuda:1", non_blocking=True)
    assert there.sum().item() == 0.0


@program(SIMCUDA_PROGRESS="manual")
def test_streams_are_ordered_by_events(torch, simulation):
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    source = torch.zeros(1 << 20, device="cuda")
    target = torch.empty_like(source)
    event.record()
    assert not event.query()
    with torch.cuda.stream(side):
        side.wait_event(event)
        target.copy_(source)
    torch.cuda.current_stream().wait_stream(side)
    pinned = torch.empty(1 << 20).pin_memory()
    assert pinned.is_pinned()
    pinned.copy_(target, non_blocking=True)
    torch.cuda.synchronize()
    assert event.query() and float(pinned[5]) == 0.0


@program(says="simcuda: race on ", SIMCUDA_PROGRESS="manual")
def test_a_missing_wait_is_found(torch, simulation):
    side = torch.cuda.Stream()
    tensor = torch.zeros(1 << 20, device="cuda")
    with torch.cuda.stream(side):
        tensor.add_(1)
    assert "race on" in simulation.violations()
    torch.cuda.synchronize()
    simulation.clear()


@program()
def test_graphs_are_captured_and_replayed(torch, simulation):
    x = torch.zeros(1 << 16, device="cuda")
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 2 + 1
    torch.cuda.current_stream().wait_stream(side)
    del y
    with torch.cuda.graph(graph):
        y = x * 2 + 1
        torch.empty_like(y).copy_(y)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    graph.reset()


@program(SIMCUDA_MEMORY="1GiB")
def test_memory_runs_out_as_on_a_device(torch, simulation):
    try:
        torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        assert "1024.00 MiB" in str(error), error
    else:
        raise AssertionError("two gigabytes fit into one")
    torch.empty(1 << 20, device="cuda")


@program()
def test_forked_workers_load_data(torch, simulation):
    train(torch)
    data = torch.utils.data.TensorDataset(torch.arange(64))
    loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, pin_memory=True)
    assert sum(len(batch[0].to("cuda", non_blocking=True)) for batch in loader) == 64


@program()
def test_the_process_ends_with_live_tensors(torch, simulation):
    global kept
    kept = [torch.ones(1 << 20, device="cuda") for _ in range(3)]
    train(torch)
    sys.exit(0)


@program(says="simcuda: cusolverDnCreate")
def test_what_is_missing_is_named(torch, simulation):
    try:
        torch.linalg.eigh(torch.zeros(4, 4, device="cuda"))
    except RuntimeError as failure:
        assert "cusolver" in str(failure), failure
    else:
        raise AssertionError("nothing was solved")


def main(name: str) -> None:
    """Runs one program, in this process."""
    import torch

    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cudnn.enabled = False
    simulation = Simulation()
    PROGRAMS[name](torch, simulation)
    finish(torch, simulation)


if __name__ == "__main__":
    failures = 0
    for name in PROGRAMS:
        try:
            globals()[name]()
            print("ok    ", name)
        except AssertionError as failure:
            failures += 1
            print("FAILED", name, failure)
    sys.exit(bool(failures))
