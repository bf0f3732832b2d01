"""Every public function on wrong arguments: a weight, a state or a loss stays the same, bit for bit."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import gradclip
from gradclip.core.errors import GradclipError
from gradclip.dialects import optax, tensorflow, torch

GLOBAL, EACH, VALUE = torch.clip_grad_norm(0.1), tensorflow.clip_by_norm(0.1), torch.clip_grad_value(0.1)
RULES = {"global": GLOBAL, "each": EACH, "value": VALUE, "rms": optax.clip_by_block_rms(0.1)}


def _of_rules(function: Callable[..., Any], *arguments: Any) -> dict[str, Callable[[Any], Any]]:
    return {
        f"{function.__name__}-{name}": lambda given, rule=rule: function(given, rule, *arguments)
        for name, rule in RULES.items()
    }


#: name -> a call of a public function on the user's argument
CALLS: dict[str, Callable[[Any], Any]] = {
    **_of_rules(gradclip.clip),
    **_of_rules(gradclip.clip_),
    "norm": lambda given: gradclip.norm(given, GLOBAL),
    "scale_by_norm": lambda given: gradclip.scale_by_norm(given, GLOBAL, 10.0),
    "scale_by_norm_": lambda given: gradclip.scale_by_norm_(given, GLOBAL, 10.0),
    "groups": lambda given: gradclip.clip_(given, [gradclip.Group(GLOBAL)]),
    "clip_grad_norm_": lambda given: gradclip.clip_grad_norm_(given, 0.1),
    "clip_grad_value_": lambda given: gradclip.clip_grad_value_(given, 0.1),
    "clip_grads_with_norm_": lambda given: gradclip.clip_grads_with_norm_(given, 0.1, 10.0),
    "get_total_norm": gradclip.get_total_norm,
    "clip_by_norm": lambda given: gradclip.clip_by_norm(given, 0.1),
    "clip_by_global_norm": lambda given: gradclip.clip_by_global_norm(given, 0.1),
    "clip_by_value": lambda given: gradclip.clip_by_value(given, -0.1, 0.1),
    "global_norm": gradclip.global_norm,
    "ClipGradByNorm": lambda given: gradclip.ClipGradByNorm(0.1)([("p", g) for g in given]),
    "ClipGradByValue": lambda given: gradclip.ClipGradByValue(0.1)([("p", g) for g in given]),
}


def keeps(call: Callable[[Any], Any], given: Any, values: Callable[[], list[np.ndarray[Any, Any]]]) -> None:
    """Call a function, which may raise, and assert that these values do not change, bit for bit."""
    before = [np.array(x, copy=True) for x in values()]
    with contextlib.suppress(GradclipError, TypeError, ValueError, RuntimeError), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch warns too, about the .grad of a non-leaf
        call(given)
    after = values()
    assert all(x.tobytes() == y.tobytes() for x, y in zip(before, after, strict=True))
    assert any(np.abs(x).max() > 0.2 for x in before)  # a clip would have changed them
