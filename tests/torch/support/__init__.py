"""What the PyTorch tests share: programs in processes of their own, models, the simulated GPU."""
