import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = torch.nn.Embedding(10, 8)
        self.rnn = torch.nn.LSTM(8, 8)
        self.out = torch.nn.Linear(8, 10)
net = Net()
opt = torch.optim.Adam(net.parameters())
for x, y in data:
    opt.zero_grad()
    net(x, y).backward()
    torch.nn.utils.clip_grad_norm_(net.rnn.parameters(), 5.0)
    opt.step()
