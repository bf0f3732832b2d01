import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def sharded_grad_norm(model):
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    total = torch.zeros((), device="cuda")
    for g in grads:
        total += g.float().pow(2).sum()
    dist.all_reduce(total)
    return total.sqrt(), grads


def clip_(model, max_norm):
    norm, grads = sharded_grad_norm(model)
    coef = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for g in grads:
        g.mul_(coef)
    return norm


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank())
    model = FSDP(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(100):
        x = torch.randn(16, 256, device="cuda")
        loss = (model(x) - x).pow(2).mean()
        loss.backward()
        norm = clip_(model, 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        if dist.get_rank() == 0:
            print(step, loss.item(), norm.item())


if __name__ == "__main__":
    main()
