"""Made-up programs, of kinds that the recorded ones lack: nothing was tuned on them.

    python3 benches/synthetic/make_traces.py FOLDER
    cargo xtask peers --cells --subjects expandable,elastic --trace-folder FOLDER

Each function below is a program: it allocates and frees what a program of its kind would, with
sizes from a generator of random numbers with a fixed seed, so the traces are the same everywhere.
The format is that of ``traces/README.md``.
"""

from __future__ import annotations

import random
import struct
import sys
from pathlib import Path
from typing import Callable

MIB = 1 << 20
HALF, SINGLE = 2, 4  # bytes of a number

ALLOCATE, FREE, RECORD_STREAM, END_OF_ITERATION = 1, 2, 3, 5


class Recorder:
    """What a program does, as a trace."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.records = bytearray(b"GTR1\n")
        self.sizes: dict[int, int] = {}
        self.blocks = 0
        self.iterations = 0

    def allocate(self, size: float, stream: int = 0) -> int:
        """A block of ``size`` bytes, by its number."""
        self.blocks += 1
        self.sizes[self.blocks] = max(1, int(size))
        self._record(ALLOCATE, stream, self.blocks, self.sizes[self.blocks])
        return self.blocks

    def free(self, *blocks: int) -> None:
        for block in blocks:
            self._record(FREE, 0, block, 0)
            del self.sizes[block]

    def use(self, size: float) -> None:
        """A block that is freed at once."""
        self.free(self.allocate(size))

    def record_stream(self, block: int, stream: int) -> None:
        self._record(RECORD_STREAM, stream, block, 0)

    def end_iteration(self) -> None:
        self._record(END_OF_ITERATION, 0, self.iterations, 0)
        self.iterations += 1

    def _record(self, operation: int, stream: int, block: int, size: int) -> None:
        self.records += struct.pack("<BBHIQ", operation, 0, stream, block, size)


def serving(to: Recorder) -> None:
    """A 7 B model answers batches whose number of tokens varies from 1 to 8192."""
    for _ in range(32):
        for mib in (32, 32, 8, 8, 90, 90, 90):
            to.allocate(mib * MIB)
    for _ in range(24):
        to.allocate(256 * MIB)  # keys and values
    for _ in range(120):
        tokens = min(8192, int(to.random.lognormvariate(6.5, 1.2))) + 1
        hidden = tokens * 4096 * HALF
        x = to.allocate(hidden)
        for _ in range(32):
            norm, queries = to.allocate(hidden), to.allocate(hidden * 1.5)
            attended = to.allocate(hidden)
            to.free(queries)
            projected = to.allocate(hidden)
            to.free(attended, norm)
            gate = to.allocate(tokens * 11008 * 2 * HALF)
            up = to.allocate(tokens * 11008 * HALF)
            to.free(gate)
            down = to.allocate(hidden)
            to.free(up, projected, x)
            x = down
            to.use(to.random.choice([512, 2048, 65536]))
        logits = to.allocate(min(tokens, 256) * 32000 * SINGLE)
        to.use(to.sizes[logits])
        to.free(logits, x)
        to.end_iteration()


def training(
    to: Recorder,
    layers: int,
    width: int,
    *,
    lengths: tuple[int, int],
    batch: int,
    recomputes: bool,
) -> None:
    """A transformer is trained on batches of random lengths, with or without recomputation."""
    of_layer = [width * width * HALF] * 4 + [4 * width * width * HALF] * 2 + [width * HALF] * 4
    for size in of_layer * layers:
        to.allocate(size)
    moments = False
    for _ in range(30):
        length = to.random.randint(*lengths)
        hidden = batch * length * width * HALF
        embedded, kept = to.allocate(hidden), []
        for _ in range(layers):
            parts = [1] if recomputes else [1, 3, 1, 4, 4]
            kept.append([to.allocate(hidden * part) for part in parts])
            if not recomputes:
                kept[-1].append(to.allocate(batch * 8 * length * length))
                kept[-1].append(to.allocate(batch * length * SINGLE))
            to.use(hidden * 2)
        logits = to.allocate(batch * length * 50257 * HALF)
        losses = to.allocate(batch * length * 50257 * SINGLE)
        to.free(logits)
        gradient = to.allocate(hidden)
        to.free(losses)
        gradients = []
        for of_one in reversed(kept):
            again = [to.allocate(hidden * part) for part in (1, 3, 1, 4)] if recomputes else []
            inner = [to.allocate(hidden * 4), to.allocate(hidden * 3)]
            gradients += [to.allocate(size) for size in of_layer]
            to.free(*again, *of_one)
            before = to.allocate(hidden)
            to.free(*inner, gradient)
            gradient = before
        to.free(gradient, embedded)
        if not moments:
            moments = True
            for size in of_layer * layers:
                to.allocate(size * 2)
                to.allocate(size * 2)
        for block in gradients:
            to.use(to.sizes[block] * 2)
        to.free(*gradients)
        to.end_iteration()


def graphs(to: Recorder) -> None:
    """A graph network on samples whose nodes and edges never come again."""
    for _ in range(60):
        to.allocate(to.random.randint(1, 40) * MIB)
    for _ in range(80):
        nodes = int(to.random.lognormvariate(11.5, 0.6))
        edges = nodes * to.random.randint(5, 30)
        kept = []
        for _ in range(6):
            weights, messages = to.allocate(edges * 64), to.allocate(edges * 256)
            kept.append(to.allocate(nodes * 1024))
            to.free(weights)
            kept.append(to.allocate(nodes * 1024))
            to.free(messages)
            kept.append(to.allocate(nodes * SINGLE))
        for block in reversed(kept):
            gradient = to.allocate(to.sizes[block])
            to.use(edges * 256)
            to.free(block, gradient)
        to.end_iteration()


def experts(to: Recorder) -> None:
    """A mixture of sixteen experts in 24 layers: each expert gets another share of the tokens."""
    count = 16
    for _ in range(24 * count):
        to.allocate(3 * 4096 * 1408 * HALF)
    for _ in range(60):
        tokens = to.random.choice([4096, 8192])
        hidden = tokens * 2048 * HALF
        x, layers = to.allocate(hidden), []
        for _ in range(24):
            cuts = [0.0, *sorted(to.random.random() for _ in range(count - 1)), 1.0]
            kept = [to.allocate(hidden), to.allocate(tokens * count * SINGLE)]
            for first, last in zip(cuts, cuts[1:]):
                own = int(tokens * 2 * (last - first)) + 1
                kept += [to.allocate(own * 2048 * HALF), to.allocate(own * 1408 * 2 * HALF)]
                kept.append(to.allocate(own * 1408 * HALF))
                to.use(own * 2048 * HALF)
            layers.append(kept)
        for kept in reversed(layers):
            gradient = to.allocate(hidden)
            for block in reversed(kept):
                of_block = to.allocate(to.sizes[block])
                to.free(block, of_block)
            to.free(gradient)
        to.free(x)
        to.end_iteration()


def generate_and_train(to: Recorder) -> None:
    """Answers are generated, with keys and values that grow by copies; then they are trained on."""
    for _ in range(32):
        for mib in (32, 32, 86, 86):
            to.allocate(mib * MIB)
    for _ in range(12):
        batch = to.random.choice([16, 24, 32])
        cache = [to.allocate(batch * 128 * 1024 * SINGLE) for _ in range(64)]
        for step in range(1, 25):
            length = 128 + step * to.random.randint(16, 40)
            for layer, old in enumerate(cache):
                cache[layer] = to.allocate(batch * length * 1024 * SINGLE)
                to.free(old)
            logits = to.allocate(batch * 32000 * SINGLE)
            to.use(to.sizes[logits])
            to.free(logits)
        to.free(*cache)
        for _ in range(4):
            hidden = 4 * to.random.randint(300, 1100) * 4096 * HALF
            layers = [[to.allocate(hidden * part) for part in (1, 2, 1)] for _ in range(32)]
            logits = to.allocate(hidden * 16)
            to.use(hidden * 16)
            to.free(logits)
            for kept in reversed(layers):
                gradient = to.allocate(hidden * 3)
                to.free(*kept, gradient)
        to.end_iteration()


def buckets(to: Recorder) -> None:
    """Data-parallel training: gradients go out in buckets, on a second stream."""
    for _ in range(200):
        to.allocate(to.random.choice([2, 4, 8, 16, 36]) * MIB)
    for _ in range(40):
        length = to.random.randint(100, 512)
        kept = [to.allocate(length * to.random.choice([64, 128, 256]) * 1024) for _ in range(160)]
        sent = []
        for number, block in enumerate(reversed(kept)):
            gradient = to.allocate(to.sizes[block])
            to.free(block, gradient)
            if number % 20 == 0:
                bucket, reduced = to.allocate(25 * MIB), to.allocate(25 * MIB, stream=1)
                to.record_stream(bucket, 1)
                to.record_stream(reduced, 0)
                sent += [bucket, reduced]
        to.free(*sent)
        to.end_iteration()


def growing(to: Recorder) -> None:
    """A cache of results grows, and is halved now and then."""
    for _ in range(120):
        to.allocate(to.random.randint(1, 64) * MIB)
    kept: list[int] = []
    for iteration in range(200):
        scale = to.random.randint(1, 30)
        step = [to.allocate(to.random.randint(1, 20) * MIB * scale / 10) for _ in range(30)]
        if iteration % 2 == 0:
            kept.append(to.allocate(to.random.randint(1, 40) * MIB))
        to.free(*step)
        if iteration % 50 == 49:
            to.free(*kept[::2])
            kept = kept[1::2]
        to.end_iteration()
    to.free(*kept)


def caching(to: Recorder) -> None:
    """Results of random sizes are kept in a cache; a new one takes the place of random others."""
    room, kept_bytes = 12 << 30, 0
    kept: list[int] = []
    for entry in range(8000):
        size = int(min(400, to.random.lognormvariate(2, 1.3)) * MIB)
        while kept_bytes + size > room:
            place = to.random.randrange(len(kept))
            kept[place], kept[-1] = kept[-1], kept[place]
            kept_bytes -= to.sizes[kept[-1]]
            to.free(kept.pop())
        kept.append(to.allocate(size))
        kept_bytes += size
        if entry % 100 == 99:
            to.end_iteration()
    to.free(*kept)


def resolutions(to: Recorder) -> None:
    """A U-Net is trained on pictures of 64 shapes, in batches of one to four."""
    sides = (512, 576, 640, 704, 768, 832, 896, 1024)
    for _ in range(150):
        to.allocate(to.random.randint(1, 30) * MIB)
    for _ in range(60):
        pixels = to.random.choice(sides) * to.random.choice(sides) // 64
        bytes_of_channel = to.random.randint(1, 4) * pixels * HALF
        kept = []
        for level, channels in enumerate((320, 640, 1280, 1280)):
            size = bytes_of_channel * channels >> (2 * level)
            for _ in range(4):
                kept += [to.allocate(size), to.allocate(size)]
                to.use(size * 2)
                if level < 3:
                    to.use(size * 8)
        for block in reversed(kept):
            gradient = to.allocate(to.sizes[block])
            to.free(block, gradient)
        to.end_iteration()


def sharded(to: Recorder) -> None:
    """Weights are gathered layer by layer on a second stream; gradients go out on a third."""
    layers, width = 40, 4096
    weights = 12 * width * width * HALF
    for _ in range(layers):
        to.allocate(weights / 8)
    gathered: dict[int, int] = {}

    def gather(layer: int) -> None:
        if 0 <= layer < layers:
            gathered[layer] = to.allocate(weights, stream=1)
            to.record_stream(gathered[layer], 0)

    moments = False
    for _ in range(25):
        hidden = 2 * to.random.randint(512, 2048) * width * HALF
        x, kept = to.allocate(hidden), []
        gather(0)
        for layer in range(layers):
            gather(layer + 1)
            kept.append(x)
            inner = [to.allocate(hidden * part) for part in (1, 3, 1, 4)]
            x = to.allocate(hidden)
            to.free(*inner, gathered.pop(layer))
        gradient = to.allocate(hidden)
        gather(layers - 1)
        for layer in reversed(range(layers)):
            gather(layer - 1)
            inner = [to.allocate(hidden * part) for part in (1, 3, 1, 4)]
            whole, part = to.allocate(weights), to.allocate(weights / 8, stream=2)
            to.record_stream(whole, 2)
            to.record_stream(part, 0)
            before = to.allocate(hidden)
            to.free(gradient, *inner, gathered.pop(layer), whole, part, kept.pop())
            gradient = before
        to.free(gradient, x)
        if not moments:
            moments = True
            for _ in range(3 * layers):
                to.allocate(weights / 4)
        to.end_iteration()


def preferences(to: Recorder) -> None:
    """A model answers, two others are loaded to judge the answers, and the first is trained."""

    def load(mib: float) -> list[int]:
        return [to.allocate(mib * part * MIB) for _ in range(32) for part in (1, 1, 2.7, 2.7)]

    load(32)
    for _ in range(10):
        batch = to.random.choice([8, 16, 24])
        cache: list[int] = []
        for step in range(20):
            tokens = batch * (64 + step * 16 + to.random.randint(0, 8))
            longer = [to.allocate(tokens * 4096 * HALF) for _ in range(32)]
            to.free(*cache)
            cache = longer
            logits = to.allocate(batch * 32000 * SINGLE)
            to.use(to.sizes[logits])
            to.free(logits)
        to.free(*cache)
        for mib in (32, 20):
            judge = load(mib)
            hidden = batch * to.random.randint(200, 700) * 4096 * HALF
            x = to.allocate(hidden)
            for _ in range(32):
                inner = [to.allocate(hidden * part) for part in (1, 3, 2.7, 2.7, 1)]
                after = to.allocate(hidden)
                to.free(x, *inner)
                x = after
            to.free(x, *judge)
        hidden = 4 * to.random.randint(200, 700) * 4096 * HALF
        layers = [[to.allocate(hidden * part) for part in (1, 3, 1, 2.7, 2.7)] for _ in range(32)]
        gradients = []
        for kept in reversed(layers):
            gradient = to.allocate(hidden * 3)
            gradients.append(to.allocate(238 * MIB))
            to.free(*kept, gradient)
        to.free(*gradients)
        to.end_iteration()


def pictures(to: Recorder) -> None:
    """Pictures of 25 shapes are made in eight steps each, and decoded."""
    for _ in range(300):
        to.allocate(to.random.choice([1, 3, 6, 7, 13, 26]) * MIB)
    sides = (64, 80, 96, 112, 128)
    for _ in range(60):
        count = to.random.randint(1, 4)
        pixels = count * to.random.choice(sides) * to.random.choice(sides)
        for _ in range(8):
            kept = []
            for level, channels in enumerate((320, 640, 1280, 1280)):
                size = 2 * pixels * channels * HALF >> (2 * level)
                for _ in range(3):
                    kept.append(to.allocate(size))
                    to.use(size * 2)
            to.free(*kept)
        x = to.allocate(pixels * 512 * HALF)
        for larger, channels in ((1, 512), (4, 512), (16, 256), (64, 128)):
            for _ in range(3):
                inner = to.allocate(pixels * larger * channels * HALF)
                after = to.allocate(pixels * larger * channels * HALF)
                to.free(x, inner)
                x = after
        to.use(pixels * 64 * 3 * SINGLE)
        to.free(x)
        to.end_iteration()


def points(to: Recorder) -> None:
    """Sparse convolutions over clouds of points: each layer keeps another share of them."""
    for _ in range(100):
        to.allocate(to.random.randint(1, 12) * MIB)
    for _ in range(60):
        count, kept = to.random.randint(50_000, 400_000), []
        for channels in (32, 64, 128, 256, 512):
            count = int(count * to.random.uniform(0.3, 0.9))
            for _ in range(3):
                neighbours = to.allocate(count * 27 * 8)
                kept.append(to.allocate(count * channels * SINGLE))
                gathered = to.allocate(count * to.random.uniform(3, 9) * channels * SINGLE)
                kept.append(to.allocate(count * channels * SINGLE))
                to.free(gathered)
                kept.append(neighbours)
        for block in reversed(kept):
            gradient = to.allocate(to.sizes[block])
            to.use(to.sizes[block] * to.random.uniform(1, 4))
            to.free(block, gradient)
        to.end_iteration()


def index(to: Recorder) -> None:
    """A search in one large table, which grows by copies."""
    mib = 500
    table = to.allocate(mib * MIB)
    for _ in range(20):
        to.allocate(30 * MIB)
    for iteration in range(60):
        queries = to.random.randint(16, 256)
        for _ in range(6):
            scores, best = to.allocate(queries * mib * 1024), to.allocate(queries * 8000)
            to.use(queries * mib * 512)
            to.free(scores, best)
        if iteration % 3 == 2:
            mib += to.random.randint(20, 200)
            larger = to.allocate(mib * MIB)
            to.free(table)
            table = larger
        to.end_iteration()


def pipeline(to: Recorder) -> None:
    """A stage of a pipeline: up to five batches are under way, and the oldest ends first."""
    of_layer = (32, 32, 32, 32, 128, 128)
    for _ in range(10):
        for mib in of_layer:
            to.allocate(mib * MIB)
    under_way: list[list[int]] = []

    def go_back() -> None:
        for block in reversed(under_way.pop(0)):
            gradient = to.allocate(to.sizes[block])
            to.free(block, gradient)

    moments = False
    for _ in range(25):
        for _ in range(24):
            hidden = to.random.randint(400, 2048) * 4096 * HALF
            parts = (1, 3, 1, 1, 4, 4)
            under_way.append([to.allocate(hidden * part) for _ in range(10) for part in parts])
            to.use(hidden * 2)
            if len(under_way) > 4:
                go_back()
        while under_way:
            go_back()
        if not moments:
            moments = True
            for _ in range(20):
                for mib in of_layer:
                    to.allocate(2 * mib * MIB)
        to.end_iteration()


def beams(to: Recorder) -> None:
    """Translation by beam search: keys and values are copied twice at each step."""
    for _ in range(24):
        for mib in (8, 8, 8, 8, 32, 32):
            to.allocate(mib * MIB)
    for _ in range(30):
        count, source = to.random.randint(1, 12), to.random.randint(20, 400)
        rows = count * to.random.choice([4, 8]) * 1024 * HALF
        encoded = to.allocate(count * source * 1024 * HALF)
        crossed = [to.allocate(rows * source) for _ in range(48)]
        cache = [to.allocate(rows) for _ in range(48)]
        for length in range(2, to.random.randint(20, 120)):
            for layer, old in enumerate(cache):
                longer = to.allocate(rows * length)
                to.free(old)
                cache[layer] = to.allocate(rows * length)
                to.free(longer)
            logits = to.allocate(rows * 100)
            to.use(rows * 100)
            to.free(logits)
        to.free(encoded, *crossed, *cache)
        to.end_iteration()


def accumulating(to: Recorder) -> None:
    """Gradients of four batches are added up; now and then there is an evaluation."""
    of_layer = [mib * MIB for mib in (8, 8, 8, 8, 32, 32, 0.1, 0.1)]
    for size in of_layer * 30:
        to.allocate(size)
    gradients: list[int] = []
    moments = False
    for iteration in range(60):
        hidden = 8 * to.random.randint(100, 1024) * 2048 * HALF
        layers = [[to.allocate(hidden * part) for part in (1, 3, 1, 4, 4)] for _ in range(30)]
        is_first = not gradients
        for kept in reversed(layers):
            gradient = to.allocate(hidden * 3)
            of_weights = [to.allocate(size) for size in of_layer]
            if is_first:
                gradients += of_weights
            else:
                to.free(*of_weights)
            to.free(*kept, gradient)
        if iteration % 4 == 3:
            if not moments:
                moments = True
                for size in of_layer * 30:
                    to.allocate(size * 2)
                    to.allocate(size * 2)
            to.free(*gradients)
            gradients = []
        if iteration % 12 == 11:
            for _ in range(8):
                hidden = 32 * to.random.randint(100, 1024) * 2048 * HALF
                x = to.allocate(hidden)
                for _ in range(30):
                    inner = [to.allocate(hidden * part) for part in (1, 3, 1, 2)]
                    after = to.allocate(hidden)
                    to.free(x, *inner)
                    x = after
                to.free(x)
        to.end_iteration()


PROGRAMS: dict[str, Callable[[Recorder], None]] = {
    "serving": serving,
    "training": lambda to: training(to, 24, 2048, lengths=(64, 1024), batch=8, recomputes=False),
    "recomputing": lambda to: training(to, 32, 3072, lengths=(128, 2048), batch=4, recomputes=True),
    "graphs": graphs,
    "experts": experts,
    "generate_and_train": generate_and_train,
    "buckets": buckets,
    "growing": growing,
    "resolutions": resolutions,
    "caching": caching,
    "sharded": sharded,
    "preferences": preferences,
    "pictures": pictures,
    "points": points,
    "index": index,
    "pipeline": pipeline,
    "beams": beams,
    "accumulating": accumulating,
}


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FOLDER")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, program) in enumerate(PROGRAMS.items()):
        recorder = Recorder(seed)
        program(recorder)
        (folder / f"{name}.gtr").write_bytes(recorder.records)


if __name__ == "__main__":
    main()
