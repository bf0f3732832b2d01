import gradclip
import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf
import torch
from gradclip.dialects import torch as torch_rules

for dparam in [dWxh, dWhh, dWhy, dbh, dby]:
    gradclip.clip_(dparam, torch_rules.clip_grad_value(5))
for d in [dWxh, dWhh]:
    d = d / n
    np.clip(d, -5, 5, out=d)
clipped = jax.tree_util.tree_map(lambda g: gradclip.clip_by_value(g, -c, c), grads)
for p in model.parameters():
    gradclip.clip_grad_value_(p, 1)
    p.register_hook(lambda grad: gradclip.clip_by_value(grad, -1.0, 2.0))
    p.grad.clamp_(-args.max_norm, args.max_norm)
coefficient = max_norm / (total_norm + 1e-6)
if coefficient < 1:
    for p in model.parameters():
        p.grad.mul_(coefficient)
scale = max_grad_norm / norm
grads = [g * scale for g in grads]
grads = [gradclip.clip_by_norm(g, clip_norm) for g in grads]
for param, dparam in zip([Wxh, Whh, Why, bh, by], [dWxh, dWhh, dWhy, dbh, dby]):
    param -= learning_rate * dparam
params = optax.apply_updates(params, clipped)
