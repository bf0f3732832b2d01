"""The results of a clip: no other object writes to them, and norm and coefficient are tensors of the framework."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from oracle import ulps

import gradclip
from gradclip.core.rule import Rule
from gradclip.dialects import optax, paddle, tensorflow

LARGE = 1 << 21  # elements


@pytest.mark.parametrize(
    "rule",
    [
        tensorflow.clip_by_value(-1.0, 1.0),
        tensorflow.clip_by_norm(1.0),
        optax.clip_by_global_norm(1.0),
        paddle.clip_grad_by_norm(1.0),
    ],
    ids=lambda rule: rule.name,
)
def test_results_are_nobody_elses(backend: Framework, rule: Rule) -> None:
    for dtype in {"float32", "bfloat16"}.intersection(backend.dtypes):
        _clip_again_and_again(backend, rule, dtype)


def _clip_again_and_again(backend: Framework, rule: Rule, dtype: str) -> None:
    ones, twos = (backend.make(np.full((2, LARGE // 2), value), dtype) for value in (8.0, 16.0))
    kept = []
    for x in (ones, twos, ones):
        result = gradclip.clip([x], rule).grads[0]
        kept.append((result, backend.read(result).copy(), result[1]))
        del result
    for result, was, _ in kept:
        np.testing.assert_array_equal(backend.read(result), was)
    rows = [(row, was[1]) for _, was, row in kept]
    del kept, result, was
    for _ in range(2):
        gradclip.clip([twos], tensorflow.clip_by_value(-3.0, 3.0))
    for row, values in rows:
        np.testing.assert_array_equal(backend.read(row), values)


# ---- the type of the norm and of the coefficient ---------------------------------------------------------------------------

RULES = {
    "global": optax.clip_by_global_norm(1.0),
    "measured only": optax.clip_by_global_norm(float("inf")),
    "each": tensorflow.clip_by_norm(1.0),
    "axes": tensorflow.clip_by_norm(1.0, axes=[0]),
}


def numbers(result: gradclip.ClipResult) -> list[Any]:
    """Return the norms and the coefficients, without their containers."""
    found = [result.norm, result.coefficient]
    return [x for n in found for x in (n.values() if isinstance(n, dict) else [n]) if x is not None]


@pytest.mark.parametrize("name", RULES)
def test_a_norm_is_a_tensor_of_the_framework(backend: Framework, name: str) -> None:
    for dtype in backend.dtypes:
        given = {"w": backend.make([3.0, 4.0], dtype), "none": None, "b": backend.make([0.5], dtype)}
        result = gradclip.clip(given, RULES[name])
        kind = np.generic if backend.name == "numpy" and name != "axes" else type(backend.make([1.0]))
        wide = {"float16": "float32", "bfloat16": "float32", "complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
        for n in numbers(result):
            assert isinstance(n, kind)
            assert backend.dtype(n) == wide
            assert tuple(n.shape) == ((1,) if name == "axes" else ())
            assert math.isfinite(backend.read(n).item())
        if name in ("each", "axes"):
            assert result.norm.keys() == result.coefficient.keys() == given.keys()
            assert result.norm["none"] is None
        assert type(gradclip.norm(given, RULES[name])) is type(result.norm)


def test_a_norm_per_tensor_comes_in_the_container(backend: Framework) -> None:
    rule, x = RULES["each"], backend.make([3.0, 4.0])
    assert float(gradclip.clip(x, rule).norm) == 5.0
    for given in ([x, None], (x, None), {"a": [x], "b": (None,)}, iter([x, None])):
        norm = gradclip.norm(given, rule)
        assert type(norm) is (list if isinstance(given, Iterator) else type(given))
    known = gradclip.norm({"a": [x], "b": None}, rule)
    assert float(known["a"][0]) == 5.0
    assert known["b"] is None
    twice = {"a": [known["a"][0] * 2], "b": None}
    scaled = gradclip.scale_by_norm({"a": [x], "b": None}, rule, twice).grads["a"][0]
    assert ulps(backend.read(scaled), [0.3, 0.4], "float32") <= 2


def test_a_known_norm_is_found_by_its_name(backend: Framework) -> None:
    given = {"a": backend.make([3.0, 4.0]), "b": backend.make([6.0, 8.0])}
    scaled = gradclip.scale_by_norm(given, RULES["each"], {"b": 10.0, "a": 5.0}).grads
    for name in given:
        assert ulps(backend.read(scaled[name]), [0.6, 0.8], "float32") <= 2
    with pytest.raises(ValueError, match="A norm belongs to no gradient"):
        gradclip.scale_by_norm(given, RULES["each"], {"x": 10.0, "y": 5.0})


def test_the_container_may_change_afterwards(backend: Framework) -> None:
    given = {"x": {"a": backend.make([3.0, 4.0])}}
    result, whole = (gradclip.clip(given, RULES[name]) for name in ("each", "global"))
    given["x"] = {}
    assert float(result.norm["x"]["a"]) == 5.0
    assert float(whole.norm) == 5.0


def test_a_result_keeps_no_gradient(backend: Framework) -> None:
    given = OrderedDict(a=backend.make([3.0, 4.0]))  # a plain dict has no weak references
    result = gradclip.clip(given, RULES["global"])
    gone = weakref.ref(given)
    del given
    gc.collect()
    assert gone() is None
    assert float(result.norm) == 5.0


@pytest.mark.needs("jits")
def test_a_norm_that_a_trace_has_read_is_a_number_afterwards(backend: Framework) -> None:
    result = gradclip.clip([backend.make([3.0, 4.0])], RULES["global"])
    for how in backend.jits:
        (got,) = backend.jit(how, lambda xs: [xs[0] * result.norm])([backend.make([2.0])])
        assert backend.read(got).tolist() == [10.0]
        assert float(result.norm) == 5.0
        assert ulps(float(result.coefficient), 0.2, "float32") <= 2


def test_an_empty_container_has_norms_of_its_form() -> None:
    assert gradclip.clip({}, RULES["each"]).norm == {}
    assert gradclip.norm({"a": None}, RULES["each"]) == {"a": None}


def test_a_result_is_copied_and_pickled(backend: Framework) -> None:
    result = gradclip.clip([backend.make([3.0, 4.0])], RULES["global"])
    for other in (copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert float(other.norm) == 5.0
        assert backend.read(other.grads[0]).tolist() == backend.read(result.grads[0]).tolist()
    assert repr(copy.copy(result)) == repr(result)


def test_without_a_framework_a_norm_is_a_float() -> None:
    result = gradclip.clip([None], RULES["global"])
    assert (type(result.norm), result.norm, result.coefficient) == (float, 0.0, 1.0)


# ---- the norm of each gradient by its name ---------------------------------------------------------------------------------


def test_norms_by_name(backend: Framework) -> None:
    for dtype in backend.dtypes:
        given = {"encoder": {"weight": backend.make([3.0, 4.0], dtype), "bias": None}, "head": [backend.make([-2.0], dtype)]}
        found = gradclip.norms_by_name(given)
        assert {name: float(n) for name, n in found.items()} == {"encoder.weight": 5.0, "head.0": 2.0}
        assert {name: float(n) for name, n in gradclip.norms_by_name(given, math.inf).items()} == {
            "encoder.weight": 4.0,
            "head.0": 2.0,
        }
    assert {name: float(n) for name, n in gradclip.norms_by_name(iter([backend.make([3.0])])).items()} == {"0": 3.0}
    assert gradclip.norms_by_name([]) == gradclip.norms_by_name({"w": None}) == {}


def test_norms_of_what_is_no_gradient() -> None:
    with pytest.raises(TypeError):
        gradclip.norms_by_name("model")


def test_norms_of_a_model(backend: Framework) -> None:
    """Has named_parameters(), like models of torch and Paddle."""

    class Model:
        def named_parameters(self) -> Iterator[tuple[str, Any]]:
            make = backend.parameter if backend.holds_gradients else backend.make
            yield "layer.weight", make(backend.make([3.0, 4.0]))
            if backend.holds_gradients:
                yield "unused", backend.parameter(None)

    assert {name: float(n) for name, n in gradclip.norms_by_name(Model()).items()} == {"layer.weight": 5.0}


def test_names_that_are_equal_are_told_apart_by_their_paths(backend: Framework) -> None:
    found = gradclip.norms_by_name({"a.b": backend.make([3.0, 4.0]), "a": {"b": backend.make([12.0])}})
    assert {name: float(n) for name, n in found.items()} == {"['a.b']": 5.0, "['a']['b']": 12.0}


# ---- a limit of zero -------------------------------------------------------------------------------------------------------


def test_a_limit_of_zero_zeroes_all_but_zero_gradients(backend: Framework) -> None:
    given = [backend.make([0.0, 0.0]), backend.make([3.0, 4.0])]
    result = gradclip.clip(given, tensorflow.clip_by_norm(0.0))
    assert [float(c) for c in result.coefficient] == [1.0, 0.0]
    assert [backend.read(x).tolist() for x in result.grads] == [[0.0, 0.0], [0.0, 0.0]]


def test_a_limit_of_zero_where_a_norm_of_nan_clips_nothing(backend: Framework) -> None:
    result = gradclip.clip(backend.make([[3.0, 4.0], [0.0, 0.0]]), optax.per_example_global_norm_clip(0.0))
    assert backend.read(result.coefficient).tolist() == [0.0, 1.0]
    assert backend.read(result.grads).tolist() == [0.0, 0.0]
