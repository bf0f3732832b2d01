"""Clips by value: a producer or a consumer shows that a value is a gradient; a name alone is named, and never rewritten."""

from __future__ import annotations

import pytest
from migrate.codemods import migrate

SHOWN = {
    "a gradient of torch": "def f(loss, ps):\n    grads = torch.autograd.grad(loss, ps)\n"
    "    return [torch.clamp(g, -1, 1) for g in grads]\n",
    "a parameter's gradient": "def f(p):\n    return torch.clamp(p.grad, -1, 1)\n",
    "a hook": "def f(p):\n    p.register_hook(lambda g: torch.clamp(g, -1, 1))\n",
    "a function of JAX": "def f(loss, p):\n    g = jax.grad(loss)(p)\n"
    "    return jax.tree.map(lambda x: jnp.clip(x, -1, 1), g)\n",
    "a value and its gradient": "def f(loss, p):\n    value, grads = jax.value_and_grad(loss)(p)\n"
    "    return jax.tree.map(lambda x: jnp.clip(x, -1, 1), grads)\n",
    "an assignment to a gradient": "def f(grads, ps):\n    for g, p in zip(grads, ps):\n"
    "        p.grad = torch.clamp(g, -1, 1)\n",
    "updates that are applied": "def f(p, grads):\n    grads = jax.tree.map(lambda g: jnp.clip(g, -1, 1), grads)\n"
    "    return optax.apply_updates(p, grads)\n",
    "a step by hand": "def f(w, dw, lr):\n    np.clip(dw, -5, 5, out=dw)\n    w -= lr * dw\n",
    "a step in another loop": "for d in [dW, db]:\n    np.clip(d, -5, 5, out=d)\n"
    "for p, d in zip([W, b], [dW, db]):\n    p += -learning_rate * d\n",
}
NAMED = {
    "a parameter called so": "def f(grads):\n    return [torch.clamp(g, -1, 1) for g in grads]\n",
    "a Sobel image": "def f(image, kernel):\n    grad = F.conv2d(image, kernel)\n    return torch.clamp(grad, -1, 1)\n",
    "differences of an image": "def f(image):\n    grad = torch.gradient(image)[0]\n    return torch.clamp(grad, -1, 1)\n",
    "NumPy's differences": "def f(image):\n    grad = np.gradient(image)\n"
    "    np.clip(grad, -1, 1, out=grad)\n    return grad\n",
    "a Jacobian by hand": "def f(x):\n    dX = x.T @ x\n    np.clip(dX, -1, 1, out=dX)\n    return dX\n",
}
QUIET = {
    "a box's width": "def f(deltas, r):\n    dw = deltas[:, 2]\n"
    "    dw = paddle.clip(dw, min=-r, max=r)\n    return paddle.exp(dw)\n",
    "a box's sizes": "def f(deltas, r):\n    dx, dy, dw, dh = deltas.unbind(1)\n"
    "    return torch.clamp(dw, -r, r), dh.clamp(-r, r)\n",
    "a column": 'def f(dwc):\n    return dwc["volume"].clip(0, 5)\n',
    "a Hessian": "def f(p, y):\n    hess = p * (1 - p)\n    return np.clip(hess, -1, 1)\n",
    "a Hessian that is made by grad": "def f(loss, g, p):\n    hess = torch.autograd.grad(g, p)[0]\n"
    "    return torch.clamp(hess, -1, 1)\n",
    "a width that is moved": "def f(x, dw):\n    x -= 0.5 * dw\n    return np.clip(dw, -1, 1)\n",
}
HEADER = """import jax
import jax.numpy as jnp
import numpy as np
import optax
import paddle
import torch
import torch.nn.functional as F


"""


@pytest.mark.parametrize("kind", SHOWN)
def test_a_gradient_by_its_producer_or_consumer_is_rewritten(kind: str) -> None:
    assert [one.outcome.value for one in migrate(HEADER + SHOWN[kind]).sites] == ["rewritten"]


@pytest.mark.parametrize("kind", NAMED)
def test_a_gradient_by_its_name_alone_is_named(kind: str) -> None:
    assert [(one.code, one.outcome.value) for one in migrate(HEADER + NAMED[kind]).sites] == [("GM401", "manual")]


@pytest.mark.parametrize("kind", QUIET)
def test_another_array_is_quiet(kind: str) -> None:
    assert [one.outcome.value for one in migrate(HEADER + QUIET[kind]).sites if one.outcome.value != "unchanged"] == []
