import torch


def clip_(params, max_norm):
    norm = torch.norm(torch.stack([p.grad.norm() for p in params]))
    coef = norm / max_norm
    if norm > max_norm:
        for p in params:
            p.grad.mul_(coef)


model = torch.nn.Linear(3, 3)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x in xs:
    opt.zero_grad()
    model(x).sum().backward()
    clip_(list(model.parameters()), 1.0)
    opt.step()
