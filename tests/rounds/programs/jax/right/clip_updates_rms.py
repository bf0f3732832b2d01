import jax
import jax.numpy as jnp
import optax

tx = optax.chain(
    optax.scale_by_factored_rms(min_dim_size_to_factor=8),
    optax.clip_by_block_rms(1.0),
    optax.scale_by_param_block_rms(),
    optax.scale(-1e-2),
)


def loss_fn(params, tokens):
    x = params["emb"][tokens[:, :-1]]
    logits = x @ params["emb"].T + params["bias"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


@jax.jit
def train_step(params, state, tokens):
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss


key = jax.random.PRNGKey(0)
params = {"emb": jax.random.normal(key, (32, 16)), "bias": jnp.full(32, 0.01)}
state = tx.init(params)
for i in range(4):
    tokens = jax.random.randint(jax.random.fold_in(key, i), (8, 12), 0, 32)
    params, state, loss = train_step(params, state, tokens)
    print(i, float(loss))
