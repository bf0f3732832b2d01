from torch.nn.utils import clip_grad_norm_


class OptimHook:
    def after_batch(self, runner):
        runner.optimizer.step()


class ClipHook:
    def __init__(self, max_norm):
        self.max_norm = max_norm

    def after_batch(self, runner):
        clip_grad_norm_(runner.model.parameters(), self.max_norm)
