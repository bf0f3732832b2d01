import paddle
from paddle import nn


class Trainer:
    def __init__(self, model, lr=0.05, max_grad_norm=0.2):
        self.model = model
        self.max_grad_norm = max_grad_norm
        self.opt = paddle.optimizer.SGD(lr, parameters=model.parameters())

    def clip(self):
        for p in self.model.parameters():
            if p.grad is not None:
                paddle.nn.utils.clip_grad_norm_([p], self.max_grad_norm)

    def step(self, x, y):
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.clip()
        self.opt.step()
        self.opt.clear_grad()
        return float(loss)


def main():
    paddle.seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    trainer = Trainer(model)
    for i in range(4):
        x = 5 * paddle.randn([16, 8])
        print(i, trainer.step(x, x[:, :4].argmax(axis=1)))


main()
