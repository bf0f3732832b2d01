import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def grad_norm(params):
    total = torch.zeros((), device="cuda")
    for p in params:
        if p.grad is not None:
            total += p.grad.to_local().float().pow(2).sum()
    return total.sqrt()


def clip(params, limit):
    norm = grad_norm(params)
    if norm > limit:
        for p in params:
            p.grad.to_local().mul_(limit / norm)
    return norm


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank())
    model = nn.Sequential(*[Layer(256) for _ in range(4)]).cuda()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    params = list(model.parameters())
    opt = torch.optim.AdamW(params, lr=1e-4)
    for step in range(50):
        loss = model(torch.randn(16, 256, device="cuda")).square().mean()
        loss.backward()
        norm = clip(params, 1.0)
        opt.step()
        opt.zero_grad()
        if dist.get_rank() == 0:
            print(step, loss.item(), norm.item())


main()
