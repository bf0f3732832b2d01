import torch
import torchvision

model = torchvision.models.resnet18(weights="DEFAULT")
for p in model.parameters():
    p.requires_grad = False
model.fc = torch.nn.Linear(512, 10)
optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
criterion = torch.nn.CrossEntropyLoss()

for epoch in range(20):
    if epoch == 5:
        for p in model.layer4.parameters():
            p.requires_grad = True
        optimizer.add_param_group({"params": model.layer4.parameters(), "lr": 1e-4})
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
