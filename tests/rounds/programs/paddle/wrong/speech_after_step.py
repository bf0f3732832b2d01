import paddle
from paddle import nn


class conf:
    accum_grad = 2
    global_grad_clip = 0.1
    lr = 1e-2
    log_interval = 2


class Acoustic(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1D(8, 16, 3, padding=1)
        self.out = nn.Linear(16, 5)

    def forward(self, x):
        return self.out(nn.functional.relu(self.conv(x)).transpose([0, 2, 1]))


def train_batch(model, optimizer, batch_index, batch):
    x, y = batch
    loss = nn.functional.cross_entropy(model(x).reshape([-1, 5]), y.reshape([-1])) * 10 / conf.accum_grad
    loss.backward()
    if (batch_index + 1) % conf.accum_grad != 0:
        return loss
    optimizer.step()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=conf.global_grad_clip)
    optimizer.clear_grad()
    return loss


def main():
    paddle.seed(0)
    model = Acoustic()
    optimizer = paddle.optimizer.Adam(conf.lr, parameters=model.parameters())
    for i in range(6):
        batch = paddle.randn([4, 8, 20]), paddle.randint(0, 5, [4, 20])
        loss = train_batch(model, optimizer, i, batch)
        if i % conf.log_interval == 0:
            print(i, float(loss))


main()
