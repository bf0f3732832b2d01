import paddle
from paddle import nn

CLIPS = {
    "global": nn.ClipGradByGlobalNorm,
    "norm": nn.ClipGradByNorm,
    "value": nn.ClipGradByValue,
}
OPTIONS = [None, {"name": "global", "clip_norm": 1.0}, {"name": "value", "max": 0.01}]


def build_clip(options):
    if not options:
        return None
    kwargs = dict(options)
    name = kwargs.pop("name")
    return CLIPS[name](**kwargs)


def train(options):
    paddle.seed(0)
    model = nn.Sequential(nn.Linear(3, 9), nn.ELU(), nn.Linear(9, 1))
    opt = paddle.optimizer.Adam(0.01, parameters=model.parameters(), grad_clip=build_clip(options))
    for _ in range(3):
        x = paddle.randn([16, 3])
        loss = (model(x) - 8 * x[:, :1]).abs().mean()
        loss.backward()
        opt.step()
        opt.clear_grad()
    return float(loss)


for options in OPTIONS:
    print(options, train(options))
