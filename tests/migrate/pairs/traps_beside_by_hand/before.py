import jax
import jax.numpy as jnp
import optax
import torch.distributed as dist


def replica(params, state, batch, tx):
    grads = jax.grad(loss_fn)(params, batch)
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in jax.tree_util.tree_leaves(grads)))
    grads = jax.tree_util.tree_map(lambda g: g * jnp.minimum(1.0, 1.0 / norm), grads)
    grads = jax.lax.pmean(grads, "i")
    updates, state = tx.update(grads, state)
    return optax.apply_updates(params, updates), state


def rank(model, opt, loss):
    opt.zero_grad()
    loss.backward()
    for p in model.parameters():
        p.grad.data.clamp_(-1.0, 1.0)
    for p in model.parameters():
        dist.all_reduce(p.grad)
    opt.step()
