"""Kinds of code that the migrator once got wrong on public code, each as short as the fault allows, with others of its kind."""

from __future__ import annotations

import re
import textwrap

import pytest
from migrate.codemods import migrate

from gradclip.source.model import Verdict

#: source -> the code and the outcome of each place, and a part of its reason, its advice or the new source
FOUND = {
    "torch's private pair": (
        """
        from torch.nn.utils.clip_grad import _clip_grads_with_norm_, _get_total_norm
        def clip(params, max_norm):
            n = _get_total_norm([p.grad for p in params])
            _clip_grads_with_norm_(params, max_norm, n)
        """,
        ["GM005 unchanged", "GT105 rewritten"],
        "gradclip.clip_grads_with_norm_(params, max_norm, n)",
    ),
    "a star import of a known library": (
        """
        from timm.utils import *
        dispatch_clip_grad(model.parameters(), value=clip, mode="norm")
        """,
        ["GM505 manual"],
        "gradclip.clip_grad_norm_(model.parameters(), clip)",
    ),
    "a lambda with a name": (
        """
        import jax, jax.numpy as jnp
        def step(loss, params, limit):
            grad = jax.grad(loss)(params)
            f = lambda z: jnp.clip(z, -limit, limit)
            return jax.tree_util.tree_map(f, grad)
        """,
        ["GM401 rewritten"],
        "f = lambda z: gradclip.clip_by_value(z, -limit, limit)",
    ),
    "a function with a name, over the items": (
        """
        import jax
        import jax.numpy as jnp
        def clip(loss, params, c):
            grads = jax.grad(loss)(params)
            return {k: jnp.clip(x, -c, c) for k, x in grads.items()}
        """,
        ["GM401 rewritten"],
        "gradclip.clip_by_value(x, -c, c) for k, x in",
    ),
    "a tensor limit": (
        """
        import torch
        def clip(params, max_norm):
            total_norm = torch.stack([p.grad.norm() for p in params]).norm()
            coef = torch.tensor(max_norm, device=total_norm.device) / (total_norm + 1e-6)
            if coef < 1:
                for p in params:
                    p.grad.detach().mul_(coef)
        """,
        ["GM402 rewritten"],
        "    gradclip.clip_grad_norm_(params, max_norm)\n",
    ),
    "torch's loop": (
        """
        import torch
        def clip(params, max_norm):
            x = torch.zeros(3).clamp(min=0)
            for p in params:
                p.grad = torch.clamp(p.grad, -max_norm, 1)
            grad = torch.autograd.grad(x.sum(), x)[0].clamp(-1, 1)
            return grad
        """,
        ["GM104 manual", "GM401 rewritten"],
        "grad = gradclip.clip_by_value(torch.autograd.grad(x.sum(), x)[0], -1, 1)",
    ),
    "a list taken from pairs": (
        """
        import tensorflow as tf
        def process(grads, limit):
            g = [k[0] for k in grads]
            v = [k[1] for k in grads]
            g, _ = tf.clip_by_global_norm(g, limit)
            return list(zip(g, v))
        """,
        ["GF202 rewritten"],
        "gradclip.clip_by_global_norm(g, limit)",
    ),
}


NORM = "torch.sqrt(sum(p.grad.pow(2).sum() for p in params))"
GLOBAL = "gradclip.dialects.paddle.clip_grad_by_global_norm({})"
#: the body of a function of ``params``, ``grads`` and ``limit`` -> the rule or the meaning in the advice or the reason
BY_HAND = {
    "the limit over a sum with an epsilon": (
        "m = jnp.minimum(1, limit / (1e-7 + tree_norm(grads)))\nreturn [m * g for g in grads]",
        "limit)",
    ),
    "a minimum over the norm": (
        "n = np.maximum(np.linalg.norm(grads), 1e-12)\nreturn grads * (np.minimum(limit, n) / n)",
        "limit)",
    ),
    "a choice of a divisor": (
        f"n = {NORM}\nd = torch.where(n > limit, n / limit, torch.ones(()))\nfor p in params:\n    p.grad.div_(d)",
        GLOBAL.format("limit"),
    ),
    "a bound from a function": (
        "n = total(params).add_(1e-8)\nh = min(limit / n, 1.0)\nfor p in params:\n    p.grad.mul_(h)",
        "limit)",
    ),
    "a clamp of a product": (
        "for p in params:\n    pn = p.detach().norm().clamp_min(1e-3)\n"
        "    p.grad.mul_((limit * pn / p.grad.norm().clamp_min(1e-12)).clamp_max(1))",
        "relative to its parameter's norm",
    ),
    "a limit divided in place": (
        f"gn = {NORM}\nc = limit.div_(gn).clamp_(max=1)\nfor p in params:\n    p.grad *= c",
        GLOBAL.format("limit"),
    ),
    "two inverses": (
        "n = optax.global_norm(grads)\ns = limit * jnp.minimum(1.0 / limit, 1.0 / n)\nreturn [g * s for g in grads]",
        GLOBAL.format("limit"),
    ),
    "a reciprocal": (
        "n = optax.global_norm(grads)\nreturn [g * min(1, limit * n ** -1) for g in grads]",
        GLOBAL.format("limit"),
    ),
    "a root of a sum": (
        "r = jax.lax.rsqrt(sum(jnp.sum(g ** 2) for g in grads))\nreturn [g * jnp.minimum(1, limit * r) for g in grads]",
        "limit)",
    ),
    "a maximum of the norm and the limit": (
        "n = tf.linalg.global_norm(grads)\nreturn [g * limit / tf.maximum(n, limit) for g in grads]",
        GLOBAL.format("limit"),
    ),
    "a divisor of at least one": (
        "n = tf.linalg.global_norm(grads)\nd = tf.maximum(1.0, n / limit)\nreturn [g / d for g in grads]",
        GLOBAL.format("limit"),
    ),
    "a conditional expression": ("n = np.linalg.norm(grads)\nc = limit / n if n > limit else 1.0\ngrads *= c", "limit)"),
    "a guard": ("n = np.linalg.norm(grads)\nif n < limit:\n    return grads\nreturn grads * limit / n", "limit)"),
    "squares": (
        "q = sum(np.sum(g * g) for g in grads)\nif q > limit ** 2:\n    grads = [g * limit / np.sqrt(q) for g in grads]",
        "limit)",
    ),
    "a sum in a loop": (
        "q = 0\nfor p in params:\n    q += p.grad.norm() ** 2\n"
        "c = (limit / q.sqrt()).clamp(max=1)\nfor p in params:\n    p.grad.mul_(c)",
        GLOBAL.format("limit"),
    ),
    "another epsilon": (
        f"n = {NORM}\nfor p in params:\n    p.grad.mul_(min(1.0, limit / (n + 1e-3)))",
        "Its epsilon is 1e-6, not 0.001.",
    ),
    "a limit that follows the run": (
        "cut = 1.5 * norm_avg\nfor p in params:\n    p.grad.mul_(torch.clamp(cut / (grad_norm + 1e-6), max=1.0))",
        "limit that follows the run",
    ),
    "a root mean square": (
        "def shrink(u, norm):\n    return u / jnp.maximum(1.0, norm / limit)\n"
        "norms = jax.tree.map(lambda g: jnp.sqrt(jnp.mean(g ** 2)), grads)\nreturn jax.tree.map(shrink, grads, norms)",
        "clip_by_block_rms(limit)",
    ),
    "the norm of an attribute": (
        "self.norm = torch.norm(torch.stack([p.grad.norm() for p in params]), 2.0)\n"
        "self.c = float(self.clip) / (self.norm + 1e-6)\n"
        "self.c = torch.clamp(self.c, max=1.0)",
        "torch.clip_grad_norm(self.clip)",
    ),
}
HEAD = """
import jax, jax.numpy as jnp
import numpy as np
import optax
import tensorflow as tf
import torch
def tree_norm(t):
    return jnp.sqrt(sum(jnp.sum(x ** 2) for x in jax.tree_util.tree_leaves(t)))
def total(params):
    return torch.stack([p.grad.norm() for p in params]).norm()
def clip_gradients(self, params, grads, limit, norm_avg, grad_norm):
"""


@pytest.mark.parametrize("name", BY_HAND)
def test_a_clip_is_recognised_by_what_it_computes(name: str) -> None:
    body, part = BY_HAND[name]
    migrated = migrate(HEAD + textwrap.indent(body, "    ") + "\n")
    sites = [site for site in migrated.sites if site.outcome is not Verdict.UNCHANGED]
    assert [site.code for site in sites] == ["GM402"]
    if sites[0].outcome is Verdict.MANUAL:
        assert part in f"{sites[0].reason} {sites[0].advice}"
    else:
        assert re.search(r"gradclip\.clip\w*\(.*\blimit\b", migrated.source.rpartition("def clip_gradients")[2])


#: code without a clip of a gradient: nothing is said
SILENT = {
    "a step of a unit": "n = np.linalg.norm(grad)\nif n > 0:\n    x = x - eps * grad / n",
    "a learning rate": "lr = np.clip(1 / float(t + 1), lr, np.inf)\nnew = [y - lr * grad for y in ys]",
    "a check of gradients": (
        "d = np.linalg.norm(grad - approx) / (np.linalg.norm(grad) + np.linalg.norm(approx))\nif d > 1e-7:\n    print(d)"
    ),
    "an embedding": (
        "emb_clip = model(image)\nemb_clip = emb_clip / emb_clip.norm(p=2, dim=-1, keepdim=True)\ngrads = -loss(emb_clip)"
    ),
    "an expected number": "coef = max_norm / (expected_norm + 1e-6)\nassert_close(p.grad, torch.full_like(p.grad, coef))",
    "a trust ratio": "r = torch.where(w_norm > 0, eta * w_norm / g_norm, 1.0)\np.grad.mul_(r)",
    "a cosine": "c = (g * h).sum() / max(g.norm() * h.norm(), 1e-8)\ngrads = [c * g for g in grads]",
    "an epsilon": "g = g / max(g.norm(), 1e-12)",
    "a perturbation": "scale = rho / (grad_norm + 1e-12)\ne = [g * scale for g in grads]",
    "a settings dictionary": 'config = {"kernel": 5, "gradient_clipping": c, "max_grad_norm": 0.5}',
    "a positive part": "grads = grads[:, 1:].clamp(0)\ncam = (cams * grads).mean(1)",
}


@pytest.mark.parametrize("name", SILENT)
def test_what_clips_nothing_is_not_named(name: str) -> None:
    head = "import numpy as np\nimport torch\ndef step(self, x, grad, grads, g, p, lr):\n"
    source = head + textwrap.indent(SILENT[name], "    ") + "\n"
    assert [site for site in migrate(source).sites if site.outcome is not Verdict.UNCHANGED] == []


@pytest.mark.parametrize("name", FOUND)
def test_what_is_found(name: str) -> None:
    source, places, part = FOUND[name]
    migrated = migrate(source)
    assert [f"{site.code} {site.outcome.value}" for site in migrated.sites] == places
    said = [text for site in migrated.sites for text in (site.reason, site.advice)]
    assert any(part in text for text in [migrated.source, *said]), said
