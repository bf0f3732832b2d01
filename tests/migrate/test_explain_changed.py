"""``gradclip explain`` of rules that only gradclip has: they skip steps, make zeros, or their limit follows the run."""

from __future__ import annotations

import dataclasses

import pytest

import gradclip
from gradclip import dialects, limits
from gradclip.explain import explain
from gradclip.explain.call import CallError, find
from gradclip.explain.compare import compare
from gradclip.explain.equivalents import FRAMEWORKS
from gradclip.explain.text import explanation_text

SKIPS = "dataclasses.replace(torch.clip_grad_norm(1.0), skip_above=3.0)"
FOLLOWS = "gradclip.Adaptive(limits.quantile(0.9))"
#: a call -> its rule as a line of code
ONLY_HERE = {
    SKIPS: "dataclasses.replace(gradclip.dialects.torch.clip_grad_norm(max_norm=1.0), skip_above=3.0)",
    f"dataclasses.replace(keras.clipnorm(2.0), skip_above={FOLLOWS}, if_nonfinite='skip')": "dataclasses.replace("
    f"gradclip.dialects.keras.clipnorm(clipnorm=2.0), skip_above={FOLLOWS}, if_nonfinite='skip')",
    "replace(optax.clip_by_global_norm(1.0), if_nonfinite='zero')": "dataclasses.replace("
    "gradclip.dialects.optax.clip_by_global_norm(max_norm=1.0), if_nonfinite='zero')",
    f"torch.clip_grad_norm({FOLLOWS})": f"gradclip.dialects.torch.clip_grad_norm(max_norm={FOLLOWS})",
    "keras.clipnorm(Adaptive(mine))": "gradclip.dialects.keras.clipnorm(clipnorm=Adaptive(mine))",
}


@pytest.mark.parametrize("text", ONLY_HERE)
def test_no_native_is_near(text: str) -> None:
    found = explain(text)
    marks = {one.framework: one.mark for one in found.equivalents}
    assert marks == {"gradclip": "exact", **dict.fromkeys(FRAMEWORKS, "no native equivalent")}
    assert {one.code for one in found.equivalents} == {
        "result = gradclip.clip(grads, rule)",
        "optimizer = gradclip.clipped(optimizer, rule)",
    }
    assert found.rule == ONLY_HERE[text]
    assert "where rule" in explanation_text(explain(text, "gradclip"), 400)


@pytest.mark.parametrize("text", list(ONLY_HERE)[:4])
def test_the_line_of_the_rule_runs(text: str) -> None:
    made = eval(explain(text).rule, {"dataclasses": dataclasses, "gradclip": gradclip, "limits": limits})
    assert isinstance(made, gradclip.Rule)
    assert made.name == find(text).name


def test_a_rule_relative_to_the_parameters_gets_them() -> None:
    (ours, one) = explain("dataclasses.replace(optax.adaptive_grad_clip(0.1), skip_above=1.0)", "tensorflow").equivalents
    assert ours.code == one.code == "result = gradclip.clip(grads, rule, params=params)"


def test_what_happens_then() -> None:
    found = explain(SKIPS)
    assert found.formula[0] == "no step if n > 3.0; else"
    assert [edge.does for edge in found.edges[:2]] == ["no step is taken"] * 2
    each = explain("dataclasses.replace(keras.clipnorm(1.0), skip_above=c)")
    assert each.formula[0] == "no step if an n > c; else"
    zero = explain("dataclasses.replace(torch.clip_grad_norm(1.0), skip_above=3.0, if_nonfinite='zero')")
    assert [edge.does for edge in zero.edges[:2]] == ["every element that the norm covers becomes 0"] * 2


@pytest.mark.parametrize("change", ["skip_above=None", "if_nonfinite='propagate'"])
def test_a_change_to_what_it_was(change: str) -> None:
    found, plain = (explain(text) for text in (f"dataclasses.replace(optax.clip(1.0), {change})", "optax.clip(1.0)"))
    assert dataclasses.replace(found, call=plain.call) == plain


def test_an_error_is_what_torch_has_too() -> None:
    found, plain = (
        explain(f"{text})")
        for text in (
            "dataclasses.replace(torch.clip_grad_norm(1.0), if_nonfinite='raise'",
            "torch.clip_grad_norm(1.0, error_if_nonfinite=True",
        )
    )
    assert dataclasses.replace(found, call=plain.call) == plain


def test_what_gradclip_refuses() -> None:
    found = explain("dataclasses.replace(torch.clip_grad_value(1.0), skip_above=3.0)")
    with pytest.raises(ValueError, match="no norm that could skip") as caught:
        dataclasses.replace(dialects.torch.clip_grad_value(1.0), skip_above=3.0)
    assert found.refused == str(caught.value).replace("\n", " ")
    assert found.equivalents == ()


@pytest.mark.parametrize("fields", ["limit=2.0", "skip_above=1.0, order=1.0", "**options"])
def test_other_fields(fields: str) -> None:
    text = f"dataclasses.replace(torch.clip_grad_norm(1.0), {fields})"
    with pytest.raises(CallError) as caught:
        find(text)
    assert str(caught.value) == (
        "Of dataclasses.replace explain knows skip_above= and if_nonfinite=.\n"
        f"Received: {text}\nHint: give the rest to the function that makes the rule."
    )


def test_two_are_compared_without_numbers() -> None:
    found = compare(SKIPS, "torch.clip_grad_norm(1.0)")
    assert [one.what for one in found.differences] == ["computes", "infinity", "NaN"]
    assert found.same == "There is no example for a rule that skips steps or makes zeros."
