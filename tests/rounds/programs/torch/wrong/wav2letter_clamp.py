import torch
from torch import nn

GRAD_CLIP = 0.01
torch.manual_seed(1)


class Acoustic(nn.Module):
    def __init__(self, mels=13, n_chars=6):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(mels, 32, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv1d(32, 32, 5, padding=2), nn.ReLU(),
        )
        self.out = nn.Conv1d(32, n_chars, 1)

    def forward(self, x):
        return self.out(self.conv(x)).permute(2, 0, 1).log_softmax(-1)


def collate(n=4):
    feats = torch.randn(n, 13, 60)
    targets = torch.randint(1, 6, (n, 8))
    return feats, targets, torch.full((n,), 30), torch.full((n,), 8)


model = Acoustic()
ctc = nn.CTCLoss(zero_infinity=True)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9, nesterov=True)

for i in range(5):
    feats, targets, in_len, out_len = collate()
    loss = ctc(model(feats), targets, in_len, out_len)
    optimizer.zero_grad()
    loss.backward()
    for param in model.parameters():
        if param.grad is not None:
            torch.clamp(param.grad, -GRAD_CLIP, GRAD_CLIP)
    optimizer.step()
    print(i, loss.item())
