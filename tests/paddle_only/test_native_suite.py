"""What Paddle's own tests of its clips check (Paddle 3.3, ``test/legacy_test``), in our words; each test names its file there.

They run with Paddle's functions and with gradclip's. Clips in programs of the legacy representation are the departure
"legacy-programs".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import pytest
from frameworks.paddle import framework

import gradclip
from gradclip.dialects import paddle as dialect

CLASSES = ("ClipGradByNorm", "ClipGradByGlobalNorm", "ClipGradByValue")


def clip_grad_norm_(parameters: Any, *arguments: Any, **named: Any) -> Any:
    dialect.clip_grad_norm(*arguments, **named)  # which orders Paddle takes
    return gradclip.clip_grad_norm_(parameters, *arguments, **named)


SIDES = {
    "paddle": SimpleNamespace(
        clip_grad_norm_=paddle.nn.utils.clip_grad_norm_,
        clip_grad_value_=paddle.nn.utils.clip_grad_value_,
        **{name: getattr(paddle.nn, name) for name in CLASSES},
    ),
    "gradclip": SimpleNamespace(
        clip_grad_norm_=clip_grad_norm_,
        clip_grad_value_=gradclip.clip_grad_value_,
        **{name: getattr(gradclip, name) for name in CLASSES},
    ),
}
both = pytest.mark.parametrize("side", SIDES)
RANDOM = np.random.default_rng(0)


@pytest.fixture
def static() -> Iterator[None]:
    paddle.enable_static()
    yield
    paddle.disable_static()


def param(gradient: np.ndarray) -> paddle.Tensor:
    """Return a tensor that holds a gradient, and is no parameter."""
    tensor = paddle.to_tensor(np.ones_like(gradient))
    tensor.grad = paddle.to_tensor(gradient)
    return tensor


def some(shape: tuple[int, ...]) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


@both
@pytest.mark.parametrize(("shape", "limit"), [((16, 16), 1), ((100,), 3.5), ((4, 8, 16), 0)])
def test_value(side: str, shape: tuple[int, ...], limit: float) -> None:
    """test_clip_grad_value_.py: test_basic."""
    gradient = some(shape)
    tensor = param(gradient)
    assert SIDES[side].clip_grad_value_(tensor, clip_value=limit) is None
    assert np.array_equal(tensor.grad.numpy(), gradient.clip(-limit, limit))


@both
def test_value_below_0(side: str) -> None:
    """test_clip_grad_value_.py: test_errors."""
    with pytest.raises(ValueError):
        SIDES[side].clip_grad_value_(param(some((1, 2))), clip_value=-1)


@both
@pytest.mark.parametrize(
    ("shape", "limit", "order"), [((16, 16), 5, 2), ((100,), 1e20, 2), ((4, 8, 16), 1.0, math.inf), ((5,), 1.0, 1)]
)
def test_norm(side: str, shape: tuple[int, ...], limit: float, order: float) -> None:
    """test_clip_grad_norm_.py: test_basic."""
    gradient = some(shape)
    tensor = param(gradient)
    norm = SIDES[side].clip_grad_norm_(tensor, max_norm=limit, norm_type=order)
    want = np.linalg.norm(gradient.astype(np.float64).reshape(-1), order)
    np.testing.assert_allclose(norm.numpy(), want, rtol=1e-5)
    np.testing.assert_allclose(tensor.grad.numpy(), gradient * min(1, limit / (want + 1e-6)), rtol=1e-5)


@both
def test_norm_refuses(side: str) -> None:
    """test_clip_grad_norm_.py: test_errors, an order that Paddle lacks, and an infinite norm."""
    with pytest.raises(ValueError):
        SIDES[side].clip_grad_norm_(param(some((1, 2))), max_norm=2, norm_type=-math.inf)
    tensor = param(np.full((1, 2), np.inf, np.float32))
    with pytest.raises(RuntimeError):
        SIDES[side].clip_grad_norm_(tensor, max_norm=2, error_if_nonfinite=True)
    assert np.isinf(tensor.grad.numpy()).all()


@both
@pytest.mark.parametrize("name", ["clip_grad_norm_", "clip_grad_value_"])
@pytest.mark.parametrize("make", [lambda x: x, lambda x: [x], lambda x: (y for y in [x])], ids=["one", "list", "generator"])
def test_static_mode(side: str, name: str, make: Callable[[Any], Any]) -> None:
    """test_clip_grad_norm_.py and test_clip_grad_value_.py: test_errors, in static mode."""
    tensor = param(np.ones((1, 2), np.float32))
    paddle.enable_static()
    try:
        with pytest.raises(RuntimeError, match="this API can only run in dynamic mode"):
            getattr(SIDES[side], name)(make(tensor), 0.5)
    finally:
        paddle.disable_static()
    assert tensor.grad.numpy().tolist() == [[1.0, 1.0]]


@both
@pytest.mark.parametrize("name", ["clip_grad_norm_", "clip_grad_value_"])
def test_static_mode_of_legacy_programs(side: str, name: str) -> None:
    """The same where the representation of programs is the legacy one, as when those tests run."""
    with paddle.pir_utils.OldIrGuard():
        paddle.enable_static()
        try:
            tensor = paddle.to_tensor(np.ones((1, 2), np.float32))
            tensor.grad = paddle.to_tensor(np.ones((1, 2), np.float32))
            with pytest.raises(RuntimeError, match="this API can only run in dynamic mode"):
                getattr(SIDES[side], name)(tensor, 0.5)
            with pytest.raises(RuntimeError, match="this API can only run in dynamic mode"):
                getattr(SIDES[side], name)([tensor], 0.5)
        finally:
            paddle.disable_static()


def test_what_else_refuses_tensors_of_dynamic_mode_in_static_mode(static: None) -> None:
    """Paddle's operations would raise an error about an argument that the caller does not know."""
    with paddle.base.dygraph.guard():
        tensor = paddle.to_tensor([3.0, 4.0])
    for call in (gradclip.clip, gradclip.norm):
        with pytest.raises(RuntimeError, match=r"dynamic mode\.\nReceived: .*\nHint: call paddle.disable_static"):
            call([tensor], dialect.clip_grad_by_norm(1.0))


def test_a_legacy_program_is_refused_with_its_reason() -> None:
    with paddle.pir_utils.OldIrGuard():
        paddle.enable_static()
        try:
            with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
                x = paddle.static.data("x", [1, 2], "float32")
                for clip in (gradclip.ClipGradByNorm(1.0), gradclip.ClipGradByValue(1.0), gradclip.ClipGradByGlobalNorm(1.0)):
                    with pytest.raises(TypeError, match="Received: a variable of a program of the legacy representation"):
                        clip([(x, x)])
                rule = dialect.clip_grad_by_norm(1.0)
                for call in (
                    lambda: gradclip.clip(x, rule),
                    lambda: gradclip.clip_([x], rule),
                    lambda: gradclip.norm({"a": x}, rule),
                    lambda: gradclip.clip_by_norm(x, 1.0),
                    lambda: gradclip.clip_by_value(x, -1.0, 1.0),
                    lambda: gradclip.clip_grad_norm_(x, 1.0),
                ):
                    with pytest.raises(TypeError, match="Received: a variable of a program of the legacy representation"):
                        call()
        finally:
            paddle.disable_static()


limits = pytest.mark.parametrize(
    ("name", "arguments"), [("ClipGradByNorm", (0.8,)), ("ClipGradByGlobalNorm", (0.8,)), ("ClipGradByValue", (0.2, 0.1))]
)


@both
@limits
def test_pairs(side: str, name: str, arguments: tuple[float, ...]) -> None:
    """test_gradient_clip.py: the three classes in dynamic mode."""
    arrays = [some((5, 5)), some((5,))]
    pairs = [(framework.parameter(None), paddle.to_tensor(array)) for array in arrays]
    clipped = getattr(SIDES[side], name)(*arguments)(pairs)
    check(name, arrays, [gradient.numpy() for _, gradient in clipped])


@limits
def test_pairs_in_a_program(static: None, name: str, arguments: tuple[float, ...]) -> None:
    """test_gradient_clip.py: the three classes in a static program."""
    arrays = [some((5, 5)), some((5,))]
    with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
        data = [paddle.static.data(f"g{i}", array.shape, "float32") for i, array in enumerate(arrays)]
        clipped = getattr(gradclip, name)(*arguments)([(SimpleNamespace(need_clip=True), x) for x in data])
        fed = {f"g{i}": array for i, array in enumerate(arrays)}
        found = paddle.static.Executor().run(feed=fed, fetch_list=[gradient for _, gradient in clipped])
    check(name, arrays, found)


def check(name: str, arrays: list[np.ndarray], clipped: list[np.ndarray]) -> None:
    for got, array, norm in zip(clipped, arrays, _norms(name, arrays), strict=True):
        want = array.clip(0.1, 0.2) if name == "ClipGradByValue" else array * (0.8 / max(norm, 0.8))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-8)


def _norms(name: str, arrays: list[np.ndarray]) -> list[float]:
    each = [float(np.linalg.norm(array)) for array in arrays]
    return [math.hypot(*each)] * len(each) if name == "ClipGradByGlobalNorm" else each


@both
@pytest.mark.parametrize("name", CLASSES)
def test_none_and_need_clip(side: str, name: str) -> None:
    """test_gradient_clip.py: test_none_grad. A pair without a gradient is left out; need_clip False leaves a gradient."""
    x, y = framework.parameter(None), paddle.to_tensor([3.0, 4.0])
    clip = getattr(SIDES[side], name)(0.2)
    assert len(clip([(x, None), (x, y), (y, y)])) == 2
    assert clip([(x, None)]) == ([] if name != "ClipGradByGlobalNorm" else [(x, None)])
    x.need_clip = False
    gradient = paddle.to_tensor([3.0, 4.0])
    ((_, kept),) = [pair for pair in clip([(x, None), (x, gradient)]) if pair[1] is not None]
    assert kept is gradient
    assert kept.numpy().tolist() == [3.0, 4.0]


@both
def test_an_optimizer_takes_clips_only(side: str) -> None:
    """test_gradient_clip.py: test_type_error, and that a clip is taken."""
    with pytest.raises(TypeError):
        paddle.optimizer.SGD(0.1, parameters=[framework.parameter(None)], grad_clip="test")
    clip = SIDES[side].ClipGradByGlobalNorm(5.0)
    assert paddle.optimizer.SGD(0.1, parameters=[framework.parameter(None)], grad_clip=clip)._grad_clip is clip


@pytest.mark.parametrize("limit", [1.0, 1e20])
def test_selected_rows(limit: float) -> None:
    """test_clip_by_norm_op.py: duplicate rows are added up before the norm; an unclipped gradient may come back itself."""
    gradient = framework.sparse([0, 0, 1, 2], [[3.0], [5.0], [-4.0], [1.0]], 3)
    clipped = gradclip.ClipGradByNorm(limit)([(framework.parameter(None), gradient)])[0][1]
    assert clipped.is_selected_rows()
    np.testing.assert_allclose(framework.densify(clipped), np.array([[8.0], [-4.0], [1.0]]) * min(1, limit / 9), rtol=1e-6)
    assert limit > 9 or list(clipped.rows()) == [0, 1, 2]
