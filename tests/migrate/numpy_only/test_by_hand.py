"""Clips by norm written out in NumPy, returned or in place: each is rewritten, and both versions give the same gradients."""

from __future__ import annotations

import numpy as np
import pytest
from migrate.by_hand import agrees, refuses, source
from migrate.forms import NUMPY_NORMS as NORMS
from migrate.forms import NUMPY_SCALES as SCALES

HEADER = "import math\n\nimport numpy as np"


def make() -> list[np.ndarray]:
    drawn = np.random.default_rng(3)
    return [drawn.normal(size=(3, 4)) * 3, drawn.normal(size=5)]


@pytest.mark.drawn(60)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("norm", NORMS)
def test_a_clip_written_out_is_one_call_of_the_same_value(norm: str, scale: str) -> None:
    new = agrees(source(HEADER, NORMS[norm], SCALES[scale]), make, list)
    assert "gradclip.clip(grads, " in new or "gradclip.clip_(grads, " in new


#: another meaning by one token
OTHERS = {
    "another limit for each": "return [g * min(1.0, g.size / n) for g in grads]",
    "a list of limits": "return [g * min(1.0, one / n) for g, one in zip(grads, limit)]",
    "a list that grows": "grads.append(np.ones(3))\nreturn [g * min(1.0, limit / n) for g in grads]",
    "a function that may write": "noise(grads)\nfor g in grads:\n    g *= min(1.0, limit / n)",
    "a function that may write and returns": "x = noise(grads)\nreturn [g * min(1.0, limit / n) for g in grads]",
    "a loop that may write": "for g in grads:\n    g.fill(1)\nreturn [g * min(1.0, limit / n) for g in grads]",
    "a list of more": "more = list(grads)\nmore.append(grads[0])\nreturn [g * min(1.0, limit / n) for g in more]",
    "a list that shrinks": "del grads[0]\nreturn [g * min(1.0, limit / n) for g in grads]",
    "0 for None": "return [g * min(1.0, limit / n) if g is not None else 0 for g in grads]",
    "a global name": "global c\nc = min(1.0, limit / n)\nbump()\nreturn [g * c for g in grads]",
    "a loop around": "while more():\n    for g in grads:\n        g *= min(1.0, limit / n)",
    "turned round": "if n < limit:\n    grads = [g * limit / n for g in grads]\nreturn grads",
    "the other extreme": "return [g * max(1.0, limit / n) for g in grads]",
    "another bound": "return [g * min(2.0, limit / n) for g in grads]",
    "another limit": "if n > 2 * limit:\n    grads = [g * limit / n for g in grads]\nreturn grads",
    "some": "return [g * min(1.0, limit / n) for g in grads if g.ndim > 1]",
    "other gradients": "return [g * min(1.0, limit / n) for g in grads[1:]]",
    "divided by the coefficient": "c = min(1, limit / n)\nfor g in grads:\n    g /= c",
    "written between": "for g in grads:\n    g *= 2\nfor g in grads:\n    g *= min(1, limit / n)",
    "one written between": "grads[0] = grads[0] * 2\nreturn [g * min(1.0, limit / n) for g in grads]",
    "an else": "if n > limit:\n    grads = [g * limit / n for g in grads]\nelse:\n    grads = f(grads)\nreturn grads",
    "more in the loop": "for g in grads:\n    g *= min(1, limit / n)\n    print(g)",
    "a new array": "for g in grads:\n    g = g * min(1, limit / n)",
}


@pytest.mark.drawn(60)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("scale", OTHERS)
def test_another_meaning_is_not_rewritten(norm: str, scale: str) -> None:
    refuses(source(HEADER, NORMS[norm], OTHERS[scale]))


#: what is no norm over all gradients
OTHER_NORMS = {
    "a total that starts at one": "n = 1\nfor g in grads:\n    n += (g ** 2).sum()\nn = np.sqrt(n)",
    "a total of some": "n = 0\nfor g in grads:\n    if g.ndim > 1:\n        n += (g ** 2).sum()\nn = np.sqrt(n)",
    "a total that stops": "n = 0\nfor g in grads:\n    if n > 5:\n        break\n    n += (g ** 2).sum()\nn = np.sqrt(n)",
    "all but one": "n = 0\nfor g in grads:\n    if g is first:\n        continue\n    n += (g ** 2).sum()\nn = np.sqrt(n)",
    "no root": "n = sum(np.sum(g ** 2) for g in grads)",
    "a spectral norm": "n = np.sqrt(sum(np.linalg.norm(g, 2) ** 2 for g in grads))",
    "rows": "n = sum(sum(g ** 2) for g in grads) ** 0.5",
    "cubes": "n = np.sqrt(sum(np.sum(g ** 3) for g in grads))",
}


@pytest.mark.parametrize("norm", OTHER_NORMS)
@pytest.mark.parametrize("scale", ["a list", "in place"])
def test_another_norm_is_not_rewritten(norm: str, scale: str) -> None:
    refuses(source(HEADER, OTHER_NORMS[norm], SCALES[scale]))


EACH = {
    "a list": "return [g * min(1.0, limit / np.linalg.norm(g)) for g in grads]",
    "a maximum": "return [g * limit / max(np.linalg.norm(g), limit) for g in grads]",
    "a minimum of the norm": "return [g * (np.minimum(limit, np.linalg.norm(g)) / np.linalg.norm(g)) for g in grads]",
    "one": "grad = grads[0]\nn = np.linalg.norm(grad)\nif n > limit:\n    grad = grad * limit / n\nreturn [grad]",
    "one in place": "grad = grads[0]\nn = np.sqrt(np.sum(grad ** 2))\nif n > limit:\n    grad *= limit / n\nreturn [grad]",
}


@pytest.mark.parametrize("kind", EACH)
def test_a_clip_of_each_gradient(kind: str) -> None:
    agrees(source(HEADER, EACH[kind]), make, list)
