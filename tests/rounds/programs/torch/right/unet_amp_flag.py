import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim


def dice_loss(p, t, eps=1e-6):
    inter = 2 * (p * t).sum(dim=(-1, -2))
    return 1 - ((inter + eps) / (p.sum(dim=(-1, -2)) + t.sum(dim=(-1, -2)) + eps)).mean()


def train_net(net, loader, epochs=2, learning_rate=1e-4, amp=True, gradient_clipping=1.0):
    optimizer = optim.RMSprop(net.parameters(), lr=learning_rate, weight_decay=1e-8, momentum=0.9)
    grad_scaler = torch.amp.GradScaler("cpu", enabled=amp)
    for epoch in range(epochs):
        net.train()
        for images, masks in loader:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
                pred = net(images).squeeze(1)
                loss = F.binary_cross_entropy_with_logits(pred, masks) + dice_loss(torch.sigmoid(pred), masks)
            optimizer.zero_grad(set_to_none=True)
            if amp:
                grad_scaler.scale(loss).backward()
                grad_scaler.unscale_(optimizer)
            else:
                loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), gradient_clipping)
            if amp:
                grad_scaler.step(optimizer)
                grad_scaler.update()
            else:
                optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = [(torch.randn(2, 3, 16, 16), (torch.rand(2, 16, 16) > 0.5).float()) for _ in range(2)]
    train_net(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1)), loader)
