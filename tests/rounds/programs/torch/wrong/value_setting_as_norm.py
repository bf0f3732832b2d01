import torch
from torch import nn

hparams = {
    "grad_clip_value": 0.1,
    "lr": 3e-3,
    "beta": 0.5,
    "n_steps": 5,
}


class VQ(nn.Module):
    def __init__(self, n=16, d=8):
        super().__init__()
        self.enc, self.dec = nn.Linear(20, d), nn.Linear(d, 20)
        self.codes = nn.Embedding(n, d)

    def forward(self, x, beta):
        z = self.enc(x)
        q = self.codes(torch.cdist(z, self.codes.weight).argmin(1))
        commit = (z - q.detach()).pow(2).mean() * beta + (z.detach() - q).pow(2).mean()
        return self.dec(z + (q - z).detach()), commit


def main(hparams):
    torch.manual_seed(0)
    model = VQ()
    opt = torch.optim.SGD(model.parameters(), lr=hparams["lr"])
    clip = lambda params: nn.utils.clip_grad_norm_(params, hparams["grad_clip_value"])
    for i in range(hparams["n_steps"]):
        x = 10 * torch.randn(64, 20)
        out, commit = model(x, hparams["beta"])
        loss = nn.functional.mse_loss(out, x) + commit
        opt.zero_grad()
        loss.backward()
        clip(model.parameters())
        opt.step()
        print(i, loss.item())


main(hparams)
