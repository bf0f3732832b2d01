"""Wrong uses: a type checker has an error in each line that says so, and in no other."""

import numpy as np
import torch

import gradclip
from gradclip import dialects
from gradclip.backends.torch import step_pre_hook

model = torch.nn.Linear(2, 1)
rule = dialects.torch.clip_grad_norm(1.0)
grads = [np.ones(2)]

gradclip.clip(model, rule)  # error
gradclip.clip_(model, rule)  # error
gradclip.clip_grad_norm_(model, 1.0)  # error
gradclip.clip_grad_value_(model, 1.0)  # error
gradclip.clip_by_global_norm(model, 1.0)  # error
gradclip.get_total_norm(model)  # error
gradclip.clip_grad_norm_(model.parameters(), rule)  # error
gradclip.clip_grad_norm_(model.parameters())  # error
gradclip.clip_grad_norm_(model.parameters(), model)  # error
gradclip.clip_by_norm(grads, 1.0)  # error
gradclip.clip_by_norm(grads[0], rule)  # error
gradclip.clip_by_global_norm(grads[0], 1.0)  # error
gradclip.ClipGradByNorm(rule)  # error
gradclip.clip(grads, 1.0)  # error
gradclip.clip(grads, [rule])  # error
gradclip.clip(grads)  # error
dialects.torch.clip_grad_norm(grads)  # error
dialects.keras.clipnorm(rule)  # error
dialects.optax.clip_by_global_norm("1.0")  # error
gradclip.Group("encoder.*", rule)  # error
gradclip.Group(rule, 3)  # error
gradclip.Step(1.0)  # error
step_pre_hook(1.0)  # error
gradclip.clipped(torch.optim.SGD(model.parameters(), lr=1.0), 1.0)  # error
print(gradclip.clip(grads, rule).gradients)  # error
print(gradclip.clip(grads, rule).grads["w"])  # error
print(gradclip.Monitor().update(gradclip.clip(grads, rule)).grads[0].shpae)  # error
