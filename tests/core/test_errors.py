"""Bad input: the exception's type, the text of its message, and unchanged gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework

import gradclip
from gradclip.core.errors import GradclipError, GradclipWarning
from gradclip.dialects import keras, optax, paddle, tensorflow, torch

NORM_RULES = {
    "max_norm": torch.clip_grad_norm,
    "clip_norm": tensorflow.clip_by_global_norm,
    "clipnorm": keras.clipnorm,
    "global_clipnorm": keras.global_clipnorm,
    "threshold": optax.clip_by_block_rms,
    "clipping": optax.adaptive_grad_clip,
    "l2_norm_clip": optax.per_example_global_norm_clip,
    "clip_value": torch.clip_grad_value,
    "max_delta": optax.clip,
    "clipvalue": keras.clipvalue,
}


@pytest.mark.parametrize(("name", "make_rule"), NORM_RULES.items(), ids=NORM_RULES)
@pytest.mark.parametrize("limit", [-1.0, -math.inf, math.nan])
def test_negative_and_nan_limits(name: str, make_rule: Callable[[float], Any], limit: float) -> None:
    with pytest.raises(ValueError, match=rf"(?s){name} must .*\nReceived: {name}={limit}"):
        make_rule(limit)


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan])
def test_paddle_by_norm_refuses_zero_too(limit: float) -> None:
    with pytest.raises(ValueError, match="clip_norm must "):
        gradclip.ClipGradByNorm(limit)


def test_a_negative_limit_of_clip_by_norm_is_zero(backend: Framework) -> None:
    assert not backend.read(gradclip.clip_by_norm(backend.make([3.0, 4.0]), -1.0)).any()
    with pytest.raises(ValueError, match="clip_norm must be a number, not NaN"):
        gradclip.clip_by_norm(backend.make([3.0, 4.0]), math.nan)


@pytest.mark.parametrize("make_rule", NORM_RULES.values(), ids=NORM_RULES)
@pytest.mark.parametrize("limit", [None, object(), "not a number", [1.0]])
def test_limits_that_are_no_numbers(make_rule: Callable[[Any], Any], limit: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"must be a number or a tensor\.\nReceived: "):
        make_rule(limit)


def test_numbers_in_text_are_numbers_where_the_native_says_so() -> None:
    assert torch.clip_grad_norm("1.5").limit == paddle.clip_grad_by_norm("1.5").limit == 1.5
    with pytest.raises(TypeError, match="clip_norm must be a number"):
        tensorflow.clip_by_norm("1.5")


@pytest.mark.parametrize(
    ("order", "error"), [("fro", ValueError), (10**400, ValueError), (None, TypeError), ([2.0], TypeError)]
)
def test_orders(order: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"norm_type must be a number.\nReceived: norm_type=.*\nHint: 2.0, 1.0"):
        torch.clip_grad_norm(1.0, order)
    with pytest.raises(ValueError, match="norm_type must be one of inf, 0, 1 and 2"):
        paddle.clip_grad_norm(1.0, order)


@pytest.mark.parametrize("axes", [[2], [-3], [0, 0], [0, -2], 5])
def test_axes_out_of_range_or_repeated(backend: Framework, axes: Any) -> None:
    with pytest.raises(ValueError, match=r"(?s)axes must .*\nReceived: axes=\[.*\], shape=\(2, 2\)"):
        gradclip.clip_by_norm(backend.make(np.ones((2, 2))), 1.0, axes=axes)


@pytest.mark.parametrize("axes", ["0", 1.0, [0.5], object()])
def test_axes_of_the_wrong_type(backend: Framework, axes: Any) -> None:
    with pytest.raises(TypeError, match=r"axes must be whole numbers\.\nReceived: axes=.*\nHint: an int"):
        gradclip.clip_by_norm(backend.make(np.ones((2, 2))), 1.0, axes=axes)


def test_axes_as_an_array(backend: Framework) -> None:
    t = backend.make([[3.0, 4.0], [0.3, 0.4]])
    want = backend.read(gradclip.clip_by_norm(t, 1.0, axes=[1]))
    for axes in (np.array(1), np.array([1]), (1,), -1):
        assert np.array_equal(backend.read(gradclip.clip_by_norm(t, 1.0, axes=axes)), want)


@pytest.mark.parametrize(("upper", "lower"), [(1.0, 2.0), (0.0, None), (-1.0, None), (math.nan, 0.0)])
def test_bounds_that_cross(upper: float, lower: float | None) -> None:
    with pytest.raises(ValueError, match="max"):
        gradclip.ClipGradByValue(upper, lower)


def test_paddle_asserts_and_so_do_we() -> None:
    with pytest.raises(AssertionError, match="max must be greater than 0 where min is not given"):
        gradclip.ClipGradByValue(-1.0)
    with pytest.raises(AssertionError, match="auto_skip_clip must be True or False"):
        gradclip.ClipGradByGlobalNorm(1.0, auto_skip_clip=1)  # type: ignore[arg-type]


def calls(rule_limit: float = 1.0) -> dict[str, Callable[[list[Any]], Any]]:
    return {
        "clip": lambda grads: gradclip.clip(grads, torch.clip_grad_norm(rule_limit)),
        "clip_": lambda grads: gradclip.clip_(grads, tensorflow.clip_by_norm(rule_limit)),
        "clip_by_global_norm": lambda grads: gradclip.clip_by_global_norm(grads, rule_limit),
        "global_norm": gradclip.global_norm,
        "get_total_norm": gradclip.get_total_norm,
        "ClipGradByNorm": lambda grads: gradclip.ClipGradByNorm(rule_limit)([(None, g) for g in grads]),
    }


@pytest.mark.parametrize("call", calls().values(), ids=calls())
@pytest.mark.parametrize("dtype", ["int32", "int64", "bool"])
def test_integers(backend: Framework, call: Callable[[list[Any]], Any], dtype: str) -> None:
    grads = [backend.make([3.0, 4.0]), backend.make([3, 4], dtype)]
    with pytest.raises(
        (TypeError, RuntimeError), match=rf"(?s)or complex dtype.\nReceived: dtype={dtype}, gradient \[1\]\nHint: cast"
    ):
        call(grads)
    assert backend.read(grads[0]).tolist() == [3.0, 4.0]


def test_integers_by_value(backend: Framework) -> None:
    assert backend.read(gradclip.clip_by_value(backend.make([3, -4], "int32"), -2, 2)).tolist() == [2, -2]
    with pytest.raises(TypeError, match="whole numbers of its own dtype"):
        gradclip.clip_by_value(backend.make([3, -4], "int32"), -1.5, 1.5)


@pytest.mark.parametrize("rule", [torch.clip_grad_value(1.0), optax.clip(1.0)], ids=str)
def test_complex_has_no_order(backend: Framework, rule: gradclip.Rule) -> None:
    if "complex64" in backend.dtypes:
        with pytest.raises((ValueError, RuntimeError), match="Complex numbers have no order"):
            gradclip.clip(backend.make([1 + 1j], "complex64"), rule)


@pytest.mark.parametrize("thing", [object(), SimpleNamespace()])
def test_what_is_no_tensor(backend: Framework, thing: Any) -> None:
    for grads in ([thing], {"w": thing}, [backend.make([1.0]), thing]):
        with pytest.raises(
            TypeError, match=r"(?s)No backend knows tensors of type .*installed backends: .*numpy.*\nHint: gradclip.register"
        ):
            gradclip.clip(grads, torch.clip_grad_norm(1.0))


def test_a_function_among_the_tensors(backend: Framework) -> None:
    with pytest.raises(TypeError, match=r"(?s)A function is not a gradient.\nReceived: .*\nHint: call it: jax.grad"):
        gradclip.clip([backend.make([1.0]), lambda: None], torch.clip_grad_norm(1.0))


def test_names_among_the_tensors(backend: Framework) -> None:
    """A list of ``model.named_parameters()`` has these; the iterator itself is a named container."""
    g = backend.make([3.0, 4.0])
    for grads in ([("w", g)], [g, "w"], "w", b"w"):
        with pytest.raises(
            TypeError, match=r"A name is not a tensor.\nReceived: b?'w'\nHint: .*dict\(model.named_parameters\(\)\)"
        ):
            gradclip.clip(grads, torch.clip_grad_norm(1.0))


def test_none_instead_of_parameters() -> None:
    for call in (gradclip.clip_grad_norm_, gradclip.clip_grad_value_):
        with pytest.raises(TypeError, match=r"parameters must be a tensor or several.\nReceived: parameters=None\nHint: pass"):
            call(None, 1.0)
    with pytest.raises(TypeError, match="parameters must be a tensor or several"):
        gradclip.clip_grads_with_norm_(None, 1.0, 1.0)
    with pytest.raises(TypeError, match="tensors must be a tensor or several"):
        gradclip.get_total_norm(None)
    for make in (gradclip.ClipGradByNorm, gradclip.ClipGradByGlobalNorm, gradclip.ClipGradByValue):
        for wrong in (None, 5):
            with pytest.raises(TypeError, match=r"must be \(parameter, gradient\) pairs.\nReceived: .*\nHint: list\(zip"):
                make(1.0)(wrong)  # type: ignore[arg-type]


def test_a_model_instead_of_its_parameters(backend: Framework) -> None:
    model = SimpleNamespace(parameters=list)
    with pytest.raises(TypeError, match=r"pass its parameters: model\.parameters\(\)"):
        gradclip.clip_grad_norm_(model, 1.0)


def test_two_frameworks_in_one_call(backend: Framework) -> None:
    other = np.array([1.0]) if backend.name != "numpy" else None
    if other is None:
        import ml_dtypes  # its scalars count as NumPy's, so they are no second framework

        assert gradclip.norm([np.array([3.0]), ml_dtypes.bfloat16(4.0)], torch.clip_grad_norm(1.0)) == 5.0
        return
    mine = backend.make([3.0])
    with pytest.raises(
        TypeError, match=rf"tensors of one call must be of one framework.\nReceived: tensors of {backend.name} and of numpy"
    ):
        gradclip.clip([mine, other], torch.clip_grad_norm(1.0))
    assert backend.read(mine).tolist() == [3.0]


def test_one_tensor_and_several(backend: Framework) -> None:
    tensors = [backend.make([3.0]), backend.make([4.0])]
    with pytest.raises(TypeError, match=r"clip_by_norm takes one tensor.\nReceived: t of type list\nHint: for several"):
        gradclip.clip_by_norm(tensors, 1.0)
    for wrong in (tensors[0], "abc", None):
        with pytest.raises(
            TypeError, match=r"t_list must be a list of tensors\.(?s:.)*Hint: for one tensor: gradclip\.clip_by_glo"
        ):
            gradclip.clip_by_global_norm(wrong, 1.0)
    with pytest.raises(ValueError, match="clip_by_norm takes one tensor"):
        gradclip.clip_by_norm(None, 1.0)
    with pytest.raises(TypeError, match=r"params_grads must be \(parameter, gradient\) pairs"):
        gradclip.ClipGradByNorm(1.0)(tensors)  # type: ignore[arg-type]


def test_examples_need_a_common_first_axis(backend: Framework) -> None:
    rule = optax.per_example_global_norm_clip(1.0)
    for grads in ([backend.make(np.ones((2, 3))), backend.make(np.ones((3, 3)))], [backend.make(1.0)]):
        with pytest.raises(ValueError, match="Every gradient must have the examples along its first axis"):
            gradclip.clip(grads, rule)
    with pytest.raises(IndexError):
        gradclip.clip([backend.make(1.0)], rule)
    with pytest.raises(ValueError, match="changes the shape of a gradient"):
        gradclip.clip_([backend.make(np.ones((2, 3)))], rule)


def test_relative_limits_need_the_parameters(backend: Framework) -> None:
    rule = optax.adaptive_grad_clip(0.1)
    grads = [backend.make([3.0, 4.0])]
    with pytest.raises(
        TypeError, match=r"optax.adaptive_grad_clip needs the parameters.\nReceived: params=None\nHint: pass params="
    ):
        gradclip.clip(grads, rule)
    with pytest.raises(ValueError, match=r"one parameter for each gradient.\nReceived: \[1\]\nHint: pass params="):
        gradclip.clip(grads, rule, params=[*grads, *grads])
    with pytest.raises(ValueError, match=r"one parameter for each gradient.\nReceived: \['a'\], \['b'\]"):
        gradclip.clip({"a": grads[0]}, rule, params={"b": grads[0]})
    with pytest.raises(TypeError, match=r"A parameter must be of a floating point or complex dtype\.\nReceived: dtype=int32"):
        gradclip.clip(grads, rule, params=[backend.make([3, 4], "int32")])
    with pytest.raises(ValueError, match="the same shape"):
        gradclip.clip(grads, rule, params=[backend.make([1.0, 2.0, 3.0])])
    with pytest.raises(TypeError, match="A parameter must be a tensor of its gradient's framework"):
        gradclip.clip(grads, rule, params=[None])
    six = [backend.make(np.ones((2,) * 6))]
    with pytest.raises(ValueError, match="more than five dimensions"):
        gradclip.clip(six, rule, params=six)


def test_in_place_on_what_cannot_be_written(backend: Framework) -> None:
    writable, fixed = backend.make([3.0, 4.0]), backend.expanded(1.0, (2,))
    if backend.copies_expanded:
        gradclip.clip_([writable, fixed], torch.clip_grad_norm(1.0))
        assert np.linalg.norm(np.concatenate([backend.read(writable), backend.read(fixed)])) <= 1.0
        return
    with pytest.raises(TypeError, match=r"(?s)cannot be written in place.*\nHint: use gradclip.clip"):
        gradclip.clip_([writable, fixed], torch.clip_grad_norm(1.0))
    assert backend.read(writable).tolist() == [3.0, 4.0]


@pytest.mark.parametrize("in_place", [False, True])
def test_error_if_nonfinite(backend: Framework, in_place: bool) -> None:
    if in_place and not backend.mutable:
        in_place = False
    grads = {"dense": [backend.make([3.0, 4.0]), backend.make([1.0, math.inf, math.nan])], "last": backend.make([math.nan])}
    rule = torch.clip_grad_norm(1.0, error_if_nonfinite=True)
    with pytest.raises(RuntimeError) as caught:
        (gradclip.clip_ if in_place else gradclip.clip)(grads, rule)
    text = str(caught.value)
    assert text.startswith("The total norm of order 2.0 for gradients is non-finite, so it cannot be clipped.\nReceived: ")
    assert "['dense'][1]: 2 of 3 elements" in text
    assert "['last']: 1 of 1 elements" in text
    assert "['dense'][0]" not in text
    assert text.endswith("Hint: set error_if_nonfinite=False to scale by the non-finite norm all the same.")
    assert backend.read(grads["dense"][0]).tolist() == [3.0, 4.0]


def test_error_if_nonfinite_lets_finite_gradients_pass(backend: Framework) -> None:
    """Finite gradients whose squares overflow are no error: https://github.com/pytorch/pytorch/issues/46849."""
    for values in ([3.0, 4.0], [3e30, 4e30]):
        gradclip.clip(backend.make(values), torch.clip_grad_norm(1.0, error_if_nonfinite=True))


@pytest.mark.needs("jits")
@pytest.mark.needs("compiles")
def test_error_if_nonfinite_cannot_be_traced(backend: Framework) -> None:
    rule = torch.clip_grad_norm(1.0, error_if_nonfinite=True)
    for how in backend.jits:
        if not how.startswith("to_static"):  # there gradclip may run as plain Python
            with pytest.raises(Exception, match="error_if_nonfinite must read the norm, which is impossible while tracing"):
                backend.jit(how, lambda grads: list(gradclip.clip(grads, rule).grads))([backend.make([3.0, 4.0])])


def test_nothing_to_clip_warns(backend: Framework) -> None:
    spent = iter([backend.make([3.0])])
    list(spent)
    with pytest.warns(GradclipWarning) as record:
        gradclip.clip_grad_norm_(spent, 1.0)
    (warning,) = record
    assert str(warning.message) == "`parameters` is an empty generator, no gradient clipping will occur."  # torch's, no more
    assert warning.message.__notes__ == [
        "Received: an empty or exhausted iterator\nHint: an iterator can be used once; pass a list to use it again."
    ]
    assert warning.filename == __file__
    with pytest.warns(GradclipWarning, match="^The iterator is empty: nothing was clipped.\nReceived: .*\nHint: an iterator"):
        gradclip.clip(spent, torch.clip_grad_norm(1.0))
    assert float(backend.read(gradclip.get_total_norm([backend.make([3.0]), backend.make([4.0])]))) == 5.0


def test_every_error_is_one_of_ours() -> None:
    with pytest.raises(GradclipError):
        torch.clip_grad_norm(-1.0)
