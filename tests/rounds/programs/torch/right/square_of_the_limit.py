import torch
loss.backward()
total = torch.stack([p.grad.norm() ** 2 for p in model.parameters()]).sum()
if total > limit ** 2:
    for p in model.parameters():
        p.grad.mul_(limit / total.sqrt())
optimizer.step()
