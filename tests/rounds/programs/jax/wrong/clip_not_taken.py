import jax
import jax.numpy as jnp
import optax


class Trainer:
    def __init__(self, lr=0.01, max_norm=0.1):
        self.tx = optax.rmsprop(lr)
        self.max_norm = max_norm
        self._step = jax.jit(self._train_step)

    def init(self, key):
        k1, k2 = jax.random.split(key)
        params = {"w": jax.random.normal(k1, (3, 20)), "v": jax.random.normal(k2, (20,))}
        return params, self.tx.init(params)

    def loss(self, params, x, y):
        return jnp.mean((jnp.sin(x @ params["w"]) @ params["v"] - y) ** 2)

    def _train_step(self, params, opt_state, x, y):
        loss, grads = jax.value_and_grad(self.loss)(params, x, y)
        norm = optax.global_norm(grads)
        clipped = jax.tree.map(lambda g: g * jnp.minimum(1.0, self.max_norm / norm), grads)
        updates, opt_state = self.tx.update(grads, opt_state, params)
        metrics = {"loss": loss, "grad_norm": norm, "clipped_norm": optax.global_norm(clipped)}
        return optax.apply_updates(params, updates), opt_state, metrics

    def run(self, steps=5):
        key = jax.random.PRNGKey(0)
        params, opt_state = self.init(key)
        for i in range(steps):
            x = jax.random.normal(jax.random.fold_in(key, i), (32, 3))
            params, opt_state, metrics = self._step(params, opt_state, x, x.sum(1))
            print({k: round(float(v), 3) for k, v in metrics.items()})


Trainer().run()
