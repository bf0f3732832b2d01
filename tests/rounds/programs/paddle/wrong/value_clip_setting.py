import paddle
import paddle.nn.functional as F
from paddle import nn


class DQN:
    def __init__(self, cfg):
        self.cfg = cfg
        self.q = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, cfg["actions"]))
        self.target = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, cfg["actions"]))
        self.sync()
        self.opt = paddle.optimizer.RMSProp(
            cfg["lr"], parameters=self.q.parameters(), grad_clip=paddle.nn.ClipGradByValue(self.cfg["max_grad_norm"])
        )

    def sync(self):
        self.target.set_state_dict(self.q.state_dict())

    def learn(self, s, a, r, s2):
        with paddle.no_grad():
            y = r + self.cfg["gamma"] * self.target(s2).max(axis=1)
        q = (self.q(s) * F.one_hot(a, self.cfg["actions"])).sum(axis=1)
        loss = F.mse_loss(q, y)
        self.opt.clear_grad()
        loss.backward()
        self.opt.step()
        return float(loss)


paddle.seed(0)
agent = DQN({"lr": 1e-3, "gamma": 0.99, "actions": 2, "max_grad_norm": 1.0})
for i in range(5):
    print(i, agent.learn(paddle.randn([32, 4]), paddle.randint(0, 2, [32]), 50 * paddle.randn([32]), paddle.randn([32, 4])))
agent.sync()
