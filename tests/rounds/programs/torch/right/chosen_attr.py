import torch
from torch import nn
import torchvision
model = torchvision.models.resnet18()
base = [p for n, p in model.named_parameters() if not n.startswith("fc.")]
opt = torch.optim.SGD([{"params": base}, {"params": model.fc.parameters(), "lr": 0.1}], lr=0.01)
for _ in range(10):
    opt.zero_grad()
    model(torch.randn(2, 3, 64, 64)).pow(2).mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
