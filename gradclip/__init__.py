"""Find broken gradient clipping, and reproduce any framework's clipping on any framework's tensors."""

from gradclip.core import isolation as isolation  # isort: skip  # first: here the command leaves the current folder
from importlib import import_module as _import_module

from gradclip import limits
from gradclip.core import spelling as _spelling
from gradclip.core.backend import Backend
from gradclip.core.clip import clip, clip_, norm, norms_by_name, scale_by_norm, scale_by_norm_
from gradclip.core.groups import Group
from gradclip.core.registry import register
from gradclip.core.result import ClipResult
from gradclip.core.rule import Rule, Scope
from gradclip.dropins.paddle import (
    ClipGradByGlobalNorm,
    ClipGradByNorm,
    ClipGradByValue,
    GradientClipByGlobalNorm,
    GradientClipByNorm,
    GradientClipByValue,
)
from gradclip.dropins.tensorflow import clip_by_global_norm, clip_by_norm, clip_by_value, global_norm
from gradclip.dropins.torch import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from gradclip.limits import Adaptive
from gradclip.steps.advice import choose
from gradclip.steps.clipped import clipped
from gradclip.steps.monitor import Monitor, observed
from gradclip.steps.step import Step

__version__ = "0.1.0"

__all__ = [
    "Adaptive",
    "Backend",
    "ClipGradByGlobalNorm",
    "ClipGradByNorm",
    "ClipGradByValue",
    "ClipResult",
    "GradientClipByGlobalNorm",
    "GradientClipByNorm",
    "GradientClipByValue",
    "Group",
    "Monitor",
    "Rule",
    "Scope",
    "Step",
    "choose",
    "clip",
    "clip_",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "clipped",
    "get_total_norm",
    "global_norm",
    "limits",
    "norm",
    "norms_by_name",
    "observed",
    "register",
    "scale_by_norm",
    "scale_by_norm_",
]


def __dir__() -> list[str]:
    return __all__


def _look_up(name: str) -> object:
    """The package's ``__getattr__``: its backends, or the error for an unknown name, with the nearest known names."""
    if name == "backends":
        return _import_module("gradclip.backends")
    raise _spelling.unknown("gradclip", name, "" if name.startswith("_") else _hint(name))


def _hint(name: str) -> str:
    """Where a name is that the package lacks, or the nearest names: its own, else those of its parts."""
    parts: dict[str, str] = {**_import_module("gradclip.backends").exported()}
    parts |= {one: f"gradclip.limits.{one}" for one in limits.__all__}
    parts |= {one.partition(".")[2]: f"gradclip.dialects.{one}" for one in _import_module("gradclip.dialects").FUNCTIONS}
    same = _spelling.same(name, __all__)
    if name in parts and not same:
        return f"it is {parts[name]}."
    near = [f"gradclip.{one}" for one in ([same] if same else _spelling.nearest(name, __all__))]
    return _spelling.did_you_mean(near or [parts[one] for one in _spelling.nearest(name, parts)])


globals()["__getattr__"] = _look_up  # not by def: a type checker would then accept every name
