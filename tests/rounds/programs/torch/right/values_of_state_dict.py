import torch

model = torch.nn.RNN(4, 8)
opt = torch.optim.SGD(model.parameters(), lr=1.0)
for x in sequences:
    opt.zero_grad()
    model(x)[0].sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    opt.step()
