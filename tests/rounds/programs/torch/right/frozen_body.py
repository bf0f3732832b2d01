import torch
class Trainer:
    def __init__(self, model, head):
        self.model = model
        self.model.fc = head
        for p in self.model.parameters():
            p.requires_grad = False
        for p in self.model.fc.parameters():
            p.requires_grad = True
        self.opt = torch.optim.Adam(filter(lambda p: p.requires_grad, self.model.parameters()))
    def fit(self, loader):
        for x, y in loader:
            self.opt.zero_grad()
            torch.nn.functional.mse_loss(self.model(x), y).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
