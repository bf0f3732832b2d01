"""The playable page's Python, without a browser: its backend matches NumPy's, and its answers match gradclip's."""

from __future__ import annotations

import doctest
import json
import math
from typing import Any

import answers
import lists
import numpy as np
import pytest

import gradclip
from gradclip import dialects

GRADIENTS = {
    "vectors": ["[3, 4]", "[0.6, 0.8]"],
    "matrices": ["[[3, 4, 0.1], [0.6, 0.8, -2]]", "[[-1.5, 0, 1e3], [0.25, 7, 0]]"],
    "an example axis and more": ["[[[3, 4], [1, 2]], [[0.6, 0.8], [0, 5]]]", "[[1, 2, 3], [4, 5, 6]]"],
    "zeros": ["[[0, 0], [0, 0]]", "[0, 0]"],
    "one infinity": ["[[3, -inf], [1, 2]]", "[0.6, 0.8]"],
    "one NaN": ["[[3, nan], [1, 2]]", "[0.6, 0.8]"],
    "huge": ["[1e300, -1e305]", "[1e308, 1e-300]"],
    "tiny": ["[1e-300, -1e-310]", "[0, 1e-320]"],
}
MORE = {
    "torch.clip_grad_norm": [{"norm_type": value} for value in ("1", "3.5", "inf", "-inf", "0", "-1", "0.5")],
    "tensorflow.clip_by_norm": [{"axes": value} for value in ("[0]", "[-1]", "[]", "0")],
    "paddle.clip_grad_by_global_norm": [{"auto_skip_clip": "True"}],
    "paddle.clip_grad_by_value": [{"min": "-0.25"}],
    "optax.adaptive_grad_clip": [{"axis": "0"}, {"eps": "10"}],
}
LIMITS = ("1.0", "0", "inf", "1e-3", "1e300")


def rules() -> list[tuple[str, dict[str, str]]]:
    """Return every rule of every dialect, with its parameters' first values, then with others."""
    described = [rule for dialect in json.loads(answers.catalogue()) for rule in dialect["rules"]]
    found = []
    for rule in described:
        first = rule["first"]
        limits = [dict.fromkeys(first, limit) if len(first) == 1 else {**first, [*first][-1]: limit} for limit in LIMITS]
        found += [(rule["name"], given) for given in limits]
        found += [(rule["name"], {**first, **more}) for more in MORE.get(rule["name"], [])]
    return found


def value(text: str) -> Any:
    return eval(text, {"inf": math.inf, "nan": math.nan})


def by_numpy(name: str, arguments: dict[str, str], gradients: list[str], params: list[str]) -> Any:
    """Return gradclip's result on NumPy's arrays, or the text of its error."""
    dialect, _, function = name.partition(".")
    arrays, weights = ([np.array(value(text), float) for text in texts] for texts in (gradients, params))
    try:
        rule = getattr(getattr(dialects, dialect), function)(**{key: value(text) for key, text in arguments.items()})
        return gradclip.clip(arrays, rule, params=weights if rule.relative_to is not None else None)
    except gradclip.core.errors.GradclipError as error:
        return str(error)


@pytest.mark.parametrize("what", GRADIENTS)
@pytest.mark.parametrize(("name", "arguments"), rules(), ids=str)
@pytest.mark.filterwarnings("ignore::gradclip.core.errors.GradclipWarning")
def test_an_answer_is_what_gradclip_gives_on_numpy(name: str, arguments: dict[str, str], what: str) -> None:
    gradients = GRADIENTS[what]
    asked = {"rule": name, "arguments": arguments, "gradients": gradients, "params": gradients}
    found = json.loads(answers.answer(json.dumps(asked)))
    wanted = by_numpy(name, arguments, gradients, gradients)
    if isinstance(wanted, str):
        assert found == {"error": wanted}
        return
    assert "error" not in found, found
    for key, expected in (("norm", wanted.norm), ("coefficient", wanted.coefficient), ("after", wanted.grads)):
        shown = found["exact"][key]
        if expected is None:
            assert shown is None
            continue
        many = isinstance(shown, list)
        for text, array in zip(shown if many else [shown], expected if many else [expected], strict=True):
            np.testing.assert_array_max_ulp(np.array(value(text), float), np.asarray(array, float), 4)


def asked(gradient: str, **arguments: str) -> dict[str, Any]:
    question = {
        "rule": "torch.clip_grad_norm",
        "arguments": {"max_norm": "1", **arguments},
        "gradients": [gradient],
        "params": [],
    }
    found: dict[str, Any] = json.loads(answers.answer(json.dumps(question)))
    return found


@pytest.mark.parametrize(
    ("gradient", "after"),
    [("[3, 4]", "[0.6, 0.8]"), ("[]", "[]"), ("-0.5", "-0.5"), ("[NaN, Infinity]", "[nan, nan]"), ("null", "None")],
)
def test_a_gradient_is_written_as_in_python_or_json(gradient: str, after: str) -> None:
    assert asked(gradient)["after"] == [after]


@pytest.mark.parametrize("gradient", ["[1, [2]]", "[1, 'a']", "f(1)", "[1", "", "{}"])
def test_what_is_no_gradient_is_an_error_with_a_hint(gradient: str) -> None:
    what, received, hint = asked(gradient)["error"].split("\n")
    assert what.startswith("g1 ")
    assert received == f"Received: g1={gradient}"
    assert hint.startswith("Hint: a list of numbers")


FRAMEWORKS = ("torch", "tensorflow", "keras", "paddle", "jax")
GLOBAL = {
    "torch.clip_grad_norm": "torch.nn.utils.clip_grad_norm_(parameters, 1)",
    "tensorflow.clip_by_global_norm": "grads, norm = tf.clip_by_global_norm(grads, 1)",
    "keras.global_clipnorm": "keras.optimizers.Adam(global_clipnorm=1)",
    "paddle.clip_grad_by_global_norm": "paddle.optimizer.Adam(parameters=parameters, "
    "grad_clip=paddle.nn.ClipGradByGlobalNorm(1))",
    "optax.clip_by_global_norm": "optax.chain(optax.clip_by_global_norm(1), optimizer)",
}


@pytest.mark.parametrize("rule", GLOBAL)
def test_every_framework_has_its_nearest_native_with_what_differs(rule: str) -> None:
    *_, limit = dialects.required(dialects.FUNCTIONS[rule])
    question = {"rule": rule, "arguments": {limit: "1"}, "gradients": ["[3, 4]"], "params": []}
    words = {said["framework"]: said for said in json.loads(answers.answer(json.dumps(question)))["words"]}
    assert set(words) == {"gradclip", *FRAMEWORKS}
    marks = {words[framework]["mark"] for framework in FRAMEWORKS}
    assert marks == {"this call", "nearest", "within rounding"}
    for (native, code), framework in zip(GLOBAL.items(), FRAMEWORKS, strict=True):
        said = words[framework]
        if said["mark"] != "this call" and (rule, framework) != ("torch.clip_grad_norm", "paddle"):
            assert said["code"] == code, native
        assert bool(said["differs"]) == bool(said["exactly"]) == (said["mark"] == "nearest")


@pytest.mark.parametrize("rule", [rule["name"] for dialect in json.loads(answers.catalogue()) for rule in dialect["rules"]])
def test_a_rule_s_own_framework_shows_the_native_in_code(rule: str) -> None:
    found = next(
        described for name in json.loads(answers.catalogue()) for described in name["rules"] if described["name"] == rule
    )
    asked = {"rule": rule, "arguments": found["first"], "gradients": ["[[3, 4]]"], "params": ["[[1, 1]]"]}
    words = json.loads(answers.answer(json.dumps(asked)))["words"]
    (own,) = (said for said in words if said["mark"] == "this call")
    assert own["code"]


def test_what_is_no_argument_is_an_error() -> None:
    assert asked("[1]", max_norm="one")["error"].startswith("max_norm cannot be read.\nReceived: max_norm=one\nHint: ")
    assert asked("[1]", limit="1")["error"].startswith("TypeError: ")


def test_shapes_that_do_not_fit_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"\(2,\) and \(3,\)"):
        lists.Tensor([1.0, 2.0]) * lists.Tensor([1.0, 2.0, 3.0])


@pytest.mark.parametrize("module", [lists, answers])
def test_the_examples_in_its_docstrings(module: Any) -> None:
    found = doctest.testmod(module)
    assert found.attempted
    assert not found.failed
