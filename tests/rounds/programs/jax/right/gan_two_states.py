import jax
import jax.numpy as jnp
import optax

G_TX = optax.chain(optax.clip_by_global_norm(0.1), optax.adam(1e-4, b1=0.0))
D_TX = optax.adam(4e-4, b1=0.0)


def gen(p, z):
    return jax.nn.relu(z @ p["a"]) @ p["b"]


def disc(p, x):
    return (jax.nn.leaky_relu(x @ p["a"]) @ p["b"]).squeeze(-1)


def d_loss(dp, gp, x, z):
    fake = gen(gp, z)
    r1 = jax.vmap(jax.grad(lambda xi: disc(dp, xi[None])[0]))(x)
    return jax.nn.softplus(-disc(dp, x)).mean() + jax.nn.softplus(disc(dp, fake)).mean() + 5 * jnp.square(r1).sum(1).mean()


def g_loss(gp, dp, z):
    return jax.nn.softplus(-disc(dp, gen(gp, z))).mean()


@jax.jit
def step(gp, dp, gs, ds, x, z):
    d_up, ds = D_TX.update(jax.grad(d_loss)(dp, gp, x, z), ds, dp)
    dp = optax.apply_updates(dp, d_up)
    g_up, gs = G_TX.update(jax.grad(g_loss)(gp, dp, z), gs, gp)
    return optax.apply_updates(gp, g_up), dp, gs, ds


k = jax.random.split(jax.random.PRNGKey(0), 4)
gp = {"a": jax.random.normal(k[0], (4, 16)), "b": jax.random.normal(k[1], (16, 2))}
dp = {"a": jax.random.normal(k[2], (2, 16)), "b": jax.random.normal(k[3], (16, 1))}
gs, ds = G_TX.init(gp), D_TX.init(dp)
for i in range(3):
    key = jax.random.fold_in(k[0], i)
    gp, dp, gs, ds = step(gp, dp, gs, ds, jax.random.normal(key, (32, 2)) + 4, jax.random.normal(key, (32, 4)))
print(gp["b"].mean(), dp["b"].mean())
