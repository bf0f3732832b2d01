import enum
import torch
from torch import nn

class Events(enum.Enum):
    BACKWARD_DONE = 1
    STEP_DONE = 2

class Engine:
    def __init__(self):
        self.handlers = {e: [] for e in Events}
    def on(self, event):
        def register(fn):
            self.handlers[event].append(fn)
            return fn
        return register
    def emit(self, event, **kw):
        for fn in self.handlers[event]:
            fn(**kw)

engine = Engine()
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters())

@engine.on(Events.BACKWARD_DONE)
def clip_gradients(max_norm=1.0, **kw):
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)

def train(loader):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        engine.emit(Events.BACKWARD_DONE)
        optimizer.step()
        engine.emit(Events.STEP_DONE)

train([(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(10)])
