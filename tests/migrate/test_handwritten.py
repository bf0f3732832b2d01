"""Clips by norm that are written out, in the forms that people write, and what only looks like one."""

from __future__ import annotations

import textwrap

import pytest
from migrate.codemods import migrate

CLIPS = {
    "a coefficient with an epsilon": """
        def clip(params, max_norm):
            total_norm = sum(p.grad.norm() ** 2 for p in params) ** 0.5
            coef = max_norm / (total_norm + 1e-6)
            if coef < 1:
                for p in params:
                    p.grad.mul_(coef)
        """,
    "an augmented product": """
        def grad_clipping(net, theta):
            norm = torch.sqrt(sum(torch.sum(p.grad ** 2) for p in net.parameters()))
            if norm > theta:
                for p in net.parameters():
                    p.grad[:] *= theta / norm
        """,
    "a product before the quotient": """
        def grad_clipping(grads, theta):
            norm = tf.math.sqrt(sum(tf.math.reduce_sum(g ** 2) for g in grads))
            if tf.greater(norm, theta):
                return [grad * theta / norm for grad in grads]
            return grads
        """,
    "a product after the quotient": """
        def update(updates):
            g_norm = optax.global_norm(updates)
            trigger = g_norm < max_norm
            return jax.tree.map(lambda t: jnp.where(trigger, t, (t / g_norm) * max_norm), updates)
        """,
    "a select": """
        def clip_fn(t):
            return jax.lax.select(trigger, t, (t / g_norm.astype(t.dtype)) * max_norm)
        """,
    "a minimum of two quotients": """
        def step(grads, limit):
            norm = tf.linalg.global_norm(grads)
            scale = limit * tf.minimum(1.0 / limit, 1.0 / norm)
            return [grad * scale for grad in grads]
        """,
    "a norm over a limit that is compared": """
        def step(group, grad_norm, scale):
            combined = scale
            clip = ((grad_norm / scale) + 1e-6) / group["max_grad_norm"]
            if clip > 1:
                combined = clip * scale
            return combined
        """,
    "a divisor of at least 1": """
        def step(grads, global_norm, max_grad_norm):
            clip_global_norm = (global_norm / max_grad_norm).clamp_(min=1.0)
            for grad in grads:
                grad.div_(clip_global_norm)
        """,
    "a maximum of a norm over a limit": """
        def process(global_norm, l2_norm_clip, grads):
            div = tf.maximum(global_norm / l2_norm_clip, 1.)
            return [g / div for g in grads]
        """,
    "a learning rate": """
        def adagrad(grad, lr, grad_clip):
            norm = grad.norm()
            if norm > grad_clip:
                lr *= grad_clip / (norm + 1e-10)
            return lr
        """,
    "a maximum of a norm and a limit": """
        def step(grads, global_grad_norm, max_grad_norm):
            ratio = max_grad_norm / max(global_grad_norm, max_grad_norm)
            return [grad * ratio for grad in grads]
        """,
    "a limit in brackets": """
        def step(self, global_grad_norm):
            return torch.clamp(self.defaults["max_grad_norm"] / global_grad_norm, max=1.0)
        """,
    "a limit made a float": """
        def step(self, total_norm):
            self.clip_coef = torch.clamp(float(self.clip_grad_norm) / (total_norm + 1e-6), max=1.0)
        """,
    "of examples": """
        def step(self, per_sample_norms):
            return (self.max_grad_norm / (per_sample_norms + 1e-6)).clamp(max=1.0)
        """,
    "a norm called unclipped": """
        def step(grads, unclipped_norm, l2_norm_clip):
            scale = min(1.0, l2_norm_clip / unclipped_norm)
            return [scale * grad for grad in grads]
        """,
}
NO_CLIPS = {
    "a normalised vector": "def unit(x):\n    return x / x.norm()\n",
    "a normalised gradient": "def step(grad):\n    return grad / grad.norm()\n",
    "a perturbation": "def attack(delta, max_norm):\n    d_norm = delta.norm()\n"
    "    if d_norm > max_norm:\n        delta = delta * max_norm / d_norm\n    return delta\n",
    "weights": "def init(layer, scale):\n    layer.weight.data *= scale / layer.weight.norm(dim=1)\n",
    "a trust ratio": "def lamb(w_norm, g_norm, grad):\n    trust_ratio = w_norm / g_norm\n    return grad * trust_ratio\n",
    "a trust ratio with a factor": "def lars(g, param_norm, update_norm, one):\n"
    "    return torch.where(param_norm > 0., (g['eta'] * param_norm / update_norm), one)\n",
    "sharpness": "def sam(self, grad_norm, rho):\n    scale = rho / (grad_norm + self.eps)\n    return scale\n",
    "a mean": "def mean(total_norm, counter):\n    return total_norm / counter\n",
    "a layer": "def forward(self, x):\n    return self.scale / self.layer_norm(x)\n",
}


def codes(source: str) -> list[str]:
    return [site.code for site in migrate("import torch\n\n" + textwrap.dedent(source).lstrip("\n")).sites]


@pytest.mark.parametrize("name", CLIPS)
def test_a_clip_is_found_once(name: str) -> None:
    others = {"GM112", "GM209"}  # torch.clamp of the coefficient; what is no clip, and not imported here
    assert [code for code in codes(CLIPS[name]) if code not in others] == ["GM402"]


@pytest.mark.parametrize("name", NO_CLIPS)
def test_what_is_none(name: str) -> None:
    assert codes(NO_CLIPS[name]) == []


def test_a_coefficient_without_a_bound_is_a_mistake() -> None:
    assert codes("def clip(grads, max_norm, grad_norm):\n    return [grad * (max_norm / grad_norm) for grad in grads]\n") == [
        "GM113"
    ]


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        ("a coefficient with an epsilon", "gradclip.clip_grad_norm_(params, max_norm)"),
        ("an augmented product", "paddle_rules.clip_grad_by_global_norm(theta)"),
        ("a maximum of a norm and a limit", "gradclip.dialects.paddle.clip_grad_by_global_norm(max_grad_norm)"),
    ],
)
def test_the_epsilon_says_the_dialect(name: str, dialect: str) -> None:
    migrated = migrate("import torch\n\n" + textwrap.dedent(CLIPS[name]))
    (site,) = (site for site in migrated.sites if site.code == "GM402")
    assert dialect in (site.advice or migrated.source)


def test_adaptive_clipping_is_not_called_a_clip_by_norm() -> None:
    source = """
        def agc(grad, p_norm, clip_factor):
            max_norm = p_norm * clip_factor
            g_norm = unitwise_norm(grad)
            clipped_grad = grad * (max_norm / g_norm)
            return torch.where(g_norm < max_norm, grad, clipped_grad)
        """
    (site,) = migrate("import torch\n" + textwrap.dedent(source)).sites
    assert "adaptive" in site.reason
    assert "adaptive_grad_clip" in site.advice
