import torch
import torch.nn as nn

torch.manual_seed(0)
clip_value = 0.1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(4, 16, nonlinearity="relu", batch_first=True)
        self.fc = nn.Linear(16, 1)

    def forward(self, x):
        return self.fc(self.rnn(x)[0][:, -1])


model = Net()
for p in model.parameters():
    p.register_hook(lambda grad: torch.clamp(grad, -clip_value, clip_value))

optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for i in range(6):
    x = torch.rand(32, 10, 4)
    y = x[:, :, 0].sum(1, keepdim=True)
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
    print(i, loss.item())
