"""``gradclip explain``: what it says of one call, and its equivalents."""

from __future__ import annotations

import contextlib
import math

import pytest

import gradclip
import gradclip.migrate
import gradclip.natives
from gradclip.explain import explain, words
from gradclip.explain.call import CallError, find
from gradclip.explain.equivalents import FRAMEWORKS
from gradclip.natives import DIALECTS, NATIVES
from gradclip.natives.numbers import clipped

# ---- the text for a call ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("tf.clip_by_norm(g, c)", ["g * c / max(n, c)", "n = sqrt(sum of g**2)"]),
        ("torch.nn.utils.clip_grad_norm_(p, 1.0, 1)", ["g * min(1, 1.0 / (n + 1e-06))", "n = sum of |g|"]),
        ("torch.clip_grad_norm(1.0, 3)", ["g * min(1, 1.0 / (n + 1e-06))", "n = (sum of |g|**3) ** (1 / 3)"]),
        ("torch.clip_grad_norm(1.0, inf)", ["g * min(1, 1.0 / (n + 1e-06))", "n = the largest |g|"]),
        ("torch.clip_grad_norm(2, 0)", ["g * min(1, 2 / (n + 1e-06))", "n = the number of gradients that are not all zero"]),
        ("torch.nn.utils.clip_grads_with_norm_(p, 2, n)", ["g * min(1, 2 / (n + 1e-06))", "n = total_norm, which is given"]),
        ("tf.clip_by_global_norm(g, 1.0, use_norm=t)", ["g * 1.0 / max(n, 1.0)", "n = use_norm, which is given"]),
        ("tf.linalg.global_norm(g)", ["n = sqrt(sum of g**2)"]),
        ("optax.clip_by_block_rms(2.0)", ["g * 2.0 / max(n, 2.0)", "n = sqrt(mean of g**2)"]),
        (
            "optax.adaptive_grad_clip(0.1, eps=0.01)",
            [
                "g * min(1, L / max(n, 1e-06))",
                "L = 0.1 * max(the norm of the same unit of its parameter, 0.01)",
                "n = sqrt(sum of g**2)",
            ],
        ),
        (
            "optax.per_example_global_norm_clip(grads, 1.0)",
            ["sum over the examples b of g[b] * min(1, 1.0 / n[b])", "n[b] = sqrt(sum of g[b]**2)"],
        ),
        ("torch.clip_grad_value(0.5)", ["max(min(g, 0.5), -0.5)"]),
        ("torch.clip_grad_value(a + b)", ["max(min(g, a + b), -(a + b))"]),
        ("tf.clip_by_value(g, -1, 2)", ["max(min(g, 2), -1)"]),
        ("paddle.nn.ClipGradByValue(2.0)", ["max(min(g, 2.0), -2.0)"]),
        ("paddle.nn.ClipGradByValue(2.0, min=-1.0)", ["max(min(g, 2.0), -1.0)"]),
        ("set_gradient_clip", []),
    ],
)
def test_the_formula(text: str, lines: list[str]) -> None:
    assert list(explain(text).formula) == lines


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("torch.clip_grad_norm", "one norm over all gradients together"),
        ("tf.clip_by_norm(g, 5.0)", "each gradient by its own norm"),
        ("tf.clip_by_norm(g, 5.0, axes=[0])", "each slice by its own norm, over axes=[0]"),
        ("tf.clip_by_norm(g, 5.0, axes=ax)", "each slice by its own norm, over axes=ax"),
        ("optax.adaptive_grad_clip(0.1, axis=1)", "each slice of each gradient over the axes (1,)"),
        ("optax.clip", "each element separately; there is no norm"),
    ],
)
def test_the_scope(text: str, scope: str) -> None:
    assert explain(text).scope == scope


def edge(text: str, case: str) -> tuple[str, str]:
    return next((found.does, found.native) for found in explain(text).edges if found.case == case)


def test_the_edges() -> None:
    """``*_only/test_table.py`` run the natives in these cases."""
    assert edge("tf.clip_by_global_norm(g, 1.0)", "infinity") == ("every element that the norm covers becomes NaN", "")
    assert edge("optax.clip_by_global_norm(1.0)", "infinity") == ("finite elements become 0, infinite ones NaN", "")
    assert edge("paddle.nn.ClipGradByGlobalNorm(1.0, 'g', True)", "NaN") == ("nothing that the norm covers is clipped", "")
    assert edge("torch.clip_grad_norm(1.0, error_if_nonfinite=True)", "NaN")[0].startswith("an error that names")
    assert edge("keras.clipnorm", "limit 0") == ("off: nothing is clipped", "")
    assert edge("tf.clip_by_norm", "limit 0") == ("zeros", "zero gradients become NaN")
    assert edge("tf.clip_by_norm", "limit < 0") == ("counts as 0", "zero gradients become NaN")
    iterator = edge("paddle.nn.utils.clip_grad_norm_", "an iterator")
    assert iterator == ("it is read once", "it returns the norm, and clips nothing")


def test_what_the_natives_do_is_in_the_departures_too() -> None:
    """A departure about an edge case and a native has a short text."""
    edges = {key for key in words.EDGES.values() if key}
    assert [native.code for native in NATIVES if native.is_own and edges & set(native.departs_also)] == []
    assert {key for native in NATIVES for key in native.departs} <= set(words.EDGES.values())
    assert all(native.is_own for native in NATIVES if native.departs)


def same(text: str, to: str) -> tuple[str, str]:
    return next((found.mark, found.code) for found in explain(text, to).equivalents if found.framework == to)


NONE = "no native equivalent"
KERAS, TORCH = "optimizer = gradclip.clipped(optimizer, rule)", "gradclip.clip_(model.parameters(), rule)"


@pytest.mark.parametrize(
    ("text", "to", "mark", "code"),
    [
        ("tf.clip_by_norm(g, 5.0)", "keras", "within rounding", "keras.optimizers.Adam(clipnorm=5.0)"),
        ("tf.clip_by_norm(g, 5.0, axes=[0])", "keras", NONE, KERAS),
        ("tf.clip_by_norm(g, 0.0)", "keras", NONE, KERAS),
        ("tf.clip_by_norm(g, 5.0)", "torch", NONE, TORCH),
        ("tf.clip_by_norm(g, 5.0)", "tensorflow", "this call", ""),
        ("tf.clip_by_value(g, -c, c)", "jax", "exact", "optax.chain(optax.clip(c), optimizer)"),
        ("tf.clip_by_value(g, -1.0, 1)", "torch", "exact", "torch.nn.utils.clip_grad_value_(parameters, 1)"),
        ("tf.clip_by_value(g, -1.0, 2.0)", "torch", "nearest", "torch.nn.utils.clip_grad_value_(parameters, 2.0)"),
        ("tf.clip_by_value(g, low, high)", "torch", "nearest", "torch.nn.utils.clip_grad_value_(parameters, high)"),
        ("tf.clip_by_value", "torch", "nearest", "torch.nn.utils.clip_grad_value_(parameters, clip_value_max)"),
        (
            "torch.nn.utils.clip_grad_norm_(p, 1.0, foreach=True)",
            "paddle",
            "within rounding",
            "paddle.nn.utils.clip_grad_norm_(p, 1.0)",
        ),
        ("torch.nn.utils.clip_grad_norm(p, 1.0)", "torch", "exact", "torch.nn.utils.clip_grad_norm_(p, 1.0)"),
        ("torch.nn.utils.clip_grad_norm_(p, 1.0)", "gradclip", "within rounding", "gradclip.clip_grad_norm_(p, 1.0)"),
        ("torch.clip_grad_norm(1.0)", "gradclip", "within rounding", "gradclip.clip_grad_norm_(parameters, 1.0)"),
        ("torch.nn.utils.get_total_norm(g)", "tensorflow", "within rounding", "tf.linalg.global_norm(g)"),
        ("torch.nn.utils.get_total_norm(g, 1)", "tensorflow", NONE, "gradclip.norm(grads, rule)"),
        ("torch.nn.utils.get_total_norm(g, 1)", "jax", NONE, "gradclip.norm(grads, rule)"),
        ("torch.nn.utils.get_total_norm(g, p)", "jax", NONE, "gradclip.norm(grads, rule)"),
        ("torch.nn.utils.get_total_norm(g, error_if_nonfinite=True)", "tensorflow", NONE, "gradclip.norm(grads, rule)"),
        ("optax.tree.norm(g, ord=1)", "torch", "within rounding", "torch.nn.utils.get_total_norm(g, norm_type=1)"),
        ("optax.tree.norm(g, ord=None)", "torch", "within rounding", "torch.nn.utils.get_total_norm(g)"),
        (
            "optax.tree.norm(g, ord=1)",
            "gradclip",
            "within rounding",
            'gradclip.norm(g, gradclip.dialects.torch.clip_grad_norm(max_norm=float("inf"), norm_type=1))',
        ),
        ("tf.clip_by_global_norm(g, 1.0)", "keras", "within rounding", "keras.optimizers.Adam(global_clipnorm=1.0)"),
        (
            "tf.clip_by_global_norm(g, 1.0, use_norm=n)",
            "keras",
            NONE,
            "grads = gradclip.scale_by_norm(grads, rule, n).grads",
        ),
        ("fluid.clip.GradientClipByNorm(2.0)", "paddle", "within rounding", "paddle.nn.ClipGradByNorm(2.0)"),
        (
            "fluid.dygraph_grad_clip.GradClipByValue(-1.0, 2.0)",
            "paddle",
            "exact",
            "paddle.nn.ClipGradByValue(max=2.0, min=-1.0)",
        ),
        (
            "fluid.clip.GradientClipByNorm(2.0, need_clip=f)",
            "paddle",
            NONE,
            "optimizer = gradclip.clipped(optimizer, rule)",
        ),
        ("fluid.clip.GradientClipByNorm(2.0, need_clip=f)", "gradclip", "nearest", "gradclip.GradientClipByNorm(2.0)"),
        (
            "fluid.clip.GradientClipByNorm(2.0, need_clip=None)",
            "gradclip",
            "within rounding",
            "gradclip.GradientClipByNorm(2.0)",
        ),
        (
            "keras.optimizers.SGD(0.1, clipnorm=1.0)",
            "gradclip",
            "within rounding",
            "gradclip.backends.keras.clipped(keras.optimizers.SGD(0.1), gradclip.dialects.keras.clipnorm(1.0))",
        ),
        (
            "optax.clip(1.0)",
            "gradclip",
            "exact",
            "gradclip.backends.jax.gradient_transformation(gradclip.dialects.optax.clip(1.0))",
        ),
        ("optax.per_example_global_norm_clip(g, 1.0)", "torch", NONE, "result = gradclip.clip(grads, rule)"),
    ],
)
def test_equivalents(text: str, to: str, mark: str, code: str) -> None:
    assert same(text, to) == (mark, code)


GLOBAL = {
    "torch": ("torch.nn.utils.clip_grad_norm_(parameters, 1.0)", "torch.nn.utils.clip_grad_norm_(p, 1.0)"),
    "tensorflow": ("grads, norm = tf.clip_by_global_norm(grads, 1.0)", "tf.clip_by_global_norm(g, 1.0)"),
    "keras": ("keras.optimizers.Adam(global_clipnorm=1.0)", "keras.optimizers.SGD(global_clipnorm=1.0)"),
    "paddle": (
        "paddle.optimizer.Adam(parameters=parameters, grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0))",
        "paddle.nn.ClipGradByGlobalNorm(1.0)",
    ),
    "jax": ("optax.chain(optax.clip_by_global_norm(1.0), optimizer)", "optax.clip_by_global_norm(1.0)"),
}
TITLES = {"torch": "torch", "tensorflow": "TensorFlow", "keras": "Keras", "paddle": "Paddle", "jax": "optax"}
NAN_IF_INFINITE = {"tensorflow", "keras"}


@pytest.mark.parametrize("one", GLOBAL)
@pytest.mark.parametrize("other", GLOBAL)
def test_the_clips_by_one_norm_are_each_others_nearest(one: str, other: str) -> None:
    """They differ in torch's 1e-6, and in what an infinite norm does."""
    if one == other:
        return
    (found,) = (found for found in explain(GLOBAL[one][1], other).equivalents if found.framework == other)
    sentences = []
    if "torch" in (one, other) and {one, other} != {"torch", "paddle"}:
        sentences.append("torch adds 1e-06 to the norm: a clipped norm is up to 1e-06 below the limit.")
    if (one in NAN_IF_INFINITE) != (other in NAN_IF_INFINITE):
        nan, zero = (one, other) if one in NAN_IF_INFINITE else (other, one)
        sentences.append(
            f"An infinite norm makes every gradient NaN in {TITLES[nan]}; in {TITLES[zero]} it makes finite elements 0."
        )
    if {one, other} == {"torch", "paddle"} and one == "torch":
        assert found.code == "paddle.nn.utils.clip_grad_norm_(p, 1.0)"
    else:
        assert found.code == GLOBAL[other][0]
    if {one, other} == {"torch", "paddle"} and one == "paddle":
        sentences = ["torch adds 1e-06 to the norm: a clipped norm is up to 1e-06 below the limit."]
    assert found.differs == tuple(sentences)
    assert found.mark == ("nearest" if sentences else "within rounding")
    assert bool(found.exactly) == bool(sentences)


@pytest.mark.parametrize(
    ("text", "to", "sentence"),
    [
        ("torch.nn.utils.clip_grad_norm_(p, inf)", "jax", ""),
        (
            "torch.nn.utils.clip_grad_norm_(p, inf)",
            "tensorflow",
            "Natively, with a limit of inf: in torch every gradient becomes NaN if one is infinite; in TensorFlow every "
            "gradient becomes NaN.",
        ),
        (
            "optax.clip_by_global_norm(0)",
            "torch",
            "Natively, with a limit of 0: in optax gradients become NaN if all are zero.",
        ),
        (
            "torch.nn.utils.clip_grad_norm_(p, 1.0, error_if_nonfinite=True)",
            "jax",
            "torch raises an error if the norm is not finite; optax clips by it.",
        ),
        (
            "paddle.nn.ClipGradByGlobalNorm(1.0, auto_skip_clip=True)",
            "jax",
            "A NaN norm clips nothing in Paddle; in optax it makes every gradient NaN.",
        ),
    ],
)
def test_the_arguments_decide_what_differs(text: str, to: str, sentence: str) -> None:
    differs = next(found.differs for found in explain(text, to).equivalents if found.framework == to)
    assert sentence in differs if sentence else not any("Natively" in said for said in differs)


ALONE = ("optax.clip_by_block_rms(1.0)", "optax.per_example_global_norm_clip(g, 1.0)", "optax.adaptive_grad_clip(0.01)")


@pytest.mark.parametrize("text", [*ALONE, *(f"gradclip.dialects.{text.replace('g, ', '')}" for text in ALONE)])
def test_nothing_comes_near_some_rules(text: str) -> None:
    marks = {found.framework: found.mark for found in explain(text).equivalents}
    assert marks == {"gradclip": marks["gradclip"], **dict.fromkeys(FRAMEWORKS, NONE), "jax": "this call"}
    assert marks["gradclip"] == "within rounding" or text.startswith("gradclip")


def test_a_rule_of_gradclip_shows_the_native_that_it_is_named_after() -> None:
    for text, code in (
        ("gradclip.dialects.keras.clipnorm(2.0)", "keras.optimizers.Adam(clipnorm=2.0)"),
        ("keras.clipvalue(2.0)", "keras.optimizers.Adam(clipvalue=2.0)"),
        ("torch.clip_grad_norm(2.0, 1)", "torch.nn.utils.clip_grad_norm_(parameters, 2.0, norm_type=1)"),
        ("gradclip.clip_by_norm(g, 2.0)", "tf.clip_by_norm(g, 2.0)"),
    ):
        found = explain(text).equivalents
        assert code in [one.code for one in found if one.mark == "this call"]
    ours = explain("keras.clipnorm(2.0)").equivalents[0]
    assert ours.code == "gradclip.backends.keras.clipped(optimizer, gradclip.dialects.keras.clipnorm(2.0))"


ARGUMENTS = ("", "'1.0'", "b'1'", "[1]", "{}", "1j", "10**400", "f'{x}'", "...", "-1", "0", "*a", "**a")


@pytest.mark.parametrize("name", sorted({name for api in NATIVES for name in (*api.names[:3], api.code)} | set(DIALECTS)))
def test_any_input_is_explained_or_refused_in_words(name: str) -> None:
    for argument in ARGUMENTS:
        for text in {f"{name}({argument})", f"{name}(g, {argument})", f"{name.replace('=)', f'={argument})')}"}:
            with contextlib.suppress(CallError):
                assert explain(text).as_json()["call"] == text


@pytest.mark.parametrize("text", ["", " ", "()", "(" * 300 + ")" * 300, "\0", "=)", "x(=)", "torch..x", "GT999", "1()", "é"])
def test_no_call_is_refused_in_words(text: str) -> None:
    with pytest.raises(CallError):
        explain(text)


def test_only_one_framework() -> None:
    assert [found.framework for found in explain("optax.clip(1.0)", "torch").equivalents] == ["gradclip", "torch"]
    assert [found.framework for found in explain("optax.clip(1.0)").equivalents] == ["gradclip", *FRAMEWORKS]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_code_of_a_rule_makes_it(dialect: str) -> None:
    given = {"tensorflow.clip_by_value": "(-2.0, 3.0)", "paddle.clip_grad_by_value": "(2.0, -3.0)"}.get(dialect, "(2.0)")
    found = explain(f"gradclip.dialects.{dialect}{given}")
    assert eval(found.rule, {"gradclip": gradclip}) == find(dialect + given).rule


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("keras.optimizers.Adam(clipnorm=0)", "g: nothing is clipped"),
        ("keras.clipvalue(0.0)", "g: nothing is clipped"),
        ("torch.nn.utils.clip_grad_norm_(p, float('inf'))", "g: nothing is clipped"),
        ("tf.clip_by_value(g, -inf, inf)", "g: nothing is clipped"),
        ("tf.clip_by_value(g, 0, inf)", "max(min(g, inf), 0)"),
        ("optax.adaptive_grad_clip(inf)", "g: nothing is clipped"),
        ("optax.per_example_global_norm_clip(inf)", "sum over the examples b of g[b]: nothing is clipped"),
        ("optax.per_example_global_norm_clip(0)", "sum over the examples b of g[b] * 0"),
        ("optax.clip_by_global_norm(0.0)", "g * 0"),
        ("tf.clip_by_norm(g, -1.0)", "g * 0"),
        ("torch.nn.utils.clip_grad_norm_(p, 0)", "g * min(1, 0 / (n + 1e-06))"),
        ("torch.nn.utils.clip_grad_norm_(p, 1 + 1)", "g * min(1, (1 + 1) / (n + 1e-06))"),
        ("torch.nn.utils.clip_grad_norm_(p, '1.0')", "g * min(1, 1.0 / (n + 1e-06))"),
        ("tf.clip_by_norm(g, a if b else c)", "g * (a if b else c) / max(n, (a if b else c))"),
        ("tf.clip_by_norm(g, limits[0])", "g * limits[0] / max(n, limits[0])"),
        ("tf.clip_by_value(g, -a - b, a + b)", "max(min(g, a + b), -a - b)"),
    ],
)
def test_the_formula_is_what_gradclip_computes(text: str, formula: str) -> None:
    """At an extreme limit neither inf / inf nor 0 / 0, and no clip where 0 is off; and a limit is one factor."""
    assert explain(text).formula[0] == formula


PLAIN = """\
torch.clip_grad_norm torch.clip_grad_value tensorflow.clip_by_norm tensorflow.clip_by_global_norm keras.clipnorm keras.clipvalue
keras.global_clipnorm paddle.clip_grad_by_norm optax.clip optax.clip_by_global_norm optax.clip_by_block_rms
"""
EDGES = [[[3.0, 4.0], [0.5, 0.0]], [[0.6, 0.8], [0.0]], [[0.0, 0.0], [0.0]], [[1e-20, 1e-21], [-1e-22]], [[-3.0, 2.0], [-0.1]]]


@pytest.mark.parametrize("limit", ["1.0", "0", "-0.0", "inf", "-1.0", "1e-30", "1e30", "float('inf')"])
@pytest.mark.parametrize("name", PLAIN.split())
def test_the_formula_gives_the_numbers_of_the_rule(name: str, limit: str) -> None:
    call = find(f"{name}({limit})")
    if call.refused:
        return
    assert call.rule is not None
    first, *rest = words.formula(call, call.rule)
    names = {"inf": math.inf, "sqrt": math.sqrt, "max": max, "min": min}
    for gradients in EDGES:
        wanted = clipped(call.rule, gradients)
        for gradient, want in zip(gradients, wanted, strict=True):
            over = [x for one in gradients for x in one] if call.rule.is_total else gradient
            squares = sum(x * x for x in over) / (len(over) if call.rule.mean else 1)
            n = math.sqrt(squares)
            assert not rest or rest == [f"n = sqrt({'mean' if call.rule.mean else 'sum'} of g**2)"]
            got = [eval(first.partition(":")[0], {**names, "float": float, "g": x, "n": n}) for x in gradient]
            assert got == pytest.approx(want, rel=1e-12)


def test_the_least_norm_of_a_parameter_is_one_factor() -> None:
    assert explain("optax.adaptive_grad_clip(a + b)").formula[1].startswith("L = (a + b) * max(")
