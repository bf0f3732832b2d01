import torch


class Module:
    def step(self, accelerator, fabric, model, optimizer):
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        self.clip_gradients(optimizer, gradient_clip_val=1.0)
        self.clip_grad_norm_(1.0)
        model.clip_grad_norm_(1.0)
        self.model.clip_grad_norm_(1.0)

    def clip_grad_norm_(self, max_norm):
        return torch.zeros(max_norm)
