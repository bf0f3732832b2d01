import torch
from torch import nn

def zero(s): s["opt"].zero_grad()
def forward(s): s["loss"] = nn.functional.mse_loss(s["model"](s["x"]), s["y"])
def backward(s): s["loss"].backward()
def clip(s): nn.utils.clip_grad_norm_(s["model"].parameters(), 1.0)
def step(s): s["opt"].step()

PIPELINE = [zero, forward, backward, step, clip]

def train(model, data):
    state = {"model": model, "opt": torch.optim.SGD(model.parameters(), lr=0.1)}
    for x, y in data:
        state["x"], state["y"] = x, y
        for stage in PIPELINE:
            stage(state)
train(nn.Linear(4, 1), [(torch.randn(8, 4), torch.randn(8, 1))] * 4)
