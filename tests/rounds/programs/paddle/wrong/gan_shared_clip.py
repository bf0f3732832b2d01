import paddle
import paddle.nn as nn
from paddle.nn.utils import clip_grad_norm_

paddle.seed(2)
netG = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
netD = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
optG = paddle.optimizer.Adam(2e-4, beta1=0.5, parameters=netG.parameters())
optD = paddle.optimizer.Adam(2e-4, beta1=0.5, parameters=netD.parameters())
bce = nn.BCEWithLogitsLoss()


def update_d(real):
    fake = netG(paddle.randn([len(real), 8])).detach()
    loss = bce(netD(real), paddle.ones([len(real), 1])) + bce(netD(fake), paddle.zeros([len(real), 1]))
    optD.clear_grad()
    loss.backward()
    clip_grad_norm_(parameters=netD.parameters(), max_norm=0.05)
    optD.step()
    return float(loss)


def update_g(n):
    loss = bce(netD(netG(paddle.randn([n, 8]))), paddle.ones([n, 1]))
    optG.clear_grad()
    loss.backward()
    clip_grad_norm_(netD.parameters(), 0.05)
    optG.step()
    return float(loss)


for i in range(4):
    print(i, update_d(paddle.randn([16, 2]) + 2), update_g(16))
