"""PyTorch's own tests of memory, run with its allocator and with Genesis: :mod:`suite.run`."""
