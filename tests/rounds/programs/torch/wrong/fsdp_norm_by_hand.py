import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("nccl")
model = FSDP(build_model().cuda())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

for tokens in loader:
    loss = model(tokens.cuda()).loss
    loss.backward()
    total = torch.zeros((), device="cuda")
    for p in model.parameters():
        if p.grad is not None:
            total += p.grad.detach().float().pow(2).sum()
    norm = total.sqrt()
    coef = torch.clamp(1.0 / (norm + 1e-6), max=1.0)
    for p in model.parameters():
        if p.grad is not None:
            p.grad.mul_(coef)
    optimizer.step()
    optimizer.zero_grad()
