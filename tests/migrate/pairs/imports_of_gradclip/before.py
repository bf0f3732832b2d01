import gradclip as gc
import torch


def clip(model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    gc.clip_grad_value_(model.parameters(), 1.0)
