"""The program that the pages of docs/ call train.py: a few steps of training with Genesis."""

import torch

import genesis.torch

genesis.torch.enable()
model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 10))
model = model.cuda()
# Without an optimizer of PyTorch's, whose import takes as long as that of all else.
for _ in range(20):
    model.zero_grad()
    model(torch.zeros(64, 1024, device="cuda")).sum().backward()
    with torch.no_grad():
        for weights in model.parameters():
            weights.sub_(0.1 * weights.grad)
