"""Paddle: ``paddle.nn.ClipGradBy*`` for the optimizers' slot, and the functions that Paddle ported from torch."""

from __future__ import annotations

from gradclip.migrate.apis import forms
from gradclip.migrate.apis.model import Api, Kind, Target, signature

__all__ = ["APIS"]

_DOCS = "https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/nn/"
_SOURCE = "paddlepaddle 3.3.1, paddle/nn/clip.py"


def _names(name: str) -> tuple[str, ...]:
    """The name of the class, and its name in ``paddle.fluid``, which the module keeps."""
    return (f"paddle.nn.{name}", f"paddle.nn.clip.{name}", f"paddle.nn.clip.{name.replace('ClipGradBy', 'GradientClipBy')}")


APIS: tuple[Api, ...] = (
    Api(
        code="GP401",
        framework="paddle",
        names=_names("ClipGradByNorm"),
        signature=signature("(clip_norm)"),
        kind=Kind.OBJECT,
        returns="an object for grad_clip= of an optimizer",
        nones="a pair without a gradient is left out",
        dialect="paddle.clip_grad_by_norm",
        targets={
            "gradclip": Target("gradclip.ClipGradByNorm", exact=False),
            **forms.tensor_norm("clip_norm", without="paddle"),
        },
        since=_SOURCE,
        note="For grad_clip= of an optimizer: each gradient by its own norm.",
        link=_DOCS + "ClipGradByNorm_en.html",
    ),
    Api(
        code="GP402",
        framework="paddle",
        names=_names("ClipGradByGlobalNorm"),
        signature=signature("(clip_norm, group_name='default_group', auto_skip_clip=False)"),
        kind=Kind.OBJECT,
        returns="an object for grad_clip= of an optimizer",
        nones="a pair without a gradient is left out",
        dialect="paddle.clip_grad_by_global_norm",
        targets={
            "gradclip": Target("gradclip.ClipGradByGlobalNorm", exact=False),
            **forms.global_norm("clip_norm", without="paddle", nan_if_infinite=False),
        },
        since=_SOURCE,
        note="For grad_clip= of an optimizer: one norm over all gradients.",
        link=_DOCS + "ClipGradByGlobalNorm_en.html",
    ),
    Api(
        code="GP403",
        framework="paddle",
        names=_names("ClipGradByValue"),
        signature=signature("(max, min=None)"),
        kind=Kind.OBJECT,
        returns="an object for grad_clip= of an optimizer",
        nones="a pair without a gradient is left out",
        dialect="paddle.clip_grad_by_value",
        targets={"gradclip": Target("gradclip.ClipGradByValue"), **forms.bounds("min", "max", without="paddle")},
        since=_SOURCE,
        note="For grad_clip= of an optimizer: each element between two bounds, the upper one first.",
        link=_DOCS + "ClipGradByValue_en.html",
    ),
    Api(
        code="GP404",
        framework="paddle",
        names=("paddle.nn.utils.clip_grad_norm_",),
        signature=signature("(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False)"),
        kind=Kind.IN_PLACE,
        returns="the norm before clipping",
        nones="a parameter without a gradient is left out",
        dialect="paddle.clip_grad_norm",
        targets={
            "gradclip": Target("gradclip.clip_grad_norm_", exact=False),
            "torch": Target("torch.nn.utils.clip_grad_norm_", exact=False),
        },
        since="paddlepaddle 3.3.1, paddle/nn/utils/clip_grad_norm_.py",
        note="One norm over all gradients, in place; given an iterator it returns the norm and clips nothing.",
        link=_DOCS + "utils/clip_grad_norm__en.html",
    ),
    Api(
        code="GP405",
        framework="paddle",
        names=("paddle.nn.utils.clip_grad_value_",),
        signature=signature("(parameters, clip_value)"),
        kind=Kind.IN_PLACE,
        returns="None",
        nones="a parameter without a gradient is left out",
        dialect="paddle.clip_grad_value",
        targets={
            "gradclip": Target("gradclip.clip_grad_value_"),
            "torch": Target("torch.nn.utils.clip_grad_value_"),
            **forms.elementwise("clip_value", without="torch paddle"),
        },
        since="paddlepaddle 3.3.1, paddle/nn/utils/clip_grad_value_.py",
        note="Each element between two bounds, in place; it returns None.",
        link=_DOCS + "utils/clip_grad_value__en.html",
    ),
    Api(
        code="GP406",
        framework="paddle",
        names=("paddle.nn.clip.clip_by_norm",),
        signature=signature("(x, max_norm, name=None)"),
        kind=Kind.RETURNED,
        returns="a new tensor",
        nones="an error: it takes one tensor",
        dialect="paddle.clip_grad_by_norm",
        dialect_arguments={"max_norm": "clip_norm"},
        targets={
            "gradclip": Target("gradclip.clip_by_norm", {"x": "t", "max_norm": "clip_norm", "name": "name"}, exact=False),
            **forms.tensor_norm("max_norm", without="paddle"),
        },
        since=_SOURCE,
        note="One tensor by its own norm; the result is a new tensor.",
        link="https://github.com/PaddlePaddle/Paddle/blob/v3.3.1/python/paddle/nn/clip.py",
    ),
    Api(
        code="GP407",
        framework="paddle",
        names=("paddle.nn.clip.set_gradient_clip",),
        signature=signature("(clip, param_list=None, program=None)"),
        kind=Kind.GLOBAL_STATE,
        returns="None",
        dialect="",
        targets={},
        status="deprecated",
        since=f"1.8; {_SOURCE}",
        note="It marks the parameters that a static program has so far: pass the clip to grad_clip= of the optimizer instead.",
        link="https://github.com/PaddlePaddle/Paddle/blob/v3.3.1/python/paddle/nn/clip.py",
    ),
)
