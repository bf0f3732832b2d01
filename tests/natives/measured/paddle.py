"""Paddle's own clips, and gradclip's classes and the paddle dialect."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import paddle
import pytest
from frameworks.paddle import framework
from natives.behaviours import Behaviours
from natives.compare import Outcome
from natives.replay import Native, Run, calls

import gradclip
from gradclip.dialects import paddle as dialect

CLASSES = ("ClipGradByNorm", "ClipGradByGlobalNorm", "ClipGradByValue")


def clip_grad_norm_(parameters: Any, *arguments: Any, **named: Any) -> Any:
    return framework.make(gradclip.clip_(parameters, dialect.clip_grad_norm(*arguments, **named)).norm)


def clip_grad_value_(parameters: Any, clip_value: Any) -> None:
    gradclip.clip_(parameters, dialect.clip_grad_value(clip_value))


THEIRS = SimpleNamespace(
    clip_grad_norm_=paddle.nn.utils.clip_grad_norm_,
    clip_grad_value_=paddle.nn.utils.clip_grad_value_,
    **{name: getattr(paddle.nn, name) for name in CLASSES},
)
OURS = SimpleNamespace(
    clip_grad_norm_=clip_grad_norm_, clip_grad_value_=clip_grad_value_, **{name: getattr(gradclip, name) for name in CLASSES}
)
PREFIX = "paddle."  #: of the names of its natives


# ---- the recorded cases --------------------------------------------------------------------------------------------------


of_any_dtype = paddle.base.framework.EagerParamBase.from_tensor  # create_parameter makes no complex parameters


def hold(grads: list[Any]) -> list[Any]:
    """Return parameters with these gradients, one for each distinct object; Paddle copies an assigned gradient."""
    made: dict[int, Any] = {}
    for gradient in grads:
        if gradient is not None and id(gradient) not in made:
            made[id(gradient)] = of_any_dtype(paddle.zeros(gradient.shape, gradient.dtype))
            made[id(gradient)].grad = gradient
    return [framework.parameter(None) if gradient is None else made[id(gradient)] for gradient in grads]


def gradients_of(parameters: list[Any]) -> list[Any]:
    return [parameter.grad for parameter in parameters]


def theirs(parameters: list[Any], limit: Any, **arguments: Any) -> Outcome:
    norm = paddle.nn.utils.clip_grad_norm_(parameters, limit, **arguments)
    return Outcome(gradients_of(parameters), norm)


def ours(parameters: list[Any], limit: Any, **arguments: Any) -> Outcome:
    norm = gradclip.clip_(parameters, dialect.clip_grad_norm(limit, **arguments)).norm
    return Outcome(gradients_of(parameters), norm)


def pairs(make: Any) -> Run:
    """Adapt a clip of (parameter, gradient) pairs that is constructed with its limit."""

    def run(grads: list[Any], limit: Any) -> Outcome:
        returned = make(limit)([(paddle.zeros([1]), g) for g in grads])
        assert all(type(pair) is tuple for pair in returned)
        return Outcome([g for _, g in returned], None, returned)

    return run


CALLS = calls(
    Native("paddle.nn.utils.clip_grad_norm_", theirs, ours, True, "", hold, gradients_of),
    Native("paddle.nn.ClipGradByNorm", pairs(paddle.nn.ClipGradByNorm), pairs(gradclip.ClipGradByNorm)),
    Native("paddle.nn.ClipGradByGlobalNorm", pairs(paddle.nn.ClipGradByGlobalNorm), pairs(gradclip.ClipGradByGlobalNorm)),
)

# ---- behaviours ----------------------------------------------------------------------------------------------------------

_BELOW = "the operation below ClipGradByNorm, which the cases replay"
_F20 = "case F20 replays the clips of 2**25 ones"
#: recorded behaviours without a counterpart here, with the reason
_CRASHES = (
    "reads memory that is not there: the process crashes more often than it raises; test_selected_rows.py has gradclip's side"
)
NOT_REPLAYED = {
    "norm_type 3": "case J-3",
    "norm_type 'inf'": "case J-'inf'",
    "clip.clip_by_norm f32 / f64 / f16": _BELOW,
    "clip.clip_by_norm f64": _BELOW,
    "clip.clip_by_norm max_norm int": _BELOW,
    "differentiable? d sum(clip_by_norm)/dx": _BELOW,
    "ClipGradByNorm f64 grad": "case F1-float64",
    "paddle.linalg.norm(ones(2**25)) f32": _F20,
    "paddle.linalg.norm(ones(2**24+2**20)) f32": _F20,
    "ClipGradByNorm(1) on ones(2**25)": _F20,
    "clip_grad_norm_ on ones(2**25) max=1": _F20,
    "ClipGradByValue on SelectedRows": _CRASHES,
    "clip_grad_norm_ on SelectedRows": _CRASHES,
    "grad_clip='x'": "what Paddle's optimizers check; no clip is called",
}

NORM, VALUE = "paddle.nn.utils.clip_grad_norm_", "paddle.nn.utils.clip_grad_value_"
BY_NORM, BY_GLOBAL, BY_VALUE = (f"paddle.nn.{name}" for name in CLASSES)
BEHAVIOURS = Behaviours()
of = BEHAVIOURS.of


def parameter(values: Any = (3.0, 4.0), dtype: str = "float32") -> Any:
    p = paddle.base.framework.EagerParamBase.from_tensor(framework.make(values, dtype))
    p.grad = framework.make(values, dtype)
    return p


@of(NORM, "in place, and what it returns")
def _(api: Any) -> Any:
    p = parameter()
    norm = api.clip_grad_norm_([p], 1.0)
    return norm, norm.stop_gradient, p.grad


@of(NORM, "empty list and generator")
def _(api: Any) -> Any:
    return api.clip_grad_norm_([], 1.0), api.clip_grad_norm_((p for p in ()), 1.0)


@of(NORM, "a generator")
def _(api: Any) -> Any:
    p = parameter()
    return api.clip_grad_norm_((q for q in [p]), 1.0), p.grad


@of(NORM, "the parameters of a layer")
def _(api: Any) -> Any:
    layer = paddle.nn.Linear(2, 2)
    for p in layer.parameters():
        p.grad = paddle.ones(p.shape)
    return api.clip_grad_norm_(layer.parameters(), 1.0), [p.grad for p in layer.parameters()]


@of(NORM, "a single tensor without a gradient")
def _(api: Any) -> Any:
    return api.clip_grad_norm_(framework.parameter(None), 1.0)


@of(NORM, "a parameter of stop_gradient=True")
def _(api: Any) -> Any:
    p = parameter()
    p.stop_gradient = True
    return api.clip_grad_norm_([p], 1.0), p.grad


@of(NORM, "the same parameter twice")
def _(api: Any) -> Any:
    p = parameter()
    api.clip_grad_norm_([p, p], 1.0)
    return p.grad


@of(NORM, "norm_type True", values=[3.0, 4.0], order=True)
@of(NORM, "norm_type 1 of a matrix", values=[[1.0, -2.0], [3.0, -4.0]], order=1)
@of(NORM, "norm_type 0 of a matrix", values=[[1.0, 0.0], [3.0, -4.0]], order=0)
def _(api: Any, values: Any, order: Any) -> Any:
    return api.clip_grad_norm_([parameter(values)], 1.0, order)


@of(NORM, "error_if_nonfinite leaves the gradients")
def _(api: Any) -> Any:
    p = parameter([3.0, float("inf")])
    with pytest.raises(RuntimeError):
        api.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)
    return p.grad


@of(VALUE, "[3, -4, nan, inf], 1", limit=1.0)
@of(VALUE, "-1", limit=-1.0)
@of(VALUE, "nan", limit=float("nan"))
def _(api: Any, limit: float) -> Any:
    p = parameter([3.0, -4.0, float("nan"), float("inf")])
    return api.clip_grad_value_([p], limit), p.grad


@of(VALUE, "1.5 of int32", dtype="int32")
@of(VALUE, "1.5 of int64", dtype="int64")
@of(VALUE, "1.5 of float64", dtype="float64")
def _(api: Any, dtype: str) -> Any:
    p = parameter([3, -4], dtype)
    api.clip_grad_value_([p], 1.5)
    return p.grad


def weight(need_clip: bool = True) -> Any:
    p = framework.parameter(None)
    p.need_clip = need_clip
    return p


def each(see: Any) -> Any:
    """Register a behaviour for all three classes, under the function's name."""
    for name in CLASSES:
        of(f"paddle.nn.{name}", see.__name__.replace("_", " "), kind=name)(lambda api, kind: see(getattr(api, kind)))
    return see


@each
def in_place(clip: Any) -> Any:
    g = framework.make([3.0, 4.0])
    result = clip(1.0)([(weight(), g)])
    return type(result).__name__, type(result[0]).__name__, result[0][1] is g, g, result[0][1]


@each
def need_clip_False_on_one(clip: Any) -> Any:
    g, h = framework.make([3.0, 4.0]), framework.make([30.0, 40.0])
    result = clip(1.0)([(weight(), g), (weight(False), h)])
    return [grad for _, grad in result], result[1][1] is h


@each
def need_clip_False_on_all(clip: Any) -> Any:
    return [g for _, g in clip(1.0)([(weight(False), framework.make([3.0, 4.0]))])]


@each
def text(clip: Any) -> Any:
    return str(clip(1.0))


@each
def a_generator(clip: Any) -> Any:
    return [g for _, g in clip(1.0)(pair for pair in [(weight(), framework.make([3.0, 4.0]))])]


@each
def one_None(clip: Any) -> Any:
    return [g for _, g in clip(1.0)([(weight(), None), (weight(), framework.make([3.0, 4.0]))])]


@each
def only_None(clip: Any) -> Any:
    return [g for _, g in clip(1.0)([(weight(), None)])]


@each
def limit_a_text(clip: Any) -> Any:
    return [g for _, g in clip("1")([(weight(), framework.make([3.0, 4.0]))])]


@each
def limit_a_tensor(clip: Any) -> Any:
    return [g for _, g in clip(paddle.to_tensor(1.0))([(weight(), framework.make([3.0, 4.0]))])]


@of("paddle.nn.ClipGradByNorm", "SelectedRows", kind="ClipGradByNorm")
@of("paddle.nn.ClipGradByGlobalNorm", "SelectedRows", kind="ClipGradByGlobalNorm")
def _(api: Any, kind: str) -> Any:
    g = framework.sparse([1, 1, 3], [[1.0, 1.0]] * 3, 5)
    clipped = getattr(api, kind)(1.0)([(weight(), g)])[0][1]
    return clipped.is_selected_rows(), list(clipped.rows()), framework.make(framework.densify(clipped)), list(g.rows())


@each
def in_an_optimizer(clip: Any) -> Any:
    layer = paddle.nn.Linear(2, 2)
    for p in layer.parameters():
        p.set_value(paddle.zeros(p.shape))
    optimizer = paddle.optimizer.SGD(0.1, parameters=layer.parameters(), grad_clip=clip(0.001))
    layer(paddle.to_tensor([[1.0, 2.0]])).sum().backward()
    optimizer.step()
    return [(p.grad, p.detach()) for p in layer.parameters()]


@each
def to_static(clip: Any) -> Any:
    clipper, p = clip(1.0), weight()

    def clipped(g: Any) -> Any:
        return clipper([(p, g)])[0][1]

    return paddle.jit.to_static(clipped, full_graph=True)(framework.make([3.0, 4.0]))


@of(BY_GLOBAL, "auto_skip_clip", values=[3.0, 4.0], skip=True)
@of(BY_GLOBAL, "auto_skip_clip 1", values=[3.0, 4.0], skip=1)
@of(BY_GLOBAL, "auto_skip_clip, nan", values=[float("nan"), 4.0], skip=True)
def _(api: Any, values: list[float], skip: Any) -> Any:
    results = [
        api.ClipGradByGlobalNorm(limit, auto_skip_clip=skip)([(weight(), framework.make(values))]) for limit in (10.0, 1.0)
    ]
    return [g for pairs in results for _, g in pairs]


@of(BY_VALUE, "bounds that cross", limits=(1.0, 2.0))
@of(BY_VALUE, "-1", limits=(-1.0,))
@of(BY_VALUE, "0", limits=(0.0,))
@of(BY_VALUE, "both bounds above 0", limits=(0.2, 0.1))
@of(BY_VALUE, "nan", limits=(1.0,), values=(float("nan"), -4.0))
def _(api: Any, limits: tuple[float, ...], values: tuple[float, ...] = (3.0, -4.0, 0.15)) -> Any:
    return [g for _, g in api.ClipGradByValue(*limits)([(weight(), framework.make(values))])]


@of(BY_NORM, "in a program of the legacy representation", kind="ClipGradByNorm")
@of(BY_VALUE, "in a program of the legacy representation", kind="ClipGradByValue")
def _(api: Any, kind: str) -> Any:
    with paddle.pir_utils.OldIrGuard():
        paddle.enable_static()
        try:
            program, startup = paddle.static.Program(), paddle.static.Program()
            with paddle.static.program_guard(program, startup):
                x = paddle.static.data("x", [1, 2], "float32")
                loss = paddle.mean(paddle.static.nn.fc(x, 2))
                paddle.optimizer.SGD(0.1, grad_clip=getattr(api, kind)(1.0)).minimize(loss)
            return "built"
        finally:
            paddle.disable_static()
