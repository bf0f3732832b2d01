import itertools

import paddle

nets = {"backbone": paddle.nn.Linear(4, 4), "head": paddle.nn.Linear(4, 1)}
opt = paddle.optimizer.AdamW(1e-3, parameters=[{"params": n.parameters(), "weight_decay": 0.1} for n in nets.values()])
everything = list(itertools.chain.from_iterable(n.parameters() for n in nets.values()))
for _ in range(3):
    nets["head"](nets["backbone"](paddle.ones([2, 4]))).mean().backward()
    paddle.nn.utils.clip_grad_norm_(everything, 1.0)
    opt.step()
    opt.clear_grad()
print(float(nets["head"].bias.sum()))
