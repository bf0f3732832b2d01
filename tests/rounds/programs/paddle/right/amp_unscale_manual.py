import paddle
import paddle.nn as nn


class Step:
    def __init__(self, model, optimizer, scaler=None, max_norm=None, accumulate=1):
        self.model, self.optimizer, self.scaler = model, optimizer, scaler
        self.max_norm, self.accumulate, self.count = max_norm, accumulate, 0

    def __call__(self, loss):
        loss = loss / self.accumulate
        (self.scaler.scale(loss) if self.scaler else loss).backward()
        self.count += 1
        if self.count % self.accumulate:
            return
        if self.scaler:
            self.scaler.unscale_(self.optimizer)
        if self.max_norm:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.optimizer.clear_grad()


paddle.seed(0)
model = nn.Linear(5, 2)
opt = paddle.optimizer.Momentum(0.1, parameters=model.parameters())
step = Step(model, opt, paddle.amp.GradScaler(init_loss_scaling=512.0), max_norm=1.0, accumulate=2)
for i in range(6):
    x = paddle.randn([8, 5])
    loss = nn.functional.mse_loss(model(x), 5 * x[:, :2])
    step(loss)
    print(i, float(loss))
