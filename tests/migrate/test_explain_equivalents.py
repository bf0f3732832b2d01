"""``gradclip explain``: marks and sentences at extreme limits and bounds, and rules that no native comes near or has."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from typing import Any

import pytest

from gradclip.commands import cli
from gradclip.core.rule import Rule, Scope
from gradclip.explain import explain, names
from gradclip.explain.call import CallError
from gradclip.explain.equivalents import FRAMEWORKS, Equivalent
from gradclip.natives import BY_DIALECT, DIALECTS, NATIVES
from gradclip.natives.meaning import UNKNOWN, value_of
from gradclip.natives.model import Applied


def equivalent(text: str, to: str) -> Equivalent:
    return next(found for found in explain(text, to).equivalents if found.framework == to)


# ---- a limit of infinity ------------------------------------------------------------------------------------------------

INFINITE = {
    "torch": "torch.nn.utils.clip_grad_norm_(p, {})",
    "tensorflow": "tf.clip_by_global_norm(grads, {})",
    "keras": "keras.optimizers.SGD(global_clipnorm={})",
    "paddle": "paddle.nn.ClipGradByGlobalNorm({})",
    "jax": "optax.clip_by_global_norm({})",
}
#: what the natives do there; ``*_only/test_table.py`` run them. The nearest to torch's in Paddle is another function
ALWAYS_NAN = {"tensorflow", "keras", "paddle"}
INFINITELY = r"Natively, with a limit of inf: in \w+ every gradient becomes NaN"
SPELT = ("inf", "float('inf')", 'float("Infinity")', "+math.inf", "np.inf", "1e999", "torch.inf")


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(INFINITE, 2)))
def test_at_a_limit_of_infinity_the_mark_says_whether_the_natives_do_the_same(one: str, other: str) -> None:
    """Neither torch's 1e-6 nor an infinite norm makes a difference there."""
    is_alike = (one in ALWAYS_NAN) == (other in ALWAYS_NAN) or (one, other) == ("torch", "paddle")
    for limit in SPELT:
        found = equivalent(INFINITE[one].format(limit), other)
        assert found.mark == ("within rounding" if is_alike else "nearest"), limit
        assert len(found.differs) == (0 if is_alike else 1)
        assert all(re.match(INFINITELY, said) for said in found.differs)


@pytest.mark.parametrize("text", [*SPELT, "-inf", "float('-inf')", "-float('inf')", "+inf"])
def test_infinity_is_read_in_any_spelling(text: str) -> None:
    assert value_of(text) == (-math.inf if "-" in text else math.inf)


@pytest.mark.parametrize(
    ("text", "value"), [("float('1.5')", 1.5), ("-float(2)", -2.0), ("[0, -1]", [0, -1]), ("'inf'", "inf")]
)
def test_a_literal_is_read(text: str, value: object) -> None:
    assert value_of(text) == value


@pytest.mark.parametrize(
    "text", ["x.inf", "float(x)", "float('x')", "inf()", "-x", "float('1', 2)", "float(*x)", "inf2", "-[1]"]
)
def test_other_code_is_unknown(text: str) -> None:
    assert value_of(text) is UNKNOWN


# ---- bounds -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "code"),
    [
        ("torch", "torch.nn.utils.clip_grad_value_(parameters, 0.0)"),
        ("paddle", "paddle.nn.utils.clip_grad_value_(parameters, 0.0)"),
        ("tensorflow", "[None if g is None else tf.clip_by_value(g, -0.0, 0.0) for g in grads]"),
    ],
)
@pytest.mark.parametrize("text", ["optax.clip(0.0)", "gradclip.dialects.optax.clip(0.0)"])
def test_a_bound_of_0_has_an_exact_equivalent(text: str, to: str, code: str) -> None:
    """``paddle.nn.ClipGradByValue`` refuses it, and in Keras it is off; ``paddle.nn.utils`` has a function that takes it."""
    found = equivalent(text, to)
    assert (found.mark, found.code) == ("exact", code)


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("tf.clip_by_value(g, -1.0, 2.0)", "2.0"),
        ("paddle.nn.ClipGradByValue(0.5, -0.25)", "0.5"),
        ("tf.clip_by_value(g, low, high)", "high"),
        ("fluid.dygraph_grad_clip.GradClipByValue(-1.0, 2.0)", "2.0"),
    ],
)
@pytest.mark.parametrize(("to", "title"), [("torch", "torch"), ("keras", "Keras"), ("jax", "optax")])
def test_two_bounds_are_nearest_to_one(text: str, bound: str, to: str, title: str) -> None:
    found = equivalent(text, to)
    assert found.mark == "nearest"
    assert found.differs == (f"{title} has one bound: it clips from -{bound} to {bound}.",)
    assert bound in found.code
    assert "rule" in found.exactly


# ---- no equivalent ------------------------------------------------------------------------------------------------------

TITLES = ("torch", "TensorFlow", "Keras", "Paddle", "optax")


def meaning(rule: Rule) -> tuple[object, ...]:
    """What a user would call the clip; the arithmetic beside it only makes a native the nearest, and not the same."""
    return rule.scope, rule.mean, rule.order, rule.axes, rule.relative_to is None


@pytest.mark.parametrize("dialect", sorted(BY_DIALECT))
def test_no_equivalent_is_said_only_where_no_native_comes_near(dialect: str) -> None:
    """A framework with a clip of the same kind has an equivalent, or a nearest one with a sentence that says what differs."""
    native = BY_DIALECT[dialect]
    kinds = {
        framework: {meaning(other.rule()) for other in NATIVES if other.is_own and other.family == framework}
        for framework in FRAMEWORKS
    }
    given = "(-1.0, 2.0)" if len(native.needed) > 1 else "(1.0)"
    for found in explain(f"gradclip.dialects.{dialect}{given}").equivalents:
        if found.framework == "gradclip" or found.mark == "this call":
            continue
        has_one = meaning(native.rule()) in kinds[found.framework]
        assert (found.mark != "no native equivalent") == has_one, found
        assert bool(found.differs) == (found.mark == "nearest"), found
        for said in found.differs:
            assert said.endswith("."), said
            assert any(title in said for title in TITLES), said


# ---- the spelling -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("native", [native for native in NATIVES if native.dialect], ids=lambda native: native.code)
def test_tensorflow_has_one_spelling_in_printed_code(native: Any) -> None:
    for text in (native.code, f"gradclip.dialects.{native.dialect}"):
        for found in explain(text).equivalents:
            assert "tensorflow." not in found.code.replace("gradclip.dialects.tensorflow.", ""), found
            assert "tensorflow." not in found.note


# ---- a rule without a record ----------------------------------------------------------------------------------------------


def clip_by_example_mean(most: float) -> Rule:
    """A made-up rule."""
    return Rule(name="optax.clip_by_example_mean", scope=Scope.EXAMPLE, limit=most, limit_name="most", mean=True)


@pytest.mark.parametrize(
    "text",
    [
        "optax.clip_by_example_mean",
        "optax.clip_by_example_mean(1.0)",
        "gradclip.dialects.optax.clip_by_example_mean(most=1.0)",
        "gradclip.clip(grads, optax.clip_by_example_mean(1.0))",
        "clip_by_example_mean(2.0)",
        "optax.ClipByExampleMean(1.0)",
    ],
)
def test_a_rule_without_a_record_is_said_so(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known: Mapping[str, Any] = {**DIALECTS, "optax.clip_by_example_mean": clip_by_example_mean}
    monkeypatch.setattr(names, "DIALECTS", known)
    with pytest.raises(CallError) as caught:
        explain(text)
    said = "The catalogue has no native with this rule, so gradclip cannot explain it.\nReceived: optax.clip_by_example_mean"
    assert str(caught.value) == said
    assert cli.main(["explain", text, "torch.clip_grad_norm"]) == 2
    assert capsys.readouterr().err == f"{said}\n"


def test_every_rule_is_named_after_a_native() -> None:
    assert set(BY_DIALECT) == set(DIALECTS)
    assert all(native.applied is not Applied.NORM for native in BY_DIALECT.values())


# ---- gradclip's own rules -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "to", "code"),
    [
        ("gradclip.dialects.optax.clip(0.5)", "jax", "optax.clip(0.5)"),
        ("gradclip.dialects.optax.clip_by_block_rms(0.5)", "jax", "optax.clip_by_block_rms(0.5)"),
        ("gradclip.dialects.tensorflow.clip_by_norm(0.5, axes=[0])", "tensorflow", "tf.clip_by_norm(t, 0.5, axes=[0])"),
        ("gradclip.dialects.keras.clipvalue(0.5)", "keras", "keras.optimizers.Adam(clipvalue=0.5)"),
        ("gradclip.dialects.paddle.clip_grad_by_norm(0.5)", "paddle", "paddle.nn.ClipGradByNorm(0.5)"),
    ],
)
def test_a_rule_of_gradclip_is_no_native_call(text: str, to: str, code: str) -> None:
    """Also where the native has the same name."""
    found = equivalent(text, to)
    assert (found.mark, found.code) == ("this call", code)


def test_a_rule_relative_to_the_parameters_gets_them() -> None:
    found = equivalent("optax.adaptive_grad_clip(0.01)", "tensorflow")
    assert found.code == "grads = gradclip.clip(grads, rule, params=params).grads"


def test_a_line_in_gradclip_names_the_tensors_of_the_call() -> None:
    ours = explain("slim.learning.clip_gradient_norms(mine, 2.0)", "gradclip").equivalents[0]
    assert ours.code == "[(None if g is None else gradclip.clip_by_norm(g, 2.0), v) for g, v in mine]"
