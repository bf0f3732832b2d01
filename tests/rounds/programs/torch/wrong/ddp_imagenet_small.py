import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def build_loader(batch_size):
    data = TensorDataset(torch.randn(512, 3 * 8 * 8), torch.randint(0, 10, (512,)))
    sampler = DistributedSampler(data)
    return DataLoader(data, batch_size=batch_size, sampler=sampler), sampler


def train_one_epoch(model, loader, criterion, optimizer, epoch, args):
    model.train()
    for i, (images, target) in enumerate(loader):
        output = model(images)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        if dist.get_rank() == 0:
            norm = nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad)
            if i % args.print_freq == 0:
                print(f"epoch {epoch} it {i} loss {loss.item():.3f} grad {norm:.3f}")
        optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--clip-grad", type=float, default=1.0)
    parser.add_argument("--print-freq", type=int, default=10)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(int(os.environ.get("SEED", 0)))
    model = DDP(nn.Sequential(nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader, sampler = build_loader(args.batch_size)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train_one_epoch(model, loader, nn.CrossEntropyLoss(), optimizer, epoch, args)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
