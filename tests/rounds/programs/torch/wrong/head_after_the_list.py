import torch
import torch.nn as nn
from torchvision.models import resnet50

net = resnet50(pretrained=True)
params = list(net.parameters())
opt = torch.optim.SGD(params, lr=0.01, momentum=0.9)
net.fc = nn.Linear(2048, 37)
net.cuda()

for images, labels in train_loader:
    out = net(images.cuda())
    loss = nn.functional.cross_entropy(out, labels.cuda())
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(params, max_norm=2.0)
    opt.step()
