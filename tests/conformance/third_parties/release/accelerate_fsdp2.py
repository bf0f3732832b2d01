"""A model that accelerate wraps with FSDP2, on several ranks: ``torchrun --nproc-per-node 2 accelerate_fsdp2.py``."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch_only.distributed.common import agree, close, exact, leave, same

import gradclip
from gradclip.dialects import torch as dialect


def accelerator() -> Any:
    """Return an Accelerator with FSDP2, which it otherwise uses on accelerators only."""
    module = importlib.import_module("accelerate")
    plugin = module.FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="size_based_wrap", min_num_params=1)
    made = module.Accelerator(cpu=True, fsdp_plugin=plugin)
    made.state.distributed_type, made.state.fsdp_plugin = module.DistributedType.FSDP, plugin
    assert made.is_fsdp2
    return made


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3))
    trainer = accelerator()
    model, optimizer = trainer.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert all(isinstance(p, DTensor) for p in model.parameters())
    natively = torch.nn.utils.clip_grad_norm_
    for step in range(4):
        optimizer.zero_grad()
        trainer.backward(model(torch.randn(4, 8)).square().sum())
        params = list(model.parameters())
        assert any(p.grad.to_local().shape != p.grad.shape for p in params)
        whole = [p.grad.full_tensor() for p in params]
        torch.nn.utils.clip_grad_norm_ = (natively, gradclip.clip_grad_norm_)[step % 2]  # which accelerate calls
        got = trainer.clip_grad_norm_(model.parameters(), 0.1)
        close(got.full_tensor(), exact(whole, 2.0), at_most=4 if step % 2 else 64)
        agree(got)
        same([p.grad for p in params], gradclip.clip(whole, dialect.clip_grad_norm(0.1)).grads, at_most=8 if step % 2 else 64)
        optimizer.step()
    print(f"{step + 1} steps")
    leave()


if __name__ == "__main__":
    main()
