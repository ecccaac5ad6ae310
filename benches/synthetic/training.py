"""Programs that train a model."""

from __future__ import annotations

from recorder import HALF, MIB, SINGLE, Recorder


def transformer(
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
