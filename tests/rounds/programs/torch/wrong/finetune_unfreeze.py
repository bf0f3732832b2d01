import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(7)
UNFREEZE_AT = 2
EPOCHS = 4


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(10, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU())
        self.head = nn.Linear(64, 3)

    def forward(self, x):
        return self.head(self.backbone(x))


model = Classifier()
for p in model.backbone.parameters():
    p.requires_grad = False

params = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(params, lr=1e-3)

x = 10 * torch.randn(64, 10)
y = torch.randint(0, 3, (64,))

for epoch in range(EPOCHS):
    if epoch == UNFREEZE_AT:
        for p in model.backbone.parameters():
            p.requires_grad = True
        optimizer.add_param_group({"params": model.backbone.parameters(), "lr": 1e-4})
    for xb, yb in zip(x.split(16), y.split(16)):
        loss = F.cross_entropy(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(params, 0.1)
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
