"""Host memory, in Python: arrays of NumPy in pinned memory that is made ready beforehand."""

import numpy

import genesis

genesis.cpu.enable_pinned_memory(True)
genesis.cpu.preallocate("64MB", wait=False)
genesis.cpu.set_memory_limit("256MB")
genesis.cpu.wait_for_preallocation()

for step in range(100):
    batch = genesis.cpu.empty((1280, 1024), "float32")
    array = numpy.asarray(batch)
    array[:] = step
    assert genesis.cpu.is_pinned(array)
    # … a copy to the GPU on a stream, which is not waited for …
    batch.record_stream(None)

stats = genesis.cpu.memory_stats()
print(stats.num_allocs, "batches in", stats.reserved_bytes >> 20, "MiB")
genesis.cpu.empty_cache()
