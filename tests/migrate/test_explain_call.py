"""``gradclip explain``: the call of the table that a text names, and the arguments in it."""

from __future__ import annotations

from typing import Any

import pytest

import gradclip
from gradclip.commands import cli
from gradclip.core.rule import Rule
from gradclip.explain import explain, words
from gradclip.explain.call import CallError, find, with_limit
from gradclip.explain.text import explanation_text

INF = float("inf")


@pytest.mark.parametrize(
    ("text", "code", "arguments"),
    [
        ("tf.clip_by_norm(g, 5.0, axes=[0])", "GF201", {"t": "g", "clip_norm": "5.0", "axes": "[0]"}),
        ("tensorflow.clip_by_norm(clip_norm=5.0, axes=[1])", "GF201", {"clip_norm": "5.0", "axes": "[1]"}),
        ("grads, _ = tf.clip_by_global_norm(grads, c)", "GF202", {"t_list": "grads", "clip_norm": "c"}),
        ("th.nn.utils.clip_grad_norm_(m.parameters(), 1)", "GT101", {"parameters": "m.parameters()", "max_norm": "1"}),
        ("torch.nn.utils.clip_grad_norm_(p, max_norm=args.clip)", "GT101", {"parameters": "p", "max_norm": "args.clip"}),
        ("nn.utils.clip_grad_norm(p, 1.0)", "GT102", {"parameters": "p", "max_norm": "1.0"}),
        ("nn.ClipGradByNorm(1.0)", "GP401", {"clip_norm": "1.0"}),
        ("torch.clip_grad_norm(max_norm=1.0)", "GT101", {"max_norm": "1.0"}),
        ("gradclip.dialects.torch.clip_grad_norm(1.0)", "GT101", {"max_norm": "1.0"}),
        ("gradclip.clip(grads, torch.clip_grad_norm(1.0))", "GT101", {"max_norm": "1.0"}),
        ("gradclip.clipped(optimizer, dialects.torch.clip_grad_norm(1.0))", "GT101", {"max_norm": "1.0"}),
        ("gradclip.clip_by_norm(x, 2.0)", "GF201", {"t": "x", "clip_norm": "2.0"}),
        ("optax.clip(1.0)", "GO502", {"max_delta": "1.0"}),
        ("optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))", "GO501", {"max_norm": "1.0"}),
        ("keras.optimizers.SGD(0.1, clipnorm=1.0)", "GK301", {"clipnorm": "1.0"}),
        ("Adam(lr, clipvalue=0.5, clipnorm=None)", "GK303", {"clipvalue": "0.5"}),
        ("tf.keras.optimizers.Adam(global_clipnorm=2)", "GK302", {"global_clipnorm": "2"}),
        ("fluid.clip.GradientClipByValue(1.0, -1.0)", "GL453", {"max": "1.0", "min": "-1.0"}),
        ("fluid.dygraph_grad_clip.GradClipByValue(-1.0, 1.0)", "GL458", {"min_value": "-1.0", "max_value": "1.0"}),
        ("fluid.ParamAttr('w', gradient_clip=c)", "GL455", {"gradient_clip": "c"}),
        ("slim.learning.create_train_op(loss, opt, clip_gradient_norm=4.0)", "GF224", {"clip_gradient_norm": "4.0"}),
        ("optimize_loss(loss, step, 0.1, 'SGD', None, None, 5.0)", "GF221", {"clip_gradients": "5.0"}),
        ("ClipGradByGlobalNorm", "GP402", {}),
        ("torch.clip_grad_norm", "GT101", {}),
        ("keras.clipnorm", "GK301", {}),
        ("tf.clip_by_value", "GF203", {}),
        ("gt101", "GT101", {}),
        ("keras.optimizers.SGD(clipnorm=)", "GK301", {}),
    ],
)
def test_a_call_is_found(text: str, code: str, arguments: dict[str, str]) -> None:
    call = find(text)
    assert (call.api.code, dict(call.arguments)) == (code, arguments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "tf.clip_by_norm(g)",
            "tensorflow.clip_by_norm cannot be called like that: missing a required argument: 'clip_norm'.\n"
            "Received: tf.clip_by_norm(g)\n"
            "Hint: its signature is tensorflow.clip_by_norm(t, clip_norm, axes=None, name=None).",
        ),
        (
            "torch.nn.utils.clip_grad_norm_(p, 1.0, clip=2)",
            "torch.nn.utils.clip_grad_norm_ cannot be called like that: got an unexpected keyword argument 'clip'.\n"
            "Received: torch.nn.utils.clip_grad_norm_(p, 1.0, clip=2)\n"
            "Hint: its signature is torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type=2.0, "
            "error_if_nonfinite=False, foreach=None).",
        ),
        (
            "clip_grad_norm_(p, 1.0)",
            "More than one framework has that name.\n"
            "Received: clip_grad_norm_\n"
            "Hint: say which: paddle.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad_norm_.",
        ),
        (
            "tf.clip_by_nrom(g, 2)",
            "gradclip knows no clip of that name.\n"
            "Received: tf.clip_by_nrom\n"
            "Hint: did you mean tensorflow.clip_by_norm or tensorflow.clip_by_average_norm?",
        ),
        (
            "np.clip(g, -1, 1)",
            "gradclip knows no clip of that name.\n"
            "Received: np.clip\n"
            "Hint: for gradients, write gradclip.clip_by_value(g, low, high); gradclip can explain that.",
        ),
        (
            "keras.optimizers.SGD(0.1)",
            "keras.optimizers.SGD clips by a keyword, which the call does not pass.\n"
            "Received: keras.optimizers.SGD(0.1)\n"
            "Hint: it has clipnorm=, global_clipnorm=, clipvalue=.",
        ),
        (
            "model.compile(keras.optimizers.SGD(0.1))",
            "keras.optimizers.SGD clips by a keyword, which the call does not pass.\n"
            "Received: keras.optimizers.SGD(0.1)\n"
            "Hint: it has clipnorm=, global_clipnorm=, clipvalue=.",
        ),
        (
            "keras.optimizers.SGD(clipnorm=1.0, clipvalue=1.0)",
            "An optimizer clips in one way only.\n"
            "Received: keras.optimizers.SGD(clipnorm=1.0, clipvalue=1.0)\n"
            "Hint: keep one of clipnorm=, global_clipnorm=, clipvalue=.",
        ),
        (
            "fluid.dygraph_grad_clip.GradClipByValue(-1.0)",
            "paddle.fluid.dygraph_grad_clip.GradClipByValue cannot clip without max_value.\n"
            "Received: fluid.dygraph_grad_clip.GradClipByValue(-1.0)",
        ),
        (
            "torch.nn.utils.clip_grad_norm_(*arguments)",
            "A call with * cannot be explained.\n"
            "Received: torch.nn.utils.clip_grad_norm_(*arguments)\n"
            "Hint: write the arguments out.",
        ),
        (
            "torch.nn.utils.clip_grad_norm_(p, **options)",
            "A call with ** cannot be explained.\n"
            "Received: torch.nn.utils.clip_grad_norm_(p, **options)\n"
            "Hint: write the arguments out.",
        ),
        (
            "optax.tree.norm(grads, None, True)",
            "No rule has a norm with squared=.\nReceived: optax.tree.norm(grads, None, True)\n"
            "Hint: explain the call without it.",
        ),
        (
            "optax.chain(optax.clip(0.5), optax.clip_by_global_norm(1.0), optax.adam(0.1))",
            "The text has several calls that clip.\n"
            "Received: optax.clip(0.5), optax.clip_by_global_norm(1.0)\n"
            "Hint: explain each alone; gradclip explain A B compares two.",
        ),
        (
            "g = tf.clip_by_norm(g, 1.0); h = tf.clip_by_value(f(g), -1, 1)",
            "The text has several calls that clip.\n"
            "Received: tf.clip_by_norm(g, 1.0), tf.clip_by_value(f(g), -1, 1)\n"
            "Hint: explain each alone; gradclip explain A B compares two.",
        ),
        (
            "(1 + 2)",
            "The text contains no call.\nReceived: '(1 + 2)'\nHint: gradclip explain \"tf.clip_by_norm(g, 5.0, axes=[0])\"",
        ),
        (
            "tf.clip_by_norm(",
            "The call is not valid Python.\n"
            "Received: 'tf.clip_by_norm(': '(' was never closed\n"
            'Hint: gradclip explain "tf.clip_by_norm(g, 5.0, axes=[0])"',
        ),
    ],
)
def test_a_text_that_is_no_call(text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CallError) as error:
        find(text)
    assert str(error.value) == message
    assert cli.main(["explain", text]) == 2
    assert capsys.readouterr() == ("", message + "\n")


@pytest.mark.parametrize("source", ["float('inf')", 'float("inf")', "math.inf", "np.inf", "torch.inf", "inf"])
def test_infinity_however_it_is_written(source: str) -> None:
    for sign in (1, -1):
        rule = find(f"tf.clip_by_value(g, -1.0, {'-' * (sign < 0)}{source})").rule
        assert rule is not None
        assert rule.upper == sign * INF


def test_what_only_the_running_program_knows() -> None:
    call = find("torch.nn.utils.clip_grad_norm_(p, args.clip, norm_type=args.p)")
    assert call.unknown == {"max_norm", "norm_type"}
    assert words.formula(call, _rule(call)) == ["g * min(1, args.clip / (n + 1e-06))", "n = the norm of order args.p"]


def test_a_limit_that_is_refused() -> None:
    found = explain("torch.nn.utils.clip_grad_norm_(p, -1.0)")
    assert found.refused.startswith("max_norm must not be negative. Received: max_norm=-1.0 Hint: ")
    assert f"refused {found.refused} computes" in " ".join(explanation_text(found, 400).split())
    assert found.equivalents == ()


def test_another_limit() -> None:
    assert isinstance(with_limit(find("paddle.clip_grad_by_norm"), 0.0), gradclip.core.errors.ArgumentError)
    assert with_limit(find("set_gradient_clip"), 0.0) is None


def _rule(call: Any) -> Rule:
    assert call.rule is not None
    return call.rule  # type: ignore[no-any-return]


@pytest.mark.parametrize(("text", "name", "limit"), [
    ("torch.clip_grad_norm_", "torch.clip_grad_norm", 1.0),
    ("torch.clip_grad_norm_(p, 2.0)", "torch.nn.utils.clip_grad_norm_", 2.0),
    ("torch.clip_grad_norm_(2.0)", "torch.clip_grad_norm", 2.0),
    ("paddle.ClipGradByNorm(2.0)", "paddle.nn.ClipGradByNorm", 2.0),
    ("keras.clip_norm(2.0)", "keras.clipnorm", 2.0),
])  # fmt: skip
def test_both_spellings(text: str, name: str, limit: float) -> None:
    call = find(text)
    assert call.name == name
    assert call.rule is not None
    assert call.rule.limit == limit


@pytest.mark.parametrize(("text", "code"), [
    ("tf.clip_by_norm(tf.clip_by_value(g, -1, 1), 2.0)", "GF201"),
    ("tf.clip_by_global_norm(grads, 5.0, use_norm=tf.linalg.global_norm(grads))", "GF202"),
    ("if a: tf.clip_by_norm(g, 1.0)\nelse: tf.clip_by_norm(g, 1.0)", "GF201"),
    ("optax.chain(optax.clip(1.0), optax.adam(1e-3))", "GO502"),
    ("optimizer = keras.optimizers.Adam(1e-3)\ntorch.nn.utils.clip_grad_norm_(p, 1.0)", "GT101"),
])  # fmt: skip
def test_one_clip_among_other_calls(text: str, code: str) -> None:
    """A clip in the arguments makes the gradients, and the same call twice is one."""
    assert find(text).api.code == code
