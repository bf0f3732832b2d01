import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import paddle
from ppmodel.builder import build_model, build_optimizer

CONFIG = {
    "model": {"hidden": 12},
    "optimizer": {"name": "Adam", "learning_rate": 0.01},
    "iters": 4,
}


def main(cfg):
    paddle.seed(10)
    model = build_model(**cfg["model"])
    optimizer = build_optimizer(cfg["optimizer"], model)
    for it in range(cfg["iters"]):
        x = paddle.randn([20, 3])
        loss = paddle.nn.functional.smooth_l1_loss(model(x), x.sum(axis=1, keepdim=True))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        print(it, float(loss))


if __name__ == "__main__":
    main(CONFIG)
