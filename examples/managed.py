"""Memory larger than the device, worked through in parts, in Python (GENESIS_MANAGED)."""

import genesis

_, total = genesis.memory_info(0)
arena = genesis.Arena("device")
parts = [arena.allocate(total // 4) for _ in range(8)]
for part in parts:
    # The part comes in one go, and makes room when it is done.
    genesis.managed.prefetch(part)
    # … kernels …
    genesis.managed.prefetch(part, genesis.managed.HOST)
stats = genesis.stats(0)
print(stats.oversubscribed_bytes >> 20, "MiB beyond the device")
print(genesis.memory_manager.optimize())
