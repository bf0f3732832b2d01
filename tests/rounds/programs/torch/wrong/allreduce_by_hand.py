import torch
import torch.distributed as dist
from torch import nn

cfg = {"lr": 0.05, "clip": 1.0, "steps": 20}


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        if param.grad is None:
            continue
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size


def run(rank, size):
    torch.manual_seed(1234)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg["lr"], momentum=0.5)
    gen = torch.Generator().manual_seed(rank)
    for step in range(cfg["steps"]):
        x = torch.randn(32, 6, generator=gen)
        y = x.sum(1, keepdim=True) * 3
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), cfg["clip"])
        average_gradients(model)
        optimizer.step()
        if rank == 0:
            print("step", step, "loss", loss.item())


def init(rank, size, fn):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29511", rank=rank, world_size=size)
    fn(rank, size)


if __name__ == "__main__":
    torch.multiprocessing.spawn(init, args=(2, run), nprocs=2)
