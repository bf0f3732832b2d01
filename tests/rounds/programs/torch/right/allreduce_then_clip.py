import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import clip_grad_norm_


class DistributedTrainer:
    def __init__(self, model, clip=1.0, lr=0.01):
        self.model = model
        self.clip = clip
        self.opt = torch.optim.SGD(model.parameters(), lr=lr)
        for p in model.parameters():
            dist.broadcast(p.data, 0)

    def reduce(self):
        flat = torch.cat([p.grad.view(-1) for p in self.model.parameters()])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        offset = 0
        for p in self.model.parameters():
            p.grad.copy_(flat[offset : offset + p.numel()].view_as(p))
            offset += p.numel()

    def step(self, x, y):
        self.opt.zero_grad()
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        self.reduce()
        clip_grad_norm_(self.model.parameters(), self.clip)
        self.opt.step()
        return loss.item()


def worker(rank, world):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29513", rank=rank, world_size=world)
    torch.manual_seed(rank)
    trainer = DistributedTrainer(nn.Linear(4, 1))
    for _ in range(10):
        x = torch.randn(16, 4)
        trainer.step(x, x.sum(1, keepdim=True))


if __name__ == "__main__":
    torch.multiprocessing.spawn(worker, args=(2,), nprocs=2)
