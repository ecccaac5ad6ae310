"""The programs that torch_memory_saver's own tests run, ``examples``: the package on the registry
has its tests, and not these. Each is named as there and does what the test of it is about, on the
simulated GPU, where copies work and other kernels compute nothing."""
