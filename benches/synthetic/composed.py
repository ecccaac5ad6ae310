"""Programs composed at random: of parts that programs consist of, in any order and of any sizes.

They are no programs that anybody runs. They are there to find what a policy is bad at.
"""

from __future__ import annotations

from typing import Callable

from recorder import Recorder

GIB = 1 << 30
# A part takes at most so much of what the weights leave.
LARGEST_PART = 0.45
# A program is long enough after so many blocks.
MOST_BLOCKS = 40_000

Sizes = Callable[[], float]
Part = Callable[[list[float]], None]


def compose(to: Recorder) -> None:
    """One program, another one for each seed."""
    Composed(to).run()


class Composed:
    """A program of random parts."""

    def __init__(self, to: Recorder) -> None:
        self.to, self.random = to, to.random
        self.room = 2 ** self.random.uniform(29.5, 36)  # bytes
        self.streams = self.random.choice([1, 1, 1, 2, 2, 3, 5])
        # How often a block is used on another stream, too.
        self.shares = self.random.choice([0, 0, 0.05, 0.3])
        kinds = [self.nested, self.nested, self.queued, self.scattered, self.cached]
        kinds += [self.copied, self.temporary, self.exchanged, self.loaded]
        self.parts: list[Part] = self.random.choices(kinds, k=self.random.randint(1, 4))
        self.sizes = [self.drawn(int(2 ** self.random.uniform(3, 8))) for _ in self.parts]
        # How much sizes differ between iterations.
        self.variations = [self.random.choice([0, 0, 0.02, 0.3, 0.8]) for _ in self.parts]

    def run(self) -> None:
        count = int(2 ** self.random.uniform(3, 9))
        weights = self.fitting(self.drawn(count), self.room * self.random.uniform(0.05, 0.6))
        for size in weights:
            self.to.allocate(size)
        room = (self.room - sum(weights)) * LARGEST_PART
        has_moments = self.random.random() < 0.4
        keeps = self.random.choice([0, 0, 0, 1, 3])
        kept: list[int] = []
        for iteration in range(self.random.choice([10, 20, 40])):
            scale = self.random.uniform(0.6, 1)
            for part, sizes, variation in zip(self.parts, self.sizes, self.variations):
                part(self.fitting(self.varied(sizes, variation, scale), room))
            if has_moments and iteration == 1:
                for size in weights[: count // 2]:
                    self.to.allocate(size * 0.3)
            for _ in range(keeps):
                kept.append(self.to.allocate(512 + self.random.choice(self.sizes[0]) * 0.02))
            if len(kept) > 12 * keeps:
                self.to.free(kept.pop(self.random.randrange(len(kept))))
            self.to.end_iteration()
            if self.to.blocks > MOST_BLOCKS:
                break

    def drawn(self, count: int) -> list[float]:
        """So many sizes of one distribution."""
        random = self.random
        top = 2 ** random.uniform(22, 30)
        few = [random.uniform(0.01, 1) * top for _ in range(random.randint(2, 9))]
        width = random.choice([1024, 1536, 2048, 3072, 4096, 5120])
        spread, largest = random.uniform(0.4, 2), int(random.uniform(24, 29))
        of_layer = [width * 2, width * width * 2, width * width * 8, width * 11008]
        laws: list[Sizes] = [
            lambda: 2 ** random.randint(9, largest),
            lambda: random.uniform(0.02, 1) * top,
            lambda: min(2 * GIB, random.lognormvariate(0, spread) * top / 8),
            lambda: random.choice(few),
            lambda: random.choice(of_layer),
        ]
        law = random.choice(laws)
        return [law() for _ in range(count)]

    def varied(self, sizes: list[float], variation: float, scale: float) -> list[float]:
        if variation == 0:
            return sizes
        if variation < 0.1:
            return [size * scale for size in sizes]
        return [size * self.random.uniform(1 - variation, 1 + variation) for size in sizes]

    @staticmethod
    def fitting(sizes: list[float], room: float) -> list[float]:
        """The sizes, made smaller if they are more than ``room`` bytes together."""
        scale = min(1, room / sum(sizes))
        return [max(512, size * scale) for size in sizes]

    def allocate(self, size: float, stream: int = 0) -> int:
        if stream == 0 and self.random.random() < 0.3:
            stream = self.random.randrange(self.streams)
        block = self.to.allocate(size, stream)
        if self.streams > 1 and self.random.random() < self.shares:
            self.to.record_stream(block, (stream + 1) % self.streams)
        return block

    def nested(self, sizes: list[float]) -> None:
        """There and back again, as in training."""
        kept = []
        for size in sizes:
            kept.append(self.allocate(size))
            if self.random.random() < 0.5:
                self.to.free(self.allocate(size * self.random.choice([0.1, 0.5, 1, 2])))
        for block in reversed(kept):
            gradient = self.allocate(self.to.sizes[block])
            self.to.free(block, gradient)

    def queued(self, sizes: list[float]) -> None:
        """The oldest ends first."""
        queue: list[int] = []
        for size in sizes:
            queue.append(self.allocate(size))
            if len(queue) > max(2, len(sizes) // 3):
                self.to.free(queue.pop(0))
        self.to.free(*queue)

    def scattered(self, sizes: list[float]) -> None:
        """Any block ends next."""
        live: list[int] = []
        for size in sizes:
            live.append(self.allocate(size))
            if len(live) > len(sizes) // 2:
                self.to.free(live.pop(self.random.randrange(len(live))))
        self.random.shuffle(live)
        self.to.free(*live)

    def cached(self, sizes: list[float]) -> None:
        """Keys and values grow by copies."""
        sizes = sizes[:24]
        cache = [self.allocate(size * 0.05) for size in sizes]
        for step in range(1, self.random.choice([8, 16, 20])):
            for layer, size in enumerate(sizes):
                longer = self.allocate(size * (0.05 + step * 0.05))
                self.to.free(cache[layer])
                cache[layer] = longer
            self.to.free(self.allocate(sizes[0]))
        self.to.free(*cache)

    def copied(self, sizes: list[float]) -> None:
        """One block is made of the one before it."""
        last = self.allocate(sizes[0])
        for size in sizes[1:]:
            after = self.allocate(size)
            self.to.free(last)
            last = after
        self.to.free(last)

    def temporary(self, sizes: list[float]) -> None:
        for size in sizes:
            first, second = self.allocate(size), self.allocate(size * 0.5)
            self.to.free(first)
            third = self.allocate(size * 0.25)
            self.to.free(second, third)

    def exchanged(self, sizes: list[float]) -> None:
        """Streams take turns, and use what the one before them has made."""
        sent: list[int] = []
        for number, size in enumerate(sizes):
            stream = number % self.streams
            sent.append(self.to.allocate(size, stream))
            if self.streams > 1:
                self.to.record_stream(sent[-1], (stream + 1) % self.streams)
            if len(sent) > 8:
                self.to.free(sent.pop(0))
        self.to.free(*sent)

    def loaded(self, sizes: list[float]) -> None:
        """One model takes the place of another."""
        first = [self.allocate(size) for size in sizes]
        work = [self.allocate(size * 0.3) for size in sizes[: len(sizes) // 2]]
        self.to.free(*first)
        second = [self.allocate(size * 0.9) for size in sizes]
        self.to.free(*work, *second)
