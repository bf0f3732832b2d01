import contextlib
import torch
from torch import nn

@contextlib.contextmanager
def optimizer_step(model, opt, limit):
    opt.zero_grad()
    yield
    nn.utils.clip_grad_norm_(model.parameters(), limit)
    opt.step()

def main():
    model = nn.Linear(4, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        x, y = torch.randn(8, 4), torch.randn(8, 1)
        with optimizer_step(model, opt, 1.0):
            nn.functional.mse_loss(model(x), y).backward()
main()
