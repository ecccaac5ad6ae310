"""Programs that use a model, or keep results."""

from __future__ import annotations

from recorder import HALF, MIB, SINGLE, Recorder


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
