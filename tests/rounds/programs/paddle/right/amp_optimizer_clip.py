import paddle
import paddle.nn as nn


def create_optimizer(model, lr=1e-3, max_grad_norm=0.5):
    clip = nn.ClipGradByGlobalNorm(max_grad_norm) if max_grad_norm > 0 else None
    return paddle.optimizer.AdamW(lr, parameters=model.parameters(), grad_clip=clip)


def train(model, optimizer, steps=4, use_amp=True):
    scaler = paddle.amp.GradScaler(enable=use_amp, init_loss_scaling=2.0**10)
    for i in range(steps):
        x = paddle.randn([16, 6])
        with paddle.amp.auto_cast(enable=False):
            loss = nn.functional.l1_loss(model(x), 9 * x[:, :2])
        scaled = scaler.scale(loss)
        scaled.backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
        print(i, float(loss))


if __name__ == "__main__":
    paddle.seed(6)
    net = nn.Sequential(nn.Linear(6, 24), nn.Swish(), nn.Linear(24, 2))
    train(net, create_optimizer(net))
