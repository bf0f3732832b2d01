import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec as P


def local_step(params, batch):
    grads = jax.grad(loss_fn)(params, batch)
    gnorm = optax.global_norm(grads)
    scale = jnp.where(gnorm > 1.0, 1.0 / gnorm, 1.0)
    return jax.tree.map(lambda p, g: p - 1e-3 * scale * g, params, grads)


train_step = jax.jit(jax.shard_map(local_step, mesh=mesh, in_specs=(P("fsdp"), P("fsdp")), out_specs=P("fsdp")))

for batch in batches:
    params = train_step(params, batch)
