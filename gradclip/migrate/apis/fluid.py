"""``paddle.fluid``, removed in Paddle 2.5: its clips, their global setter, and the keyword of its parameters."""

from __future__ import annotations

from gradclip.migrate.apis import forms
from gradclip.migrate.apis.model import Api, Kind, Target, signature

__all__ = ["APIS"]

_SOURCE = "2.5; paddlepaddle 1.8.5, python/paddle/fluid/clip.py"
_DYGRAPH = "1.8; paddlepaddle 1.7.2, python/paddle/fluid/dygraph_grad_clip.py"
_LINK = "https://github.com/PaddlePaddle/Paddle/blob/v1.8.5/python/paddle/fluid/clip.py"
_DYGRAPH_LINK = "https://github.com/PaddlePaddle/Paddle/blob/v1.7.2/python/paddle/fluid/dygraph_grad_clip.py"
_NEED_CLIP = frozenset({"need_clip"})
_NOW = "need_clip was a function of the parameter; today each parameter has its own ParamAttr(need_clip=)."


def _names(kind: str) -> tuple[str, ...]:
    """``fluid.clip`` exported each class under three names, one of them since 2.0; the 2.0 alphas had it in ``paddle.nn``."""
    names = (f"GradientClipBy{kind}", f"ClipBy{kind}", f"ClipGradBy{kind}")
    return (*(f"paddle.fluid.clip.{name}" for name in names), f"paddle.nn.GradientClipBy{kind}")


def _dygraph_names(kind: str) -> tuple[str, ...]:
    return f"paddle.fluid.dygraph_grad_clip.GradClipBy{kind}", f"paddle.fluid.clip.GradClipBy{kind}"


def _parameter_keyword(code: str, cls: str, first: str) -> Api:
    return Api(
        code=code,
        framework="paddle",
        names=(f"paddle.fluid.{cls}(gradient_clip=)", f"paddle.fluid.param_attr.{cls}(gradient_clip=)"),
        signature=signature(first + "regularizer=None, trainable=True, gradient_clip=None, do_model_average=False)"),
        kind=Kind.KEYWORD,
        returns="an attribute of parameters",
        keyword="gradient_clip",
        dialect="",
        targets={},
        status="removed",
        since="1.8; paddlepaddle 1.7.2, python/paddle/fluid/param_attr.py",
        note="The clip of one parameter: pass it to grad_clip= of the optimizer, with need_clip=False for the others.",
        link="https://github.com/PaddlePaddle/Paddle/blob/v1.7.2/python/paddle/fluid/param_attr.py",
    )


_CLASSES: tuple[Api, ...] = (
    Api(
        code="GL451",
        framework="paddle",
        names=_names("Norm"),
        signature=signature("(clip_norm, need_clip=None)"),
        kind=Kind.OBJECT,
        returns="an object for grad_clip= of an optimizer",
        nones="a pair without a gradient is left out",
        dialect="paddle.clip_grad_by_norm",
        targets={
            "gradclip": Target("gradclip.GradientClipByNorm", dropped=_NEED_CLIP, exact=False, note=_NOW),
            "paddle": Target("paddle.nn.ClipGradByNorm", dropped=_NEED_CLIP, exact=False, note=_NOW),
            **forms.tensor_norm("clip_norm", without="paddle"),
        },
        status="removed",
        since=_SOURCE,
        note="Each gradient by its own norm.",
        link=_LINK,
    ),
    Api(
        code="GL452",
        framework="paddle",
        names=_names("GlobalNorm"),
        signature=signature("(clip_norm, group_name='default_group', need_clip=None)"),
        kind=Kind.OBJECT,
        returns="an object for grad_clip= of an optimizer",
        nones="a pair without a gradient is left out",
        dialect="paddle.clip_grad_by_global_norm",
        targets={
            "gradclip": Target("gradclip.GradientClipByGlobalNorm", dropped=_NEED_CLIP, exact=False, note=_NOW),
            "paddle": Target("paddle.nn.ClipGradByGlobalNorm", dropped=_NEED_CLIP, exact=False, note=_NOW),
            **forms.global_norm("clip_norm", without="paddle", nan_if_infinite=False),
        },
        status="removed",
        since=_SOURCE,
        note="One norm over all gradients; as the clip of single parameters, over those with the same group_name.",
        link=_LINK,
    ),
    Api(
        code="GL453",
        framework="paddle",
        names=_names("Value"),
        signature=signature("(max, min=None, need_clip=None)"),
        kind=Kind.OBJECT,
        returns="an object for grad_clip= of an optimizer",
        nones="a pair without a gradient is left out",
        dialect="paddle.clip_grad_by_value",
        targets={
            "gradclip": Target("gradclip.GradientClipByValue", dropped=_NEED_CLIP, note=_NOW),
            "paddle": Target("paddle.nn.ClipGradByValue", dropped=_NEED_CLIP, note=_NOW),
            **forms.bounds("min", "max", without="paddle"),
        },
        status="removed",
        since=_SOURCE,
        note="Each element between two bounds, the upper one first.",
        link=_LINK,
    ),
)

_GLOBAL: tuple[Api, ...] = (
    Api(
        code="GL454",
        framework="paddle",
        names=("paddle.fluid.clip.set_gradient_clip",),
        signature=signature("(clip, param_list=None, program=None)"),
        kind=Kind.GLOBAL_STATE,
        returns="None",
        dialect="",
        targets={},
        status="removed",
        since=_SOURCE,
        note="It marks the parameters that the program has so far, for the minimize() that follows: "
        "pass the clip to grad_clip= of that optimizer.",
        link=_LINK,
    ),
    _parameter_keyword("GL455", "ParamAttr", "(name=None, initializer=None, learning_rate=1.0, "),
    _parameter_keyword("GL461", "WeightNormParamAttr", "(dim=None, name=None, initializer=None, learning_rate=1.0, "),
)

_OTHERS: tuple[Api, ...] = (
    Api(
        code="GL459",
        framework="paddle",
        names=("paddle.fluid.clip.ErrorClipByValue", "paddle.nn.clip.ErrorClipByValue"),
        signature=signature("(max, min=None)"),
        kind=Kind.OBJECT,
        returns="an object for error_clip of a variable",
        dialect="",
        targets={},
        status="removed",
        since=_SOURCE,
        note="It clips what flows back through one variable, not the gradient of a parameter: a hook on the tensor does that.",
        link=_LINK,
    ),
    Api(
        code="GL460",
        framework="paddle",
        names=("paddle.fluid.layers.clip_by_norm",),
        signature=signature("(x, max_norm, name=None)"),
        kind=Kind.RETURNED,
        returns="a new tensor",
        nones="an error: it takes one tensor",
        dialect="paddle.clip_grad_by_norm",
        dialect_arguments={"max_norm": "clip_norm"},
        targets={
            "gradclip": Target("gradclip.clip_by_norm", {"x": "t", "max_norm": "clip_norm", "name": "name"}, exact=False),
            "paddle": Target("paddle.nn.clip.clip_by_norm", exact=False),
            **forms.tensor_norm("max_norm", without="paddle"),
        },
        status="removed",
        since="2.5; paddlepaddle 1.8.5, python/paddle/fluid/layers/nn.py",
        note="One tensor by its own norm; the result is a new tensor.",
        link="https://github.com/PaddlePaddle/Paddle/blob/v1.8.5/python/paddle/fluid/layers/nn.py",
    ),
)

_DYGRAPH_APIS: tuple[Api, ...] = (
    Api(
        code="GL456",
        framework="paddle",
        names=_dygraph_names("Norm"),
        signature=signature("(clip_norm)"),
        kind=Kind.OBJECT,
        returns="an object for grad_clip= of minimize",
        nones="it stays None",
        dialect="paddle.clip_grad_by_norm",
        targets={
            "gradclip": Target("gradclip.ClipGradByNorm", exact=False),
            "paddle": Target("paddle.nn.ClipGradByNorm", exact=False),
            **forms.tensor_norm("clip_norm", without="paddle"),
        },
        status="removed",
        since=_DYGRAPH,
        note="Each gradient by its own norm; it was passed to minimize(grad_clip=), and goes to the optimizer today.",
        link=_DYGRAPH_LINK,
    ),
    Api(
        code="GL457",
        framework="paddle",
        names=_dygraph_names("GlobalNorm"),
        signature=signature("(max_global_norm, dtype='float32')"),
        kind=Kind.OBJECT,
        returns="an object for grad_clip= of minimize",
        nones="it stays None",
        dialect="paddle.clip_grad_by_global_norm",
        dialect_arguments={"max_global_norm": "clip_norm"},
        targets={
            "gradclip": Target("gradclip.ClipGradByGlobalNorm", {"max_global_norm": "clip_norm"}, frozenset({"dtype"}), False),
            "paddle": Target("paddle.nn.ClipGradByGlobalNorm", {"max_global_norm": "clip_norm"}, frozenset({"dtype"}), False),
            **forms.global_norm("max_global_norm", without="paddle", nan_if_infinite=False),
        },
        status="removed",
        since=_DYGRAPH,
        note="One norm over all gradients; it was passed to minimize(grad_clip=), and goes to the optimizer today.",
        link=_DYGRAPH_LINK,
    ),
    Api(
        code="GL458",
        framework="paddle",
        names=_dygraph_names("Value"),
        signature=signature("(min_value, max_value=None)"),
        kind=Kind.OBJECT,
        returns="an object for grad_clip= of minimize",
        nones="it stays None",
        dialect="paddle.clip_grad_by_value",
        dialect_arguments={"min_value": "min", "max_value": "max"},
        targets={
            "gradclip": Target("gradclip.ClipGradByValue", {"min_value": "min", "max_value": "max"}),
            "paddle": Target("paddle.nn.ClipGradByValue", {"min_value": "min", "max_value": "max"}),
            **forms.bounds("min_value", "max_value", without="paddle"),
        },
        status="removed",
        since=_DYGRAPH,
        note="Each element between two bounds, the lower one first, unlike Paddle's other classes.",
        link=_DYGRAPH_LINK,
    ),
)

APIS: tuple[Api, ...] = (*_CLASSES, *_GLOBAL, *_DYGRAPH_APIS, *_OTHERS)
