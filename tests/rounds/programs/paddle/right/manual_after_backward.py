import paddle
import paddle.nn.functional as F
from paddle import nn


class Learner:
    def __init__(self, net, lr=0.01, clip_by="norm", limit=1.0):
        self.net = net
        self.opt = paddle.optimizer.SGD(lr, parameters=net.parameters())
        self.clip_by, self.limit = clip_by, limit

    def clip(self):
        if self.clip_by == "norm":
            nn.utils.clip_grad_norm_(self.net.parameters(), self.limit)
        elif self.clip_by == "value":
            nn.utils.clip_grad_value_(self.net.parameters(), self.limit)

    def learn(self, x, y):
        loss = F.mse_loss(self.net(x), y)
        loss.backward()
        if self.clip_by is not None:
            self.clip()
        self.opt.step()
        self.opt.clear_grad()
        return float(loss)


for by in ("norm", "value", None):
    paddle.seed(0)
    learner = Learner(nn.Sequential(nn.Linear(2, 8), nn.Sigmoid(), nn.Linear(8, 1)), clip_by=by, limit=0.2)
    for _ in range(3):
        x = paddle.randn([32, 2])
        value = learner.learn(x, 5 * x[:, :1])
    print(by, value)
