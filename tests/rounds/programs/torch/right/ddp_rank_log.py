import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group(backend="gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1)))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    accumulate = 2
    for i in range(40):
        opt.zero_grad()
        for micro in range(accumulate):
            x = torch.randn(8, 10)
            sync = micro == accumulate - 1
            if sync:
                loss = (model(x) - x.mean(1, keepdim=True)).pow(2).mean() / accumulate
                loss.backward()
            else:
                with model.no_sync():
                    loss = (model(x) - x.mean(1, keepdim=True)).pow(2).mean() / accumulate
                    loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if rank == 0 and i % 10 == 0:
            print(i, loss.item(), norm.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
