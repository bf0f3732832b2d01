import torch


class ClippedAdamW(torch.optim.AdamW):
    def __init__(self, params, max_norm=1.0, **kwargs):
        super().__init__(params, **kwargs)
        self.max_norm = max_norm
        self.grad_norm = None

    def step(self, closure=None):
        params = [p for group in self.param_groups for p in group["params"]]
        self.grad_norm = torch.nn.utils.clip_grad_norm_(params, self.max_norm)
        return super().step(closure)


def build_optimizer(model, name, **kwargs):
    kinds = {"adamw": torch.optim.AdamW, "clipped": ClippedAdamW}
    return kinds[name](model.parameters(), **kwargs)
