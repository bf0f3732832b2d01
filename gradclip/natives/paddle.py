"""Paddle: ``paddle.nn.ClipGradBy*`` for the optimizers' slot, and the functions that Paddle ported from torch."""

from __future__ import annotations

from functools import partial

from gradclip.natives.model import Applied, Native

__all__ = ["NATIVES"]

_native = partial(Native, source="paddlepaddle 3.3.1, paddle/nn/clip.py")
_DOCS = "https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/nn/{}_en.html"
_FILE = "https://github.com/PaddlePaddle/Paddle/blob/v3.3.1/python/paddle/nn/clip.py"


def _names(kind: str) -> tuple[str, ...]:
    """The name of the class, and its name in ``paddle.fluid``, which the module keeps."""
    return f"paddle.nn.ClipGradBy{kind}", f"paddle.nn.clip.ClipGradBy{kind}", f"paddle.nn.clip.GradientClipBy{kind}"


NATIVES = (
    _native(
        code="GP401",
        names=_names("Norm"),
        applied=Applied.SLOT,
        note="For grad_clip= of an optimizer: each gradient by its own norm.",
        link=_DOCS.format("ClipGradByNorm"),
        departs={"infinite-limit": "every gradient becomes NaN", "sparse": "an error where it stores nothing"},
        departs_also=("finite-norm", "wide-arithmetic", "dtypes", "legacy-programs"),
    ),
    _native(
        code="GP402",
        names=_names("GlobalNorm"),
        applied=Applied.SLOT,
        writes=True,
        note="For grad_clip= of an optimizer: one norm over all gradients.",
        link=_DOCS.format("ClipGradByGlobalNorm"),
        departs={
            "zero-limit": "gradients become NaN if all are zero",
            "infinite-limit": "every gradient becomes NaN",
            "negative-limit": "the gradients change their sign",
            "sparse": "the returned gradient is not merged",
            "twice": "it counts twice",
            "iterator": "an error",
        },
        departs_also=("finite-norm", "wide-arithmetic", "dtypes", "shape-kept"),
    ),
    _native(
        code="GP403",
        caution="Paddle's order is max, min; it refuses bounds that cross.",
        names=_names("Value"),
        applied=Applied.SLOT,
        note="For grad_clip= of an optimizer: each element between two bounds, the upper one first.",
        link=_DOCS.format("ClipGradByValue"),
        departs={"sparse": "an error"},
        departs_also=("dtypes", "legacy-programs"),
    ),
    _native(
        code="GP404",
        caution="Paddle's loops over its argument twice: pass a list, not a generator. It has the orders 0, 1, 2, inf.",
        names=("paddle.nn.utils.clip_grad_norm_",),
        applied=Applied.PARAMETERS,
        tensors="parameters",
        returns_norm=True,
        source="paddlepaddle 3.3.1, paddle/nn/utils/clip_grad_norm_.py",
        note="One norm over all gradients, in place; given an iterator it returns the norm and clips nothing.",
        link=_DOCS.format("utils/clip_grad_norm_"),
        departs={
            "infinite-limit": "every gradient becomes NaN if one is infinite",
            "negative-limit": "the gradients change their sign",
            "sparse": "an error",
            "twice": "it counts twice, and is scaled twice",
            "iterator": "it returns the norm, and clips nothing",
        },
        departs_also=("finite-norm", "accurate-norm", "dtypes"),
    ),
    _native(
        code="GP405",
        names=("paddle.nn.utils.clip_grad_value_",),
        applied=Applied.PARAMETERS,
        tensors="parameters",
        source="paddlepaddle 3.3.1, paddle/nn/utils/clip_grad_value_.py",
        note="Each element between two bounds, in place; it returns None.",
        link=_DOCS.format("utils/clip_grad_value_"),
        departs={"sparse": "an error"},
        departs_also=("dtypes", "integers"),
    ),
    _native(
        code="GP406",
        names=("paddle.nn.clip.clip_by_norm",),
        applied=Applied.TENSOR,
        signature_text="(x, max_norm, name=None)",
        dialect_name="paddle.clip_grad_by_norm",
        called={"max_norm": "clip_norm"},
        note="One tensor by its own norm; the result is a new tensor.",
        link=_FILE,
    ),
    _native(
        code="GP407",
        names=("paddle.nn.clip.set_gradient_clip",),
        applied=Applied.SETTER,
        signature_text="(clip, param_list=None, program=None)",
        dialect_name="",
        status="deprecated",
        since="1.8",
        note="It marks the parameters that a static program has so far: pass the clip to grad_clip= of the optimizer instead.",
        link=_FILE,
    ),
)
