"""The lines of code that ``gradclip explain`` prints for one framework, to be run there: a native's and gradclip's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import gradclip
from gradclip.explain import explain
from gradclip.explain.call import find
from gradclip.explain.equivalents import NEAREST, SELF
from gradclip.natives import DIALECTS, NATIVES, Kind, Native
from gradclip.natives.model import Applied

LIMIT, KNOWN = 0.75, 2.0  #: of every call; a known norm
GRADS = (np.array([3.0, -4.0], np.float32), np.array([[0.5, 0.25], [-1.0, 2.0]], np.float32))
#: how a call names its gradients; the runners of the frameworks have these names
TENSORS = {
    Applied.PARAMETERS: "parameters",
    Applied.TENSOR: "g",
    Applied.TENSORS: "grads",
    Applied.NORM: "grads",
    Applied.PAIRS: "pairs",
}
#: calls with arguments beside the limit
MORE = (
    "torch.nn.utils.clip_grad_norm_(parameters, 0.75, norm_type=1)",
    "torch.nn.utils.clip_grad_norm_(parameters, max_norm=0.75, norm_type=float('inf'), error_if_nonfinite=True)",
    "torch.nn.utils.get_total_norm(grads, 1)",
    "gradclip.dialects.torch.clip_grad_norm(0.75, norm_type=3)",
    "tf.clip_by_norm(g, 0.75, axes=[0])",
    "gradclip.dialects.tensorflow.clip_by_norm(0.75, axes=[0])",
    "tf.clip_by_global_norm(grads, 0.75, use_norm=n)",
    "tf.clip_by_value(g, -0.25, 0.5)",
    "tf.clip_by_value(clip_value_min=-0.75, clip_value_max=0.75, t=g)",
    "paddle.nn.ClipGradByGlobalNorm(0.75, auto_skip_clip=True)",
    "paddle.nn.ClipGradByValue(0.5, min=-0.25)",
    "paddle.nn.ClipGradByValue(min=-0.75, max=0.75)",
    "gradclip.dialects.optax.adaptive_grad_clip(0.75, eps=0.01)",
    "optax.clip(max_delta=0.75)",
    "optax.clip(0.0)",
    "gradclip.clip_by_norm(g, 0.75)",
)


class Printed(NamedTuple):
    """A printed line."""

    call: str  #: the explained one
    line: str
    is_nearest: bool = False


def lines(framework: str) -> list[Printed]:
    """Return every line that can be run in a framework: of its natives, and of gradclip for their calls and in their place."""
    found: dict[object, Printed] = {}
    for printed in (printed for call in calls() for printed in _of(call, framework) if printed.line):
        meaning = replace(rule_of(printed), name="", limit_name="")  # the same line for the same rule is one
        found.setdefault((printed.line, meaning, find(printed.call).api.kind is Kind.MEASURE), printed)
    return list(found.values())


def _of(call: str, framework: str) -> Iterator[Printed]:
    for same in explain(call, framework).equivalents:
        if same.framework == framework:
            yield Printed(call, same.code, same.mark == NEAREST)
            yield Printed(call, same.exactly)
            if same.mark == SELF and call.startswith(find(call).api.names):
                yield Printed(call, call.replace("tensorflow.", "tf."))
        elif find(call).api.family == framework:  # the line in gradclip, which works on the call's own tensors
            yield Printed(call, same.code)


def calls() -> Iterator[str]:
    """Return a call of each native and of each dialect's function, and calls with more arguments."""
    for native in NATIVES:
        if native.dialect and not (native.does_more and native.framework == "optax"):  # these need a noise and a key
            yield _call(native)
    for dialect, function in DIALECTS.items():
        given = "-0.75, 0.75" if dialect == "tensorflow.clip_by_value" else "0.75"
        assert callable(function)
        yield f"gradclip.dialects.{dialect}({given})"
    yield from MORE


def _call(native: Native) -> str:
    name = next((name for name in native.names if ".SGD(" in name), native.names[0]).partition("(")[0]
    if native.framework == "keras":
        return f"{name}({native.keyword}={LIMIT})"
    given = []
    first = TENSORS.get(native.applied, "")
    for place, p in enumerate(native.signature.parameters.values()):
        if p.name in native.bounds or p.name == native.keyword:
            given.append(f"{p.name}={-LIMIT if 'min' in p.name else LIMIT}")
        elif p.default is p.empty:
            given.append(f"{p.name}={first if place == 0 and first else p.name}")
    return f"{name}({', '.join(given)})"


# ---- to run them --------------------------------------------------------------------------------------------------------


def ran(line: str, names: dict[str, Any]) -> Any:
    """Run a line as a program does; return its value, or what it assigns."""
    names = {"gradclip": gradclip, "n": KNOWN, "total_norm": KNOWN, "t_list": names["grads"], **names}
    try:
        code = compile(line, "<printed>", "eval")
    except SyntaxError:
        before = dict(names)
        exec(line, names)
        if line.startswith("optimizer = "):  # the same one, which clips now
            return names["optimizer"]
        assigned = [value for name, value in names.items() if name in _ASSIGNED and before.get(name) is not value]
        return assigned[0]
    if {"g", "t"} & {*code.co_names}:  # a function of one tensor
        return [eval(code, names | {"g": g, "t": g}) for g in names["grads"]]
    return eval(code, names)


_ASSIGNED = ("grads", "result", "grad_clip")


def rule_of(printed: Printed) -> Any:
    """Return the rule that the line may name: explain prints it under the lines."""
    return eval(explain(printed.call).rule, {"gradclip": gradclip})


def check(printed: Printed, run: Callable[[str, list[np.ndarray], Any], Any]) -> None:
    """Run a line, and compare the gradients, or the norm, with the call's rule; torch's 1e-6 is within the tolerance.

    ``run`` takes the line, the gradients and the rule. It returns the clipped gradients, or the norm of a call that measures.
    """
    rule, grads = rule_of(printed), [g.astype(np.float64) for g in GRADS]
    found = run(printed.line, [g.copy() for g in GRADS], rule)
    if find(printed.call).api.kind is Kind.MEASURE:
        np.testing.assert_allclose(np.asarray(found, np.float64), float(gradclip.norm(grads, rule)), rtol=1e-5)
        return
    if printed.is_nearest and rule.is_by_value:  # two bounds, and a native with one
        rule = find(printed.line).rule
    if "use_norm" in printed.call or "total_norm" in printed.call:
        wanted = gradclip.scale_by_norm(grads, rule, KNOWN).grads
    else:
        wanted = gradclip.clip(grads, rule, params=[np.ones_like(g) for g in grads]).grads
    assert not np.array_equal(wanted[0], GRADS[0]), "the call clips"
    assert len(found) == len(wanted)
    for g, clipped in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(g, np.float64), clipped, rtol=1e-5)
