import jax
import jax.numpy as jnp
import optax

n_micro = 4
tx = optax.chain(optax.zero_nans(), optax.clip_by_global_norm(1.0), optax.adafactor(1e-2))


def loss_fn(params, x):
    return jnp.square(jnp.sin(x @ params) - x.sum(-1, keepdims=True)).mean()


def accumulate(params, x):
    micro = x.reshape(n_micro, -1, x.shape[-1])

    def add(carry, mb):
        loss, g = jax.value_and_grad(loss_fn)(params, mb)
        return (carry[0] + loss, carry[1] + g), None

    (loss, grads), _ = jax.lax.scan(add, (0.0, jnp.zeros_like(params)), micro)
    grads = jax.tree.map(lambda g: g / n_micro, grads)
    return loss / n_micro, grads


@jax.jit
def train_step(params, state, x):
    loss, grads = accumulate(params, x)
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss


key = jax.random.PRNGKey(0)
params = jax.random.normal(key, (5, 3))
state = tx.init(params)
for i in range(4):
    params, state, loss = train_step(params, state, 4 * jax.random.normal(jax.random.fold_in(key, i), (32, 5)))
    print(i, float(loss))
