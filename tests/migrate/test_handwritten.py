"""Handwritten clips by norm, in common forms, and code that only resembles one."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from migrate.codemods import migrate

from gradclip import lint

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
    "parameters in a ball": "def project(parameters, max_norm):\n"
    "    global_norm = torch.sqrt(sum(p.norm() ** 2 for p in parameters))\n    if global_norm > max_norm:\n"
    "        ratio = max_norm / global_norm\n        for p in parameters:\n            p.mul_(ratio)\n",
    "a norm of at most the limit": "def step(params, norm, max_norm):\n    for p in params:\n"
    "        p.grad.mul_(max_norm / min(norm, max_norm))\n",
    "a layer": "def forward(self, x):\n    return self.scale / self.layer_norm(x)\n",
}


def codes(source: str) -> list[str]:
    return [site.code for site in migrate("import torch\n\n" + textwrap.dedent(source).lstrip("\n")).sites]


@pytest.mark.parametrize("name", CLIPS)
def test_a_clip_is_found_once(name: str) -> None:
    others = {"GM112", "GM209"}  # torch.clamp of the coefficient; a custom function without its import
    assert [code for code in codes(CLIPS[name]) if code not in others] == ["GM402"]


@pytest.mark.parametrize("name", NO_CLIPS)
def test_what_is_none(name: str) -> None:
    assert codes(NO_CLIPS[name]) == []


UNBOUNDED = {
    "a quotient in brackets": "grads = [g * (max_norm / grad_norm) for g in grads]",
    "a quotient before the limit": "norm = np.linalg.norm(np.concatenate(grads))\ngrads = [g / norm * clip for g in grads]",
    "an augmented product": "for p in params:\n    p.grad[:] *= theta / norm",
    "arrays in a loop": "for g in grads:\n    g *= max_norm / total_norm",
    "a norm in the quotient": "for g in grads:\n    g *= max_norm / np.linalg.norm(g)",
    "a coefficient": "rate = max_norm / (total_norm + 1e-6)\nfor grad in grads:\n    grad *= rate",
    "a number in place": "for p in net.parameters():\n    p.grad.mul_(5.0 / (total_norm + 1e-6))",
    "a number and an augmented product": "for p in net.parameters():\n    p.grad.data *= 5.0 / total_norm",
    "a lambda": "grads = jax.cst.map(lambda g: g * max_norm / norm, grads)",
    "a function for the product": "grads = [tf.multiply(g, clip_norm / norm) for g in grads]",
    "Paddle's assignment": "for p in params:\n    p.grad.set_value(p.grad * clip_norm / norm)",
    "the inverse": "ratio = total_norm / max_norm\ngrads = [g / ratio for g in grads]",
    "foreach": "torch._foreach_mul_(grads, max_norm / total_norm)",
    "a norm of at least an epsilon": "grads = [g * max_norm / max(total_norm, 1e-12) for g in grads]",
}
BOUNDED = {
    "an if": "if norm > theta:\n    for p in params:\n        p.grad[:] *= theta / norm",
    "an if of the coefficient": "rate = max_norm / total_norm\nif rate < 1:\n    for grad in grads:\n        grad *= rate",
    "a minimum": "grads = [g * np.minimum(1, clip / np.linalg.norm(g)) for g in grads]",
    "a loop that goes on": "for g in grads:\n    norm = np.linalg.norm(g)\n"
    "    if norm <= clip:\n        continue\n    g *= clip / norm",
    "a while": "while np.linalg.norm(g) > max_norm:\n    g *= max_norm / np.linalg.norm(g)",
    "a norm of at least the limit": "norm = max(np.linalg.norm(g), max_norm)\ng = g * max_norm / norm",
    "chosen rows": "norm = np.linalg.norm(g, axis=1)\nbig = norm > max_norm\ng[big] = g[big] * max_norm / norm[big]",
    "compared rows": "grads[norms > clip] *= clip / norms[norms > clip]",
    "a flag": "grown = total_norm > max_norm\nif total_norm > max_norm:\n    p.grad.mul_(max_norm / total_norm)",
    "the inverse, at least 1": "ratio = max(1, total_norm / max_norm)\ngrads = [g / ratio for g in grads]",
}
NO_ALARM = {
    "adaptive, in an if": ("norm = p.grad.norm()\nif norm > clip * p.norm():\n    p.grad.mul_(clip * p.norm() / norm)"),
    "adaptive, after a guard": (
        "def f(p, clip):\n    norm, bound = p.grad.norm(), clip * p.norm()\n    if norm <= bound:\n        return\n"
        "    p.grad.mul_(bound / norm)"
    ),
    "a step of a given length": "grad = grad / norm * 5.0",
    "a perturbation": "r_at = epsilon * param.grad / norm\nparam.data.add_(r_at)",
    "a logged ratio": "ratio = total_norm / max_norm\nlog(ratio)",
    "a sum over processes": "for p in params:\n    p.grad.data *= world_size / sample_size",
    "a number beside a norm of no gradients": "for p in params:\n    p.grad.mul_(5.0 / norm)",
    "a function of a number": "total = f(5.0 / total_norm)\np.grad.mul_(total)",
}


_GLOBAL_NORM = "norm = torch.linalg.norm(torch.stack([p.grad.norm() for p in params]))"
#: how a condition bounds a coefficient; then what stands for OTHER: the limit of the coefficient, and another one
PAIRS = {
    "a number": ("if norm > OTHER:\n    coef = 5.0 / norm\n    for p in params:\n        p.grad.mul_(coef)", "5", "1.0"),
    "a numerator of one": (
        "if norm > OTHER:\n    coef = 1.0 / norm\n    for p in params:\n        p.grad.mul_(coef)",
        "1.0",
        "5",
    ),
    "a name": ("if norm > OTHER:\n    for p in params:\n        p.grad.mul_(max_norm / norm)", "max_norm", "threshold"),
    "a multiple": ("if norm > OTHER:\n    for p in params:\n        p.grad.mul_(max_norm / norm)", "max_norm", "2 * max_norm"),
    "a guard": ("if norm <= OTHER:\n    return\nfor p in params:\n    p.grad.mul_(max_norm / norm)", "max_norm", "threshold"),
    "a choice": (
        "coef = max_norm / norm if norm > OTHER else 1.0\nfor p in params:\n    p.grad.mul_(coef)",
        "max_norm",
        "threshold",
    ),
    "a choice of arrays": (
        "coef = torch.where(norm > OTHER, max_norm / norm, 1.0)\nfor p in params:\n    p.grad.mul_(coef)",
        "max_norm",
        "threshold",
    ),
    "a coefficient": (
        "coef = max_norm / norm\nif coef < OTHER:\n    for p in params:\n        p.grad.mul_(coef)",
        "1",
        "2",
    ),
    "a flag": (
        "is_large = norm > OTHER\nif is_large:\n    for p in params:\n        p.grad.mul_(max_norm / norm)",
        "max_norm",
        "threshold",
    ),
    "a limit after the quotient": (
        "if norm > OTHER:\n    unit = 1.0 / norm\n    for p in params:\n        p.grad.mul_(unit * max_norm)",
        "max_norm",
        "threshold",
    ),
}


def bounded_by(name: str, limit: str) -> str:
    body = f"{_GLOBAL_NORM}\n{PAIRS[name][0].replace('OTHER', limit)}"
    return f"import torch\n\ndef step(params, max_norm, threshold):\n{textwrap.indent(body, '    ')}\n"


@pytest.mark.parametrize("name", PAIRS)
def test_a_condition_on_the_limit_of_the_coefficient_makes_a_clip(name: str) -> None:
    assert [site.code for site in migrate(bounded_by(name, PAIRS[name][1])).sites] == ["GM402"]


@pytest.mark.parametrize("name", PAIRS)
def test_a_condition_on_another_limit_makes_none(name: str) -> None:
    source = bounded_by(name, PAIRS[name][2])
    migrated = migrate(source)
    assert migrated.source == source
    assert {site.code for site in migrated.sites} <= {"GM112", "GM113", "GM402"}
    assert all("this is not a clip by norm" in site.reason or "likely" in site.reason for site in migrated.sites)
    assert alarms(source) == []


#: how a coefficient is bounded, with UNDER for the comparison: as a clip, and turned round, so that it only scales up
TURNED = {
    "an if": ("if norm UNDER m:\n    for p in params:\n        p.grad.mul_(m / norm)", ">", "<"),
    "an if with the sides exchanged": ("if m UNDER norm:\n    for p in params:\n        p.grad.mul_(m / norm)", "<=", ">="),
    "an else": ("if norm UNDER m:\n    pass\nelse:\n    for p in params:\n        p.grad.mul_(m / norm)", "<", ">"),
    "a not": ("if not norm UNDER m:\n    for p in params:\n        p.grad.mul_(m / norm)", "<=", ">"),
    "a coefficient": ("c = m / norm\nif c UNDER 1:\n    for p in params:\n        p.grad.mul_(c)", "<", ">"),
    "an inverse coefficient": ("c = norm / m\nif c UNDER 1:\n    for p in params:\n        p.grad.div_(c)", ">", "<"),
    "a chain": ("if 0 UNDER norm UNDER m:\n    for p in params:\n        p.grad.mul_(m / norm)", ">", "<"),
    "a guard": ("if norm UNDER m:\n    return\nfor p in params:\n    p.grad.mul_(m / norm)", "<", ">"),
    "a return within": (
        "if norm UNDER m:\n    for p in params:\n        p.grad.mul_(m / norm)\n    return norm\nreturn 0",
        ">",
        "<",
    ),
    "an else that leaves": (
        "if norm UNDER m:\n    pass\nelse:\n    return\nfor p in params:\n    p.grad.mul_(m / norm)",
        ">",
        "<",
    ),
    "a choice": ("c = m / norm if norm UNDER m else 1.0\nfor p in params:\n    p.grad.mul_(c)", ">", "<"),
    "the other choice": ("c = 1.0 if norm UNDER m else m / norm\nfor p in params:\n    p.grad.mul_(c)", "<", ">"),
    "a choice of arrays": ("c = torch.where(norm UNDER m, m / norm, 1.0)\nfor p in params:\n    p.grad.mul_(c)", ">", "<"),
    "a choice of divisors": ("d = torch.where(norm UNDER m, norm / m, 1.0)\nfor p in params:\n    p.grad.div_(d)", ">", "<"),
    "a flag": ("large = norm UNDER m\nif large:\n    for p in params:\n        p.grad.mul_(m / norm)", ">", "<"),
    "a method": ("if norm.UNDER(m):\n    for p in params:\n        p.grad.mul_(m / norm)", "gt", "lt"),
    "a function": ("if torch.UNDER(norm, m):\n    for p in params:\n        p.grad.mul_(m / norm)", "greater", "less"),
    "an extreme": ("c = UNDER(1.0, m / norm)\nfor p in params:\n    p.grad.mul_(c)", "min", "max"),
    "an extreme of divisors": ("c = UNDER(1.0, norm / m)\nfor p in params:\n    p.grad.div_(c)", "max", "min"),
    "a clamp": ("c = (m / norm).clamp(UNDER=1.0)\nfor p in params:\n    p.grad.mul_(c)", "max", "min"),
}


def turned(name: str, which: int) -> str:
    body = TURNED[name][0].replace("UNDER", TURNED[name][which])
    body = re.sub(r"\bm\b", "max_norm", f"{_GLOBAL_NORM}\n{body}")
    return f"import torch\n\ndef step(params, max_norm):\n{textwrap.indent(body, '    ')}\n"


@pytest.mark.parametrize("name", TURNED)
def test_a_coefficient_of_at_least_one_is_no_clip(name: str) -> None:
    assert [site.code for site in migrate(turned(name, 1)).sites if site.code != "GM112"] == ["GM402"]
    source = turned(name, 2)
    migrated = migrate(source)
    assert migrated.source == source
    assert [site.code for site in migrated.sites if site.code != "GM112"] == ["GM113"]
    assert all("small gradients would be scaled up" in site.reason for site in migrated.sites if site.code == "GM113")


def alarms(source: str) -> list[str]:
    return [site.code for site in lint.of_source(f"import torch\n{source}\n") if site.code == "GM113"]


@pytest.mark.parametrize("name", UNBOUNDED)
def test_a_coefficient_without_a_bound_is_a_mistake(name: str) -> None:
    assert alarms(UNBOUNDED[name]) == ["GM113"]


@pytest.mark.parametrize("name", [*BOUNDED, *NO_ALARM])
def test_a_coefficient_with_a_bound_is_none(name: str) -> None:
    assert alarms({**BOUNDED, **NO_ALARM}[name]) == []


def test_what_the_chinese_article_says_to_leave_out_is_found() -> None:
    text = (Path(__file__).parents[2] / "docs" / "zh" / "articles.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert [alarms(block) for block in blocks if "min(1" in block] == [["GM113"]]


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        ("a coefficient with an epsilon", "gradclip.clip_grad_norm_(params, max_norm)"),
        ("an augmented product", "paddle_rules.clip_grad_by_global_norm(theta)"),
        ("a maximum of a norm and a limit", "gradclip.clip_grads_with_norm_(params, max_grad_norm, global_grad_norm)"),
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


@pytest.mark.parametrize(
    ("first", "assumed"),
    [
        ("pass", True),
        ("params = chosen(params)", True),
        ("params = [p for p in params if p.grad is not None]", False),
        ("params = list(chosen(params))", False),
    ],
)
def test_a_rewrite_assumes_that_what_it_gets_is_no_iterator(first: str, assumed: bool) -> None:
    source = bounded_by("a number", "5").replace("    norm =", f"    {first}\n    norm =", 1)
    (site,) = migrate(source).sites
    assert site.code == "GM402"
    assert ("`params` is not an iterator" in site.assumption) == assumed
