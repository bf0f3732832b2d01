import argparse

import jax
import jax.numpy as jnp
import optax

p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, default=1e-3)
p.add_argument("--embed_lr", type=float, default=1e-2)
p.add_argument("--max_global_norm", type=float, default=0.1)
args = p.parse_args()


def group(lr, decay):
    return optax.chain(optax.clip_by_global_norm(args.max_global_norm), optax.adamw(lr, weight_decay=decay))


def labels(params):
    return jax.tree_util.tree_map_with_path(lambda path, _: "embed" if "embed" in str(path[0]) else "body", params)


optimizer = optax.multi_transform({"embed": group(args.embed_lr, 0.0), "body": group(args.lr, 0.1)}, labels)


def forward(params, tokens):
    x = params["embed"][tokens].mean(1)
    x = jax.nn.relu(x @ params["w1"])
    return x @ params["w2"]


def loss_fn(params, tokens, y):
    return optax.softmax_cross_entropy_with_integer_labels(forward(params, tokens), y).mean()


key = jax.random.PRNGKey(7)
ks = jax.random.split(key, 3)
params = {
    "embed": jax.random.normal(ks[0], (50, 16)),
    "w1": jax.random.normal(ks[1], (16, 32)) * 0.3,
    "w2": jax.random.normal(ks[2], (32, 3)) * 0.3,
}
opt_state = optimizer.init(params)
for step in range(4):
    tokens = jax.random.randint(jax.random.fold_in(key, step), (32, 6), 0, 50)
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens, tokens[:, 0] % 3)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    params = optax.apply_updates(params, updates)
    print(step, loss)
