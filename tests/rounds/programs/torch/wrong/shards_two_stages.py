import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Tagger(nn.Module):
    def __init__(self, words, width, tags):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, tags)

    def forward(self, x):
        return self.head(self.lstm(self.embed(x))[0])


def clip(model, limit):
    local = [p.grad.to_local() for p in model.parameters() if p.grad is not None]
    norm = nn.utils.get_total_norm(local)
    nn.utils.clip_grads_with_norm_(model.parameters(), limit, norm)
    return norm


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
    torch.manual_seed(0)
    model = Tagger(100, 32, 7)
    fully_shard(model, mesh=mesh)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(20):
        x = torch.randint(100, (8, 12))
        opt.zero_grad()
        nn.functional.cross_entropy(model(x).flatten(0, 1), (x % 7).flatten()).backward()
        norm = clip(model, 0.1)
        opt.step()
        print(dist.get_rank(), step, norm.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
