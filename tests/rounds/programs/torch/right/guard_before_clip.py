import logging
import sys

import torch
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
log = logging.getLogger("train")


class EMA:
    def __init__(self, beta=0.9):
        self.beta, self.value = beta, None

    def update(self, x):
        self.value = x if self.value is None else self.beta * self.value + (1 - self.beta) * x
        return self.value


def train(net, data, factor=5.0):
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    typical = EMA()
    for i, (x, y) in enumerate(data):
        opt.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        total_norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        if typical.value is not None and total_norm > factor * typical.value:
            log.info("batch %d skipped, norm %.2f", i, total_norm)
            continue
        typical.update(float(total_norm))
        opt.step()
        log.info("batch %d loss %.3f norm %.2f", i, loss.item(), total_norm)


torch.manual_seed(2)
data = [(torch.randn(16, 4), torch.randn(16, 1)) for _ in range(6)]
data[4] = (data[4][0] * 100, data[4][1])
train(nn.Linear(4, 1), data)
