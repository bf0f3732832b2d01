import jax
import jax.numpy as jnp
import optax


def optimizer(lr, limit=0.5):
    return optax.chain(optax.clip_by_global_norm(limit), optax.adam(lr))


policy_tx, value_tx = optimizer(3e-4), optimizer(1e-3, limit=1.0)


def policy_loss(p, obs, act, adv):
    logp = jax.nn.log_softmax(obs @ p)
    return -(jnp.take_along_axis(logp, act[:, None], 1)[:, 0] * adv).mean()


def value_loss(v, obs, ret):
    return jnp.square(obs @ v - ret).mean()


@jax.jit
def update(state, obs, act, ret):
    p, v, ps, vs = state
    grads_v = jax.grad(value_loss)(v, obs, ret)
    updates, vs = value_tx.update(grads_v, vs)
    v = optax.apply_updates(v, updates)
    grads_p = jax.grad(policy_loss)(p, obs, act, ret - obs @ v)
    updates, ps = policy_tx.update(grads_p, ps)
    return optax.apply_updates(p, updates), v, ps, vs


key = jax.random.PRNGKey(0)
p, v = 0.1 * jax.random.normal(key, (4, 2)), jnp.zeros(4)
state = p, v, policy_tx.init(p), value_tx.init(v)
for i in range(4):
    obs = jax.random.normal(jax.random.fold_in(key, i), (64, 4))
    state = update(state, obs, (obs[:, 0] > 0).astype(int), 20 * obs[:, 0])
print(state[1])
