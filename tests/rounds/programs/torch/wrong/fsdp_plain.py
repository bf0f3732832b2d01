import argparse
import functools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


def setup():
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank())


def train(args):
    model = nn.Sequential(*[Block(args.dim) for _ in range(args.layers)])
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=100_000)
    model = FSDP(model, auto_wrap_policy=policy, device_id=torch.cuda.current_device())
    optim = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for it in range(args.iters):
        x = torch.randn(args.batch, args.dim, device="cuda")
        loss = model(x).pow(2).mean()
        optim.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
        optim.step()
        if dist.get_rank() == 0 and it % 10 == 0:
            print(it, loss.item())


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--dim", type=int, default=512)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--iters", type=int, default=100)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--grad-clip", type=float, default=1.0)
    setup()
    train(p.parse_args())
