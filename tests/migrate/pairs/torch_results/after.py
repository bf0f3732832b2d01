"""What is done with the norm."""

import math

import gradclip
import torch


def train(model, optimizer, loss, args, log):
    loss.backward()
    gradclip.clip_grad_norm_(model.parameters(), args.clip)
    norm = gradclip.clip_grad_norm_(model.parameters(), args.clip)
    log["norm"] = gradclip.clip_grad_norm_(model.parameters(), args.clip).item()
    if not torch.isfinite(gradclip.clip_grad_norm_(model.parameters(), args.clip)):
        return math.nan
    if args.clip > 0:
        total = gradclip.clip_grad_norm_(model.parameters(), args.clip)
    else:
        total = gradclip.clip_grad_norm_(model.parameters(), float("inf"))  # to measure only
    optimizer.step()
    print(norm, total)


def clip(model, args):
    return gradclip.clip_grad_norm_(model.parameters(), args.clip) if args.clip else None
