"""From the days of PyTorch 0.3."""

import torch


def step(encoder, decoder, loss, optimizer):
    loss.backward()
    torch.nn.utils.clip_grad_norm(encoder.parameters(), 50.0)
    torch.nn.utils.clip_grad_norm(decoder.parameters(), 50.0)
    optimizer.step()
