import torch
import torch.distributed as dist
from torch import nn


class ColumnParallel(nn.Module):
    def __init__(self, d_in, d_out, world):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d_out // world, d_in) / d_in**0.5)
        self.weight.is_sharded = True

    def forward(self, x):
        return x @ self.weight.T


class RowParallel(nn.Module):
    def __init__(self, d_in, d_out, world):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d_out, d_in // world) / d_in**0.5)
        self.weight.is_sharded = True

    def forward(self, x):
        y = x @ self.weight.T
        dist.all_reduce(y)
        return y


class Block(nn.Module):
    def __init__(self, d, world):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.mlp = nn.Sequential(ColumnParallel(d, 4 * d, world), nn.GELU(), RowParallel(4 * d, d, world))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


def clip(params, max_norm):
    norm = nn.utils.get_total_norm([p.grad for p in params])
    nn.utils.clip_grads_with_norm_(params, max_norm, norm)
    return norm


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = Block(32, dist.get_world_size())
    params = list(model.parameters())
    opt = torch.optim.Adam(params, lr=1e-3)
    for step in range(20):
        gen = torch.Generator().manual_seed(step)
        loss = model(torch.randn(8, 32, generator=gen)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        clip(params, 0.5)
        opt.step()


if __name__ == "__main__":
    main()
