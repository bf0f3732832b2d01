import paddle
from paddle import nn


def build_model(hidden):
    return nn.Sequential(nn.Linear(3, hidden), nn.ReLU(), nn.Linear(hidden, 1))


def build_optimizer(optim_cfg, model):
    optim_cfg = dict(optim_cfg)
    name = optim_cfg.pop("name")
    clip = nn.ClipGradByGlobalNorm(optim_cfg.get("clip_norm", 0.0))
    optim_cfg.pop("clip_norm", None)
    return getattr(paddle.optimizer, name)(parameters=model.parameters(), grad_clip=clip, **optim_cfg)
