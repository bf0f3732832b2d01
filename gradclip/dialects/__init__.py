"""The dialects: a file for each framework, with a function for each native that returns a :class:`gradclip.Rule`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType, ModuleType
from typing import Any

from gradclip.core.mistakes import on_look_up
from gradclip.core.rule import Rule
from gradclip.core.spelling import did_you_mean, nearest, same, unknown
from gradclip.dialects import keras, optax, paddle, tensorflow, torch

__all__ = ["keras", "optax", "paddle", "tensorflow", "torch"]

_MODULES = (torch, tensorflow, paddle, optax, keras)
#: "torch.clip_grad_norm" -> the function
FUNCTIONS: Mapping[str, Callable[..., Rule]] = MappingProxyType(
    {f"{module.__name__.rpartition('.')[2]}.{name}": getattr(module, name) for module in _MODULES for name in module.__all__}
)
#: other names of a framework -> its dialect
_ALIASES = {"pytorch": "torch", "tf": "tensorflow", "paddlepaddle": "paddle", "jax": "optax", "flax": "optax"}


@cache
def parameters(function: Callable[..., Rule]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function, by name."""
    return inspect.signature(function).parameters


def required(function: Callable[..., Rule]) -> tuple[str, ...]:
    """The arguments that a function requires: the limit, or two bounds, the upper one last.

    >>> required(tensorflow.clip_by_value)
    ('clip_value_min', 'clip_value_max')
    """
    return tuple(p.name for p in parameters(function).values() if p.default is p.empty)


def call_of(native: str) -> str:
    """A call of the function that makes the rule of a native, or "": for hints.

    >>> call_of("torch.nn.utils.clip_grad_norm_"), call_of("torch.add")
    ('gradclip.dialects.torch.clip_grad_norm(max_norm=1.0)', '')
    """
    root, _, rest = native.partition(".")
    rule = same(f"{root}.{rest.rpartition('.')[2]}", FUNCTIONS)
    if rule is None:
        return ""
    *lower, upper = required(FUNCTIONS[rule])
    return f"gradclip.dialects.{rule}({', '.join([*(f'{name}=-1.0' for name in lower), f'{upper}=1.0'])})"


on_look_up(call_of)


def _looking_up(module: ModuleType) -> Callable[[str], Any]:
    """A dialect's ``__getattr__``: a function by its native's spelling, or an error with the nearest names."""
    dialect, own = module.__name__.rpartition(".")[2], module.__all__

    def look_up(name: str) -> Any:
        found = None if name.startswith("_") else same(name, own)
        if found is not None:
            return getattr(module, found)
        near = [rule for rule in FUNCTIONS if same(name, [rule.partition(".")[2]])]
        near = near or [f"{dialect}.{one}" for one in nearest(name, own)]
        hint = did_you_mean([f"dialects.{one}" for one in near])
        raise unknown(module.__name__, name, hint or f"it has {', '.join(own)}.")

    return look_up


for _module in _MODULES:
    _module.__dict__["__getattr__"] = _looking_up(_module)  # not in their sources: they do not know each other
    _module.__dict__["__dir__"] = _module.__all__.copy  # the rules alone


def _dialect(name: str) -> Any:
    found = _ALIASES.get(name.lower()) or next(iter(nearest(name, __all__, 1)), None)
    hint = did_you_mean([f"dialects.{found}"] if found else [])
    raise unknown(__name__, name, hint or f"there are {', '.join(__all__)}; any of them clips any framework's gradients.")


globals()["__getattr__"] = _dialect  # not by def: a type checker would then accept every name
