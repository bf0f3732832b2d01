"""Common mistakes in place of gradients and rules: each message names the mistake, and says what to pass instead."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from frameworks.base import Framework

import gradclip
from gradclip import limits
from gradclip.core.errors import GradclipWarning
from gradclip.dialects import keras, optax, paddle, tensorflow, torch

RULE_CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "clip": lambda g, rule: gradclip.clip(g, rule),
    "clip_": lambda g, rule: gradclip.clip_(g, rule),
    "norm": lambda g, rule: gradclip.norm(g, rule),
    "scale_by_norm": lambda g, rule: gradclip.scale_by_norm(g, rule, 1.0),
    "scale_by_norm_": lambda g, rule: gradclip.scale_by_norm_(g, rule, 1.0),
}


TORCH = "gradclip.dialects.torch.clip_grad_norm(max_norm=1.0)"
NO_RULES: dict[str, tuple[Any, str, str]] = {  # name -> (the wrong rule, the text after Received, the hint)
    "a number": (0.5, "0.5", f"name the rule of the limit: {TORCH.replace('1.0', '0.5')}."),
    "nothing": (None, "None", f"a dialect's function returns one: {TORCH}. gradclip.Group(rule, 'encoder.*') is for some"),
    "a rule, not called": (torch.clip_grad_norm, "the function clip_grad_norm", f"call it: {TORCH}."),
    "a name": ("torch.clip_grad_norm", "'torch.clip_grad_norm'", f"the rule that does the same: {TORCH}."),
    "a dialect": (keras, "gradclip.dialects.keras", "call one of its functions: clipnorm, clipvalue, global_clipnorm."),
    "a drop-in": (gradclip.clip_grad_norm_, "the function clip_grad_norm_", f"the rule that does the same: {TORCH}."),
    "a class": (gradclip.ClipGradByNorm, "the class ClipGradByNorm", "the rule that does the same: gradclip.dialects.paddle."),
    "an object": (gradclip.ClipGradByNorm(1.0), "an object of type ", "pass the rule itself: Rule('paddle.clip_grad_by_norm'"),
    "gradients": ([np.ones(2)] * 2, "an object of type numpy.ndarray", "a dialect's function returns one: "),
}


@pytest.mark.parametrize("call", RULE_CALLS.values(), ids=RULE_CALLS)
@pytest.mark.parametrize("wrong", NO_RULES.values(), ids=NO_RULES)
def test_what_is_no_rule(backend: Framework, call: Callable[[Any, Any], Any], wrong: tuple[Any, str, str]) -> None:
    given, received, hint = wrong
    text = f"rule must be a gradclip.Rule, a gradclip.Group or a list of groups.\nReceived: rule={received}"
    for grads in (backend.make([3.0, 4.0]), []):
        with pytest.raises(TypeError) as caught:
            call(grads, given)
        assert str(caught.value).startswith(text)
        assert f"\nHint: {hint}" in str(caught.value)


#: calls that leave the rule out, of every public function and class that takes one
WITHOUT_A_RULE: dict[str, Callable[[Any], Any]] = {
    "clip": lambda g: gradclip.clip(g),
    "clip_": lambda g: gradclip.clip_(g),
    "norm": lambda g: gradclip.norm(g),
    "scale_by_norm": lambda g: gradclip.scale_by_norm(g),
    "scale_by_norm with a norm": lambda g: gradclip.scale_by_norm(g, norm=1.0),
    "scale_by_norm_": lambda g: gradclip.scale_by_norm_(g, norm=1.0),
    "Step": lambda g: gradclip.Step(),
    "Group": lambda g: gradclip.Group(),
    "clipped": lambda g: gradclip.clipped(_optax_like()),
}


def _optax_like() -> Any:
    """An optimizer by its type alone: ``clipped`` looks at the rule before the optimizer."""
    return type("GradientTransformation", (tuple,), {"__module__": "optax"})()


@pytest.mark.parametrize("call", WITHOUT_A_RULE.values(), ids=WITHOUT_A_RULE)
def test_without_a_rule(backend: Framework, call: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError) as caught:
        call(backend.make([3.0, 4.0]))
    assert str(caught.value).startswith("rule must be a gradclip.Rule")
    assert f"\nReceived: rule=None\nHint: a dialect's function returns one: {TORCH}." in str(caught.value)


def test_every_rule_is_suggested_as_it_can_be_called() -> None:
    for module in (keras, optax, paddle, tensorflow, torch):
        for name in module.__all__:
            with pytest.raises(TypeError) as caught:
                gradclip.clip([], getattr(module, name))
            call = str(caught.value).partition("Hint: call it: ")[2].rstrip(".")
            assert eval(call, {"gradclip": gradclip}).name == f"{module.__name__.rpartition('.')[2]}.{name}"


@pytest.mark.parametrize("number", [3.0, 3, True, 1j])
def test_numbers_among_the_tensors(backend: Framework, number: Any) -> None:
    for grads in (number, [number], {"w": number}, [backend.make([1.0]), number]):
        with pytest.raises(TypeError, match=r"A number is not a gradient.\nReceived: .*\nHint: pass tensors; a limit comes"):
            gradclip.clip(grads, torch.clip_grad_norm(1.0))


class Owner:
    """Has the attributes that frameworks' objects have too."""

    param_groups: ClassVar[list[Any]] = []

    def step(self) -> None:
        """An optimizer has this method."""

    def parameters(self) -> list[Any]:
        return []

    def gradient(self) -> list[Any]:
        return []

    def other(self) -> None:
        """An unknown method."""


class Other:
    def other(self) -> None:
        """An unknown method."""


def test_methods_that_were_not_called(backend: Framework) -> None:
    owner = Owner()
    for method, call in (
        (owner.parameters, "call it: model.parameters()."),
        (owner.gradient, "call it: tape.gradient(loss, variables)."),
        (owner.other, "if it returns gradients, call it: model.other()."),
        (Other().other, "if it returns gradients, call it: other.other()."),
    ):
        with pytest.raises(TypeError) as caught:
            gradclip.clip_grad_norm_(method, 1.0)
        of = type(method.__self__).__name__
        assert str(caught.value) == (
            f"A method is not a gradient: it was not called.\nReceived: the method {of}.{method.__name__}\nHint: {call}"
        )


def test_rules_and_results_among_the_gradients(backend: Framework) -> None:
    rule, g = torch.clip_grad_norm(1.0), backend.make([3.0, 4.0])
    for wrong in (rule, gradclip.Group(rule), [g, rule]):
        with pytest.raises(TypeError, match=r"A rule is not a gradient.\nReceived: .*\nHint: the gradients come first"):
            gradclip.clip(wrong, rule)
    with pytest.raises(TypeError, match=r"A result is not a gradient: it has them\.(?s:.)*Hint: pass result\.grads\."):
        gradclip.clip(gradclip.clip(g, rule), rule)


class Made(NamedTuple):
    """Like optax's transformations, and haiku's models."""

    init: Any
    update: Any


class Transformed(NamedTuple):
    init: Any
    apply: Any


@pytest.mark.parametrize(("wrong", "text"), [
    (Made(print, print), "An optimizer is not a gradient.\nReceived: optax's Made\nHint: clip the gradients first"),
    (Transformed(print, print), f"A model is not a gradient.\nReceived: an object of type {__name__}.Transformed\n"),
    (SimpleNamespace(init=print, apply=print), "A model is not a gradient.\nReceived: an object of type types.SimpleNamespace"),
    (Owner(), f"An optimizer is not a gradient.\nReceived: {__name__}.Owner\nHint: pass its parameters: [p for group in"),
    (Owner, "A class is not a gradient.\nReceived: the class Owner\nHint: make one"),
    (int, "A class is not a gradient.\nReceived: the class int\nHint: pass gradients: loss.backward()"),
    ([{"params": [], "lr": 0.5}], "The param_groups of an optimizer hold its settings beside the parameters."),
    ({"state": {}, "param_groups": [{"lr": 0.5}]}, "The state of an optimizer is not a gradient.\nReceived: a state_dict"),
])  # fmt: skip
def test_optimizers_and_models(wrong: Any, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        gradclip.clip(wrong, torch.clip_grad_norm(1.0))
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(("limit", "said"), [
    (None, "Received: max_norm=None\nHint: for no limit leave the clip out"),
    ([np.ones(9)] * 3, "Received: max_norm=a list of 3\nHint: gradients are not a limit"),
    (torch.clip_grad_value(2.0), "Received: max_norm=Rule('torch.clip_grad_value'"),
    ("x" * 99, "Received: max_norm='xxxxxxxxx"),
])  # fmt: skip
def test_what_is_no_limit_is_shown_in_a_few_words(limit: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        torch.clip_grad_norm(limit)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300


def test_errors_name_the_gradient(backend: Framework) -> None:
    grads = {"matrix": backend.make(np.ones((2, 2))), "bias": backend.make([3.0, 4.0])}
    rows = tensorflow.clip_by_norm(1.0, axes=[1])
    for call in (
        lambda: gradclip.clip(grads, rows),
        lambda: gradclip.clip(grads, gradclip.Group(rows, "bias")),
        lambda: gradclip.clip(grads, [gradclip.Group(rows, "b*"), gradclip.Group(torch.clip_grad_norm(1.0))]),
    ):
        with pytest.raises(ValueError, match=r"Received: axes=\[1\], shape=\(2,\), gradient \['bias'\]$"):
            call()
    with pytest.raises(ValueError, match=r"Received: axes=\[1\], shape=\(2,\)$"):
        gradclip.clip_by_norm(grads["bias"], 1.0, axes=[1])


def test_none_as_all_the_gradients_warns() -> None:
    with pytest.warns(GradclipWarning, match=r"There is no gradient: nothing was clipped\.\nReceived: grads=None") as record:
        assert gradclip.clip(None, torch.clip_grad_norm(1.0)).grads is None
    assert record[0].filename == __file__


A_LIMIT_EACH = "a group has its own limit: [Group(rule(l), name) for name, l in limits.items()]."
LIMITED: dict[str, Callable[[Any], Any]] = {
    "torch.clip_grad_norm": torch.clip_grad_norm,
    "torch.clip_grad_value": torch.clip_grad_value,
    "tensorflow.clip_by_norm": tensorflow.clip_by_norm,
    "tensorflow.clip_by_value": lambda limit: tensorflow.clip_by_value(-1.0, limit),
    "paddle.clip_grad_by_global_norm": paddle.clip_grad_by_global_norm,
    "optax.adaptive_grad_clip": optax.adaptive_grad_clip,
    "keras.clipnorm": keras.clipnorm,
    "clip_grad_norm_": lambda limit: gradclip.clip_grad_norm_([np.ones(2)], limit),
}


@pytest.mark.parametrize("call", LIMITED.values(), ids=LIMITED)
@pytest.mark.parametrize(
    "limit",
    [{"a": 1.0, "b": 2}, {"a": np.float32(1.0)}, {"a": gradclip.Adaptive(limits.quantile(0.9))}],
    ids=["numbers", "scalars", "adaptive"],
)
def test_a_limit_for_each_name_needs_groups(call: Callable[[Any], Any], limit: Any) -> None:
    with pytest.raises(TypeError, match="must be a number or a tensor") as caught:
        call(limit)
    assert str(caught.value).endswith(f"\nHint: {A_LIMIT_EACH}")


@pytest.mark.parametrize("limit", [limits.quantile(0.9), limits.spike(10)], ids=["quantile", "spike"])
def test_a_limit_that_follows_the_run_needs_its_state(limit: Any) -> None:
    wrong: tuple[Callable[[], Any], ...] = (
        lambda: torch.clip_grad_norm(limit),
        lambda: dataclasses.replace(torch.clip_grad_norm(1.0), skip_above=limit),
    )
    for call in wrong:
        with pytest.raises(TypeError, match=r"must be a number or a tensor(.|\n)*Hint: gradclip\.Adaptive\(limit\) has"):
            call()


def test_the_hint_for_a_limit_for_each_name_works() -> None:
    wanted, rule = {"a": 1.0, "b": 2.0}, optax.clip_by_global_norm
    groups = [gradclip.Group(rule(limit), name) for name, limit in wanted.items()]
    found = gradclip.clip({"a": np.array([4.0]), "b": np.array([4.0])}, groups).grads
    assert {name: float(x[0]) for name, x in found.items()} == wanted


def test_limits_and_rules_in_other_containers_need_groups() -> None:
    with pytest.raises(TypeError) as caught:
        torch.clip_grad_norm([1.0, 2.0])  # type: ignore[arg-type]
    assert str(caught.value).endswith("[Group(rule(l), str(i)) for i, l in enumerate(limits)].")
    with pytest.raises(TypeError) as caught:
        gradclip.clip({"a": np.ones(1)}, {"a": optax.clip(1.0)})  # type: ignore[arg-type]
    assert str(caught.value).endswith("[Group(rule, name) for name, rule in rules.items()].")
    with pytest.raises(TypeError) as caught:
        gradclip.Adaptive({"a": limits.quantile(0.9)})
    assert str(caught.value).endswith("[Group(rule(Adaptive(l)), name) for name, l in limits.items()].")
