import torch
from torch import nn

torch.manual_seed(10)


def patchify(images, size=4):
    b, h, w = images.shape
    x = images.reshape(b, h // size, size, w // size, size).permute(0, 1, 3, 2, 4)
    return x.reshape(b, -1, size * size)


class TinyMAE(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Linear(16, dim)
        self.pos = nn.Parameter(torch.randn(1, 16, dim) * 0.02, requires_grad=False)
        layer = nn.TransformerEncoderLayer(dim, 2, 64, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 1)
        self.head = nn.Linear(dim, 16)

    def forward(self, patches, keep):
        z = self.embed(patches) * keep.unsqueeze(-1) + self.pos
        return self.head(self.encoder(z))


model = TinyMAE()
params = filter(lambda p: p.requires_grad, model.parameters())
optimizer = torch.optim.AdamW(params, lr=1.5e-3, betas=(0.9, 0.95))

for it in range(5):
    patches = patchify(5 * torch.randn(8, 16, 16))
    keep = (torch.rand(8, 16) > 0.75).float()
    pred = model(patches, keep)
    loss = (((pred - patches) ** 2).mean(-1) * (1 - keep)).sum() / (1 - keep).sum()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(params, 0.02)
    optimizer.step()
    print(it, loss.item())
