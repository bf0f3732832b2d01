"""Train a small ResNet with mixed precision."""

import argparse

import torch
import torch.nn as nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader


def train_epoch(model, loader: DataLoader, optimizer, scaler, args):
    model.train()
    for images, labels in loader:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda"):
            loss = nn.functional.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = clip_grad_norm_(
            model.parameters(),
            args.max_norm,  # 1.0 in the paper
        )
        scaler.step(optimizer)
        scaler.update()
        print(f"loss {loss.item():.3f}  norm {norm:.3f}")


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-norm", type=float, default=1.0)
    return parser.parse_args()
