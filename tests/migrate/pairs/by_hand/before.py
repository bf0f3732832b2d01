import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf
import torch

for dparam in [dWxh, dWhh, dWhy, dbh, dby]:
    np.clip(dparam, -5, 5, out=dparam)
for d in [dWxh, dWhh]:
    d = d / n
    np.clip(d, -5, 5, out=d)
clipped = jax.tree_util.tree_map(lambda g: jnp.clip(g, -c, c), grads)
for p in model.parameters():
    p.grad.data.clamp_(-1, 1)
    p.register_hook(lambda grad: torch.clamp(grad, -1.0, 2.0))
    p.grad.clamp_(-args.max_norm, args.max_norm)
coefficient = max_norm / (total_norm + 1e-6)
if coefficient < 1:
    for p in model.parameters():
        p.grad.mul_(coefficient)
scale = max_grad_norm / norm
grads = [g * scale for g in grads]
grads = [g * min(1.0, clip_norm / np.linalg.norm(g)) for g in grads]
for param, dparam in zip([Wxh, Whh, Why, bh, by], [dWxh, dWhh, dWhy, dbh, dby]):
    param -= learning_rate * dparam
params = optax.apply_updates(params, clipped)
