import argparse

import jax
import jax.numpy as jnp
import optax

parser = argparse.ArgumentParser()
parser.add_argument("--micro", type=int, default=4)
parser.add_argument("--max-grad-norm", type=float, default=1.0)
args = parser.parse_args()


def model(params, x):
    for w, b in params:
        x = jnp.tanh(x @ w + b)
    return x


def loss(params, xb, yb):
    return jnp.mean((model(params, xb) - yb) ** 2)


def clip(tree):
    total = jnp.sqrt(sum(jnp.vdot(t, t) for t in jax.tree.leaves(tree)))
    coef = jnp.clip(args.max_grad_norm / (total + 1e-6), max=1.0)
    return jax.tree.map(lambda t: t * coef, tree)


def accumulate(params, xs, ys):
    def body(carry, xy):
        acc, total = carry
        value, g = jax.value_and_grad(loss)(params, *xy)
        acc = clip(jax.tree.map(jnp.add, acc, g))
        return (acc, total + value), None

    zeros = jax.tree.map(jnp.zeros_like, params)
    (acc, total), _ = jax.lax.scan(body, (zeros, 0.0), (xs, ys))
    return total / args.micro, jax.tree.map(lambda a: a / args.micro, acc)


opt = optax.adamw(1e-3)


@jax.jit
def step(params, state, x, y):
    xs, ys = (t.reshape(args.micro, -1, t.shape[-1]) for t in (x, y))
    value, grads = accumulate(params, xs, ys)
    updates, state = opt.update(grads, state, params)
    return optax.apply_updates(params, updates), state, value


params = [(jnp.ones((4, 4)), jnp.zeros(4)) for _ in range(2)]
state = opt.init(params)
for _ in range(5):
    params, state, value = step(params, state, jnp.ones((16, 4)), jnp.zeros((16, 4)))
    print(float(value))
