import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
batches = [(torch.randn(16, 3), torch.randn(16, 1)) for _ in range(6)]
batches[1][0][3, 1] = float("inf")

skipped = 0
for n, (x, y) in enumerate(batches):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if torch.isnan(norm) or torch.isinf(norm):
        skipped += 1
        continue
    optimizer.step()
    print(n, loss.item(), norm.item())
print("skipped", skipped)
