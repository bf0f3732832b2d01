import paddle
from paddle import nn
enc, dec = nn.Linear(4, 8), nn.Linear(8, 4)
clip = nn.ClipGradByGlobalNorm(1.0)
enc_opt = paddle.optimizer.Adam(1e-3, parameters=enc.parameters())
dec_opt = paddle.optimizer.Adam(1e-3, parameters=dec.parameters(), grad_clip=clip)
for _ in range(5):
    x = paddle.randn([8, 4])
    loss = (dec(enc(x)) - x).square().mean()
    loss.backward()
    enc_opt.step()
    dec_opt.step()
    enc_opt.clear_grad()
    dec_opt.clear_grad()
