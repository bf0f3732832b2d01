import torch


class LM(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(1000, 64)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(64, 64) for _ in range(4)])
        self.head = torch.nn.Linear(64, 1000)

    def forward(self, ids):
        h = self.embed(ids)
        for layer in self.layers:
            h = layer(h).relu()
        return self.head(h)


lm = LM()
opt = torch.optim.AdamW(lm.parameters(), lr=1e-3)
for ids, labels in data:
    loss = torch.nn.functional.cross_entropy(lm(ids).flatten(0, 1), labels.flatten())
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(lm.layers.parameters(), 1.0)
    opt.step()
