"""The ways in which PyTorch gets the memory of regions."""
