import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)

x = torch.linspace(-3, 3, 200).unsqueeze(1)
y = torch.sin(2 * x) * 5

model = nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)

epochs = 8
clip = 1.0
losses = []

for epoch in range(epochs):
    perm = torch.randperm(len(x))
    epoch_loss = 0
    for idx in perm.split(50):
        pred = model(x[idx])
        loss = F.mse_loss(pred, y[idx])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        epoch_loss += loss.item()
    scheduler.step()
    losses.append(epoch_loss / 4)
    print(f"{epoch}: {losses[-1]:.4f}")
