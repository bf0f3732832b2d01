import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 8))
optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}


def update(param):
    nn.utils.clip_grad_value_([param], 0.05)
    optimizers[param].step()
    optimizers[param].zero_grad()


for param in model.parameters():
    param.register_post_accumulate_grad_hook(update)

for i in range(5):
    x = torch.randn(32, 8)
    loss = (model(x) - 3 * x.flip(1)).pow(2).sum(1).mean()
    loss.backward()
    print(i, loss.item())
