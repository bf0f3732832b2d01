import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("data",))
clip = optax.clip_by_global_norm(0.5)
opt = optax.adam(1e-2)


def loss_fn(params, x, y):
    logits = jax.nn.gelu(x @ params["in"]) @ params["out"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).sum()


def local_grads(params, x, y):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
    grads, _ = clip.update(grads, clip.init(params))
    grads = jax.lax.psum(grads, "data")
    return jax.lax.psum(loss, "data"), grads


sharded = jax.shard_map(local_grads, mesh=mesh, in_specs=(P(), P("data"), P("data")), out_specs=(P(), P()), check_vma=False)


@jax.jit
def train_step(params, state, x, y):
    loss, grads = sharded(params, x, y)
    updates, state = opt.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss


key = jax.random.key(0)
params = {"in": jax.random.normal(key, (8, 16)) * 0.3, "out": jax.random.normal(key, (16, 4)) * 0.3}
state = opt.init(params)
for i in range(4):
    x = jax.random.normal(jax.random.fold_in(key, i), (32, 8))
    y = jnp.argmax(x[:, :4], axis=1)
    params, state, loss = train_step(params, state, x, y)
    print(i, float(loss) / 32)
