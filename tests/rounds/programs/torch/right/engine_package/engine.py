from torch import nn


class Strategy:
    def before_step(self, engine):
        pass


class Engine:
    def __init__(self, module, optimizer, strategy=None):
        self.module = module
        self.optimizer = optimizer
        self.strategy = strategy or Strategy()
        self.last_norm = None

    def forward(self, x, y):
        return nn.functional.cross_entropy(self.module(x), y)

    def finish(self):
        self.strategy.before_step(self)
        self.optimizer.step()

    def train_step(self, x, y):
        loss = self.forward(x, y)
        self.module.zero_grad()
        loss.backward()
        self.finish()
        return loss.item()
