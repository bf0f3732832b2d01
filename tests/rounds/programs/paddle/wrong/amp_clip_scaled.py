import paddle
import paddle.nn as nn


class Trainer:
    def __init__(self, model, max_norm=1.0, lr=1e-3):
        self.model = model
        self.max_norm = max_norm
        self.opt = paddle.optimizer.AdamW(lr, parameters=model.parameters())
        self.scaler = paddle.amp.GradScaler(enable=True, init_loss_scaling=1024.0)

    def backward(self, loss):
        self.scaler.scale(loss).backward()

    def update(self):
        paddle.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        self.scaler.step(self.opt)
        self.scaler.update()
        self.opt.clear_grad()

    def train(self, batches):
        for i, (x, y) in enumerate(batches):
            with paddle.amp.auto_cast(enable=False):
                loss = nn.functional.mse_loss(self.model(x), y)
            self.backward(loss)
            self.update()
            print(i, float(loss))


if __name__ == "__main__":
    paddle.seed(1)
    batches = [(paddle.randn([16, 4]), paddle.randn([16, 1])) for _ in range(4)]
    Trainer(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))).train(batches)
