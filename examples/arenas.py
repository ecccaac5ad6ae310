"""Scratch memory of a step, in Python: arrays of NumPy in arenas, pools and a manager."""

import numpy

import genesis

arena = genesis.Arena("pageable")
kept = None
for step in range(100):
    with arena:
        batch = numpy.asarray(arena.empty((64, 1024), "float32"))
        batch[:] = step
        if step == 50:
            kept = batch
assert kept is not None and (kept == 50).all()  # what outlives a reset keeps its memory
print(arena.stats().resets, "steps")

pool = genesis.FixedPool("4KB", 100, memory="pinned")
page = numpy.asarray(pool.empty((32, 32), "float32"))
print(pool.stats().live_blocks, "block of", pool.stats().blocks)

manager = genesis.MemoryManager({64: 1000, 128: 500}, arena_size="1MB", memory="pageable")
buffers = [manager.allocate(size) for size in (50, 100, 5000)]
print(manager.stats())
