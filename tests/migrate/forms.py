"""The clips by norm that are written by hand and can be rewritten, by framework: a norm and a scaling make one."""

from __future__ import annotations

__all__ = [
    "JAX_NORMS",
    "JAX_SCALES",
    "NUMPY_NORMS",
    "NUMPY_SCALES",
    "PADDLE_NORMS",
    "PADDLE_SCALES",
    "TENSORFLOW_NORMS",
    "TENSORFLOW_SCALES",
    "TORCH_NORMS",
    "TORCH_SCALES",
    "TREE_NORM",
]

NUMPY_NORMS = {
    "a generator": "n = np.sqrt(sum(np.sum(g ** 2) for g in grads))",
    "squares of norms": "n = math.sqrt(sum([np.linalg.norm(g) ** 2 for g in grads]))",
    "norms": "n = np.linalg.norm([np.linalg.norm(g) for g in grads])",
    "a flat vector": "n = np.linalg.norm(np.concatenate([g.ravel() for g in grads]))",
    "products": "n = sum((g * g).sum() for g in grads) ** 0.5",
    "a loop": "n = 0\nfor g in grads:\n    n += (g ** 2).sum()\nn = np.sqrt(n)",
    "a loop of norms": "n = 0.0\nfor g in grads:\n    size = np.linalg.norm(g)\n    n += size * size\nn = n ** 0.5",
}

NUMPY_SCALES = {
    "a list": "return [g * min(1.0, limit / n) for g in grads]",
    "an if": "if n > limit:\n    grads = [g * limit / n for g in grads]\nreturn grads",
    "an epsilon": "c = min(1.0, limit / (n + 1e-6))\nreturn [c * g for g in grads]",
    "a conditional": "c = limit / n if n > limit else 1.0\nreturn [g * c for g in grads]",
    "a divisor": "return [g / max(1.0, n / limit) for g in grads]",
    "a map": "c = np.minimum(1.0, limit / n)\nreturn list(map(lambda g: g * c, grads))",
    "in place, under an if": "if n > limit:\n    for g in grads:\n        g *= limit / n",
    "in place": "c = min(1, limit / n)\nfor g in grads:\n    g *= c",
    "in place, a coefficient": "c = limit / n\nif c < 1:\n    for g in grads:\n        g *= c",
    "in place, a slice": "for g in grads:\n    g[...] *= min(1, limit / n)",
    "in place, divided": "for g in grads:\n    g /= max(1.0, n / limit)",
}

TORCH_NORMS = {
    "a generator": "n = torch.sqrt(sum(p.grad.pow(2).sum() for p in params))",
    "squares of norms": "n = sum(p.grad.norm() ** 2 for p in params) ** 0.5",
    "a stack": "n = torch.stack([p.grad.norm() for p in params]).norm()",
    "a stack of norms, function": "n = torch.norm(torch.stack([torch.norm(p.grad.detach(), 2) for p in params]), 2)",
    "a loop": "n = 0.0\nfor p in params:\n    n += p.grad.norm(2).item() ** 2\nn = n ** 0.5",
    "a flat vector": "n = torch.cat([p.grad.view(-1) for p in params]).norm()",
    "get_total_norm": "n = torch.nn.utils.get_total_norm([p.grad for p in params])",
    "a product": "n = torch.sqrt(sum((p.grad * p.grad).sum() for p in params))",
}

TORCH_SCALES = {
    "an if": "if n > limit:\n    for p in params:\n        p.grad.mul_(limit / n)",
    "an if, a product first": "if n > limit:\n    for p in params:\n        p.grad = p.grad * limit / n",
    "an if with sides exchanged": "if limit < n:\n    for p in params:\n        p.grad *= limit / n",
    "a coefficient": "c = limit / n\nif c < 1:\n    for p in params:\n        p.grad.mul_(c)",
    "a minimum": "c = min(1.0, limit / n)\nfor p in params:\n    p.grad.mul_(c)",
    "a minimum inline": "for p in params:\n    p.grad.mul_(min(1.0, limit / n))",
    "a conditional": "c = limit / n if n > limit else 1.0\nfor p in params:\n    p.grad.mul_(c)",
    "a maximum": "c = limit / max(n, limit)\nfor p in params:\n    p.grad.mul_(c)",
    "a divisor": "d = max(1.0, n / limit)\nfor p in params:\n    p.grad.div_(d)",
    "epsilon, if": "c = limit / (n + 1e-6)\nif c < 1:\n    for p in params:\n        p.grad.mul_(c)",
    "epsilon, minimum": "c = min(limit / (n + 1e-6), 1.0)\nfor p in params:\n    p.grad.mul_(c)",
    "epsilon, clamp": "c = torch.clamp(torch.as_tensor(limit / (n + 1e-6)), max=1.0)\nfor p in params:\n    p.grad.mul_(c)",
}

TREE_NORM = """def tree_norm(tree):
    leaves, _ = jax.tree_util.tree_flatten(tree)
    return jnp.sqrt(sum(jnp.vdot(x, x) for x in leaves))"""
JAX_NORMS = {
    "optax": "n = optax.tree.norm(grads)",
    "a generator": "n = jnp.sqrt(sum(jnp.sum(g ** 2) for g in jax.tree.leaves(grads)))",
    "a list of squares": "n = jnp.sqrt(sum([jnp.sum(jnp.square(x)) for x in jax.tree_util.tree_leaves(grads)]))",
    "products": "n = jnp.sqrt(sum(jnp.vdot(x, x) for x in jax.tree.leaves(grads)))",
    "norms": "n = jnp.linalg.norm(jnp.array([jnp.linalg.norm(g) for g in jax.tree.leaves(grads)]))",
    "a reduction": "n = jnp.sqrt(jax.tree_util.tree_reduce(lambda a, b: a + b, jax.tree.map(lambda x: jnp.sum(x * x), grads)))",
    "a flat vector": "n = jnp.linalg.norm(jnp.concatenate([g.ravel() for g in jax.tree.leaves(grads)]))",
    "ravel_pytree": "n = jnp.linalg.norm(jax.flatten_util.ravel_pytree(grads)[0])",
    "leaves with a name": "leaves = jax.tree.leaves(grads)\nn = jnp.sqrt(sum((x ** 2).sum() for x in leaves))",
    "a function of the source": "n = tree_norm(grads)",
    "a loop": "n = 0.0\nfor g in jax.tree.leaves(grads):\n    n += jnp.sum(g ** 2)\nn = jnp.sqrt(n)",
}

JAX_SCALES = {
    "a minimum": "return jax.tree.map(lambda g: g * jnp.minimum(1.0, limit / n), grads)",
    "a minimum with a name": "c = jnp.minimum(limit / n, 1.0)\nreturn jax.tree_util.tree_map(lambda g: g * c, grads)",
    "an epsilon": "c = jnp.minimum(1.0, limit / (n + 1e-6))\nreturn jax.tree.map(lambda g: c * g, grads)",
    "a small epsilon": "c = jnp.minimum(1.0, limit / (n + 1e-8))\nreturn jax.tree.map(lambda g: c * g, grads)",
    "a clip of the coefficient": "c = jnp.clip(limit / (n + 1e-6), 0.0, 1.0)\nreturn jax.tree.map(lambda g: g * c, grads)",
    "lax's clamp": "c = jax.lax.clamp(0.0, limit / (n + 1e-6), 1.0)\nreturn jax.tree.map(lambda g: g * c, grads)",
    "lax's clamp, by names": "c = jax.lax.clamp(min=0.0, x=limit / n, max=1.0)\nreturn jax.tree.map(lambda g: g * c, grads)",
    "a divisor": "return jax.tree.map(lambda g: g / jnp.maximum(1.0, n / limit), grads)",
    "a maximum": "return jax.tree.map(lambda g: g * (limit / jnp.maximum(n, limit)), grads)",
    "optax's own": "small = jnp.squeeze(n < limit)\n"
    "return jax.tree.map(lambda t: jax.lax.select(small, t, (t / n.astype(t.dtype)) * limit), grads)",
    "where": "return jax.tree.map(lambda g: jnp.where(n > limit, g * limit / n, g), grads)",
    "where of a coefficient": "c = jnp.where(n > limit, limit / n, 1.0)\nreturn jax.tree.map(lambda g: g * c, grads)",
    "a function with a name": "c = jnp.minimum(1.0, limit / n)\ndef scale(g):\n    return g * c\n"
    "return jax.tree.map(scale, grads)",
    "a name for the result": "grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, limit / n), grads)\nreturn grads",
    "a lambda with a name": "scale = lambda g: jnp.where(n < limit, g, g * (limit / n))\nreturn jax.tree.map(scale, grads)",
}

TENSORFLOW_NORMS = {
    "TensorFlow's": "n = tf.linalg.global_norm(grads)",
    "a generator": "n = tf.sqrt(sum(tf.reduce_sum(g ** 2) for g in grads))",
    "add_n": "n = tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(g)) for g in grads]))",
    "reduce_sum": "n = tf.math.sqrt(tf.reduce_sum([tf.reduce_sum(g * g) for g in grads]))",
    "arguments with names": "n = tf.sqrt(tf.add_n([tf.reduce_sum(input_tensor=tf.square(g)) for g in grads]))",
    "norms": "n = tf.norm([tf.norm(g) for g in grads])",
    "a flat vector": "n = tf.norm(tf.concat([tf.reshape(g, [-1]) for g in grads], axis=0))",
}

TENSORFLOW_SCALES = {
    "a minimum": "return [g * tf.minimum(1.0, limit / n) for g in grads]",
    "a name": "c = tf.minimum(limit / n, 1.0)\nreturn [c * g for g in grads]",
    "an epsilon": "c = tf.minimum(1.0, limit / (n + 1e-6))\nreturn [g * c for g in grads]",
    "TensorFlow's": "return [g * limit / tf.maximum(n, limit) for g in grads]",
    "two quotients": "c = limit * tf.minimum(1.0 / n, 1.0 / limit)\nreturn [g * c for g in grads]",
    "where": "c = tf.where(n > limit, limit / n, 1.0)\nreturn [tf.multiply(g, c) for g in grads]",
    "None": "c = tf.minimum(1.0, limit / n)\nreturn [g * c if g is not None else None for g in grads]",
    "a clip of the coefficient": "c = tf.clip_by_value(limit / n, 0.0, 1.0)\nreturn [g * c for g in grads]",
    "in a list": "for i, g in enumerate(grads):\n    grads[i] = g * tf.minimum(1.0, limit / n)",
    "in a list, under an if": "if tf.greater(n, limit):\n    for i, g in enumerate(grads):\n        grads[i] = g * limit / n\n"
    "else:\n    grads = grads\nreturn grads",
}

PADDLE_NORMS = {"a generator": "n = paddle.sqrt(sum(paddle.sum((p.grad ** 2)) for p in grads))"}

PADDLE_SCALES = {
    "set_value": "if n > limit:\n    with paddle.no_grad():\n        for p in grads:\n"
    "            p.grad.set_value(p.grad * limit / n)",
    "an assignment": "c = paddle.clip(limit / n, max=1.0)\nfor p in grads:\n    p.grad = p.grad * c",
    "an epsilon": "c = paddle.clip(limit / (n + 1e-6), max=1.0)\nfor p in grads:\n    p.grad.set_value(p.grad * c)",
}
