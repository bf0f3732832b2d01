import jax
import jax.numpy as jnp
import optax

config = {
    "LR": 2.5e-4,
    "NUM_STEPS": 32,
    "CLIP_EPS": 0.2,
    "ENT_COEF": 0.01,
    "MAX_GRAD_NORM": 0.5,
    "UPDATES": 4,
}


def policy(params, obs):
    h = jnp.tanh(obs @ params["h"])
    return h @ params["pi"], (h @ params["v"]).squeeze(-1)


def loss_fn(params, batch):
    logits, value = policy(params, batch["obs"])
    logp = jnp.take_along_axis(jax.nn.log_softmax(logits), batch["act"][:, None], axis=1)[:, 0]
    ratio = jnp.exp(logp - batch["logp"])
    clipped = jnp.clip(ratio, 1 - config["CLIP_EPS"], 1 + config["CLIP_EPS"])
    actor = -jnp.minimum(ratio * batch["adv"], clipped * batch["adv"]).mean()
    entropy = -(jax.nn.softmax(logits) * jax.nn.log_softmax(logits)).sum(1).mean()
    return actor + 0.5 * jnp.square(value - batch["ret"]).mean() - config["ENT_COEF"] * entropy


def make_train(config):
    tx = optax.chain(optax.clip(config["MAX_GRAD_NORM"]), optax.adam(config["LR"], eps=1e-5))

    def train(rng):
        k = jax.random.split(rng, 3)
        params = {"h": jax.random.normal(k[0], (4, 32)), "pi": jax.random.normal(k[1], (32, 2)) * 0.01}
        params["v"] = jax.random.normal(k[2], (32, 1))

        def update(carry, rng):
            params, state = carry
            obs = jax.random.normal(rng, (config["NUM_STEPS"], 4))
            act = (obs[:, 0] > 0).astype(int)
            batch = {"obs": obs, "act": act, "adv": obs[:, 1], "ret": 10 * obs[:, 0], "logp": jnp.full(len(obs), -0.69)}
            loss, grads = jax.value_and_grad(loss_fn)(params, batch)
            updates, state = tx.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), loss

        return jax.lax.scan(update, (params, tx.init(params)), jax.random.split(rng, config["UPDATES"]))[1]

    return train


print(jax.jit(make_train(config))(jax.random.PRNGKey(30)))
