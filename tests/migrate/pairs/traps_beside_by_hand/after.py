import gradclip
import jax
import jax.numpy as jnp
import optax
import torch.distributed as dist
from gradclip.dialects import optax as optax_rules


def replica(params, state, batch, tx):
    grads = jax.grad(loss_fn)(params, batch)
    grads = gradclip.clip(grads, optax_rules.clip_by_global_norm(1)).grads
    grads = jax.lax.pmean(grads, "i")
    updates, state = tx.update(grads, state)
    return optax.apply_updates(params, updates), state


def rank(model, opt, loss):
    opt.zero_grad()
    loss.backward()
    for p in model.parameters():
        gradclip.clip_grad_value_(p, 1.0)
    for p in model.parameters():
        dist.all_reduce(p.grad)
    opt.step()
