import torch
from torch import nn


class UncertaintyLoss(nn.Module):
    def __init__(self, n_tasks):
        super().__init__()
        self.log_vars = nn.Parameter(torch.zeros(n_tasks))

    def forward(self, losses):
        total = 0
        for i, loss in enumerate(losses):
            total = total + torch.exp(-self.log_vars[i]) * loss + self.log_vars[i]
        return total


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.depth = nn.Linear(32, 1)
        self.seg = nn.Linear(32, 4)

    def forward(self, x):
        z = self.body(x)
        return self.depth(z), self.seg(z)


def fit(net, weigh, batches):
    opt = torch.optim.Adam([*net.parameters(), *weigh.parameters()], lr=1e-3)
    history = []
    for x, d, s in batches:
        opt.zero_grad(set_to_none=True)
        depth, seg = net(x)
        loss = weigh([nn.functional.mse_loss(depth, d), nn.functional.cross_entropy(seg, s)])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=1.0)
        opt.step()
        history.append(float(loss))
    return history


if __name__ == "__main__":
    torch.manual_seed(3)
    batches = [(torch.randn(16, 8), 30 * torch.randn(16, 1), torch.randint(0, 4, (16,))) for _ in range(4)]
    print(fit(TwoHeads(), UncertaintyLoss(2), batches))
