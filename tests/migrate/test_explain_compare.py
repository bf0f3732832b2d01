"""``gradclip explain A B``: two conventions side by side, and rules on a list of numbers."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from oracle import ulps

import gradclip
from gradclip.commands import cli
from gradclip.core.rule import Rule, Scope
from gradclip.explain.call import find
from gradclip.explain.compare import compare
from gradclip.explain.text import comparison_text
from gradclip.natives import DIALECTS
from gradclip.natives.numbers import clipped

INF, NAN = float("inf"), float("nan")


def _rule(call: Any) -> Rule:
    assert call.rule is not None
    return call.rule  # type: ignore[no-any-return]


def test_two_conventions() -> None:
    found = compare("torch.clip_grad_norm", "tensorflow.clip_by_norm")
    differing = [difference.what for difference in found.differences]
    assert differing == ["computes", "scope", "epsilon", "limit < 0", "None", "returns"]
    assert found.example is not None
    assert found.example.limits == (1.0, 1.0)
    assert found.example.gradients == "[3, 4]  [0.5, 0]"
    assert found.example.first == "[0.597, 0.796]  [0.0995, 0]"
    assert found.example.second == "[0.6, 0.8]  [0.5, 0]"


def test_a_limit_of_one_is_the_other_s_too() -> None:
    found = compare("torch.clip_grad_norm", "optax.clip_by_global_norm(5.0)")
    assert found.example is not None
    assert found.example.limits == (5.0, 5.0)
    assert found.example.gradients == "[15, 20]  [2.5, 0]"


def test_two_limits() -> None:
    found = compare("torch.nn.utils.clip_grad_norm_(p, 1.0)", "torch.nn.utils.clip_grad_norm_(p, 2.0)")
    assert found.first == "torch.nn.utils.clip_grad_norm_(p, 1.0)"
    assert found.example is not None
    assert found.example.limits == (1.0, 2.0)
    assert "with limits of 1 and 2" in comparison_text(found, 100)


def test_two_names_of_one_thing() -> None:
    text = comparison_text(compare("keras.clipnorm", "keras.clipnorm(1.0)"), 100)
    assert "They do the same." in text
    assert "Both give the same" in text


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(DIALECTS, 2)))
def test_an_example_shows_any_difference(one: str, other: str) -> None:
    """An example exists exactly if two rules differ; gradclip on arrays confirms that."""
    found = compare(one, other)
    rules = [_rule(find(name)) for name in (one, other)]
    same_rule = all(
        np.array_equal(_arrays(rules[0], case), _arrays(rules[1], case), equal_nan=True) for case in (_PLAIN, _INFINITE, _NANS)
    )
    assert (found.example is None) == same_rule
    if found.example is not None:
        assert found.example.first != found.example.second
    assert all(len(line) <= 110 for line in comparison_text(found, 110).splitlines())


def test_what_no_rule_describes_cannot_be_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "torch.clip_grad_norm", "set_gradient_clip"]) == 2
    assert capsys.readouterr().err.startswith(
        "Only calls that a rule describes can be compared.\nReceived: set_gradient_clip\n"
    )


# ---- plain numbers ------------------------------------------------------------------------------------------------------

_PLAIN = [[[3.0, 4.0], [0.3, 0.4]], [[0.6, 0.0], [0.0, -0.6]]]
_INFINITE = [[[INF, 1.0], [0.3, 0.4]], [[0.5, -2.0], [0.0, 0.0]]]
_NANS = [[[NAN, 1.0], [0.3, 0.4]], [[0.5, -2.0], [0.0, 0.0]]]
RULES = [
    *(_rule(find(dialect)) for dialect in DIALECTS),
    *(gradclip.dialects.torch.clip_grad_norm(1.0, order) for order in (0, 1, 3, INF, -INF, -1)),
    *(gradclip.dialects.tensorflow.clip_by_norm(1.0, axes) for axes in ([0], [1], [-1], [0, 1], [])),
    gradclip.dialects.paddle.clip_grad_by_global_norm(1.0, auto_skip_clip=True),
    gradclip.dialects.optax.adaptive_grad_clip(0.3, axis=1),
]


def _arrays(rule: Rule, gradients: Any) -> np.ndarray[Any, Any]:
    arrays = [np.array(gradient) for gradient in gradients]
    return np.array(gradclip.clip(arrays, rule, params=[np.ones_like(a) for a in arrays]).grads)


@pytest.mark.parametrize("gradients", [_PLAIN, _INFINITE, _NANS], ids=["plain", "infinite", "NaN"])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_plain_numbers_are_clipped_as_arrays_are(rule: Rule, gradients: Any) -> None:
    params = [[[1.0, 1.0], [1.0, 1.0]] for _ in gradients]
    assert ulps(np.array(clipped(rule, gradients, params)), _arrays(rule, gradients), "float64") <= 4


def test_vectors_are_clipped_as_arrays_are() -> None:
    for rule in RULES:
        if rule.scope is not Scope.EXAMPLE and (rule.axes is None or rule.axes == (0,)):
            want = gradclip.clip([np.array([3.0, 4.0])], rule, params=[np.ones(2)]).grads
            assert ulps(np.array(clipped(rule, [[3.0, 4.0]], [[1.0, 1.0]])), np.array(want), "float64") <= 4


def test_json_of_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "--json", "tf.clip_by_global_norm", "optax.clip_by_global_norm"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["differences"][0]["what"] == "infinity"
    assert document["example"]["first"] == "[nan, nan]  [nan, nan]"


def test_two_are_not_translated(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "--to", "torch", "keras.clipnorm", "optax.clip"]) == 2
    assert "give one call" in capsys.readouterr().err


SAME = "the same for all numbers tried, including infinity and NaN"


# ---- numbers that show what differs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "gradients", "results"),
    [
        ("tf.clip_by_value(g, -1, 2)", "optax.clip(2)", "[-6, -8]  [1, -0.6]", ("[-1, -1]  [1, -0.6]", "[-2, -2]  [1, -0.6]")),
        (
            "tf.clip_by_value(g, -100, 1)",
            "tf.clip_by_value(g, -200, 1)",
            "[-300, -400]  [50, -30]",
            ("[-100, -100]  [1, -30]", "[-200, -200]  [1, -30]"),
        ),
        (
            "torch.clip_grad_norm(1.0)",
            "torch.clip_grad_norm(1.0, error_if_nonfinite=True)",
            "[inf, 1]  [0.5, 0]",
            ("[nan, 0]  [0, 0]", "an error"),
        ),
        ("torch.nn.utils.get_total_norm(g, 1)", "torch.nn.utils.get_total_norm(g, 3)", "[3, 4]  [0.5, 0]", ("7.5", "4.5")),
        ("tf.linalg.global_norm(g)", "optax.clip_by_global_norm", "[3, 4]  [0.5, 0]", ("5.025", "[0.597, 0.796]  [0.0995, 0]")),
        ("tf.linalg.global_norm(g)", "optax.clip_by_block_rms", "[3, 4]  [0.5, 0]", ("5.025", "[0.8485, 1.131]  [0.5, 0]")),
    ],
)  # fmt: skip
def test_numbers_that_show_a_difference(one: str, other: str, gradients: str, results: tuple[str, str]) -> None:
    """Negative ones, those beyond each bound, errors, and norms."""
    for first, second, order in ((one, other, 1), (other, one, -1)):
        found = compare(first, second).example
        assert found is not None
        assert found.gradients == gradients
        assert (found.first, found.second)[::order] == results


def test_parameters_that_show_a_difference() -> None:
    found = compare("optax.adaptive_grad_clip(0.01, eps=0.5)", "optax.adaptive_grad_clip(0.01)").example
    assert found is not None
    assert set(found.parameters) <= set("[], 0")


@pytest.mark.parametrize(
    ("one", "other", "sentence"),
    [
        ("optax.clip(1.0)", "torch.clip_grad_value(1.0)", f"Both give {SAME}."),
        ("torch.clip_grad_norm(inf)", "keras.clipnorm", f"With a limit of inf both give {SAME}."),
        (
            "torch.nn.utils.clip_grads_with_norm_(p, 1.0, n)",
            "torch.clip_grad_norm",
            f"Both give {SAME} if the norm that is given is theirs.",
        ),
        (
            "tf.clip_by_norm(g, 1.0, axes=[2])",
            "tf.clip_by_norm(g, 1.0, axes=[1])",
            "There is no example: matrices have too few axes for these calls.",
        ),
        ("torch.nn.utils.get_total_norm(g)", "optax.global_norm(g)", f"Both give {SAME}."),
    ],
)
def test_what_is_said_without_an_example(one: str, other: str, sentence: str) -> None:
    for found in (compare(one, other), compare(other, one)):
        assert found.example is None
        assert found.same == sentence
        assert sentence in comparison_text(found, 110)


def test_a_refused_call_has_no_example() -> None:
    """Its limit is not 1."""
    found = compare("torch.clip_grad_norm(-1.0)", "keras.clipnorm(1.0)")
    assert (found.differences[0].what, found.differences[0].first) == ("refused", "max_norm must not be negative.")
    assert found.example is None
    assert found.same == "There is no example: gradclip refuses the call of torch.clip_grad_norm."
