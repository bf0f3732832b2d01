"""Objects for the ``grad_clip=`` of Paddle's optimizers: any rule, and gradclip's classes as subclasses of Paddle's own."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import paddle

from gradclip.clip import clip
from gradclip.rule import Rule, check_rule

__all__ = ["Pairs", "grad_clip", "slot", "wanted"]

Pairs = list[tuple[Any, Any]]


def wanted(parameter: Any) -> bool:
    """Whether the gradient of a parameter is to be clipped."""
    return getattr(parameter, "need_clip", True) is not False


def grad_clip(rule: Rule) -> paddle.nn.clip.ClipGradBase:
    """An object for the ``grad_clip=`` of any ``paddle.optimizer``, in dynamic mode and in a static program.

    Args:
        rule: of any dialect but one that sums over examples.

    Returns:
        A ``paddle.nn.clip.ClipGradBase``. As Paddle's own it leaves the gradient of a parameter with ``need_clip=False`` as it
        is and drops pairs without a gradient.

    Raises:
        TypeError, ValueError: for what is no rule, and for one whose result has another shape than the gradient.

    >>> import paddle, gradclip.backends.paddle
    >>> from gradclip.dialects import torch
    >>> layer = paddle.nn.Linear(2, 2)
    >>> clip = gradclip.backends.paddle.grad_clip(torch.clip_grad_norm(1.0))
    >>> optimizer = paddle.optimizer.SGD(parameters=layer.parameters(), grad_clip=clip)
    """
    return _RuleClip(rule)


class _RuleClip(paddle.nn.clip.ClipGradBase):
    def __init__(self, rule: Rule) -> None:
        super().__init__()
        check_rule(rule, keeps_shape=True)
        self.rule = rule

    @paddle.jit.not_to_static
    def __call__(self, params_grads: Iterable[tuple[Any, Any]]) -> Pairs:
        pairs = [(p, g) for p, g in params_grads if g is not None]
        chosen = [(p, g) for p, g in pairs if wanted(p)]
        with paddle.no_grad():
            clipped = iter(clip([g for _, g in chosen], self.rule, params=[p for p, _ in chosen]).grads)
        return [(p, next(clipped) if wanted(p) else g) for p, g in pairs]

    def __str__(self) -> str:
        return f"Gradient Clip By {self.rule}"


@cache
def slot(cls: type) -> type:
    """``cls`` as a subclass of Paddle's class of the same name, so that its distributed optimizers know it too."""
    if issubclass(cls, paddle.nn.clip.ClipGradBase):
        return cls
    slots = ("ClipGradByNorm", "ClipGradByGlobalNorm", "ClipGradByValue")
    native: Any = getattr(paddle.nn.clip, next((c.__name__ for c in cls.__mro__ if c.__name__ in slots), "ClipGradBase"))

    class Native(native):
        def __init__(self) -> None:
            paddle.nn.clip.ClipGradBase.__init__(self)
            self.should_comm_on_shard_dim = False  # Paddle's sharded optimizers set it, and the groups to reduce over
            self._async_add_n = None

    class Slot(cls, Native):
        @paddle.jit.not_to_static
        def __call__(self, params_grads: Iterable[tuple[Any, Any]]) -> Pairs:
            if self.should_comm_on_shard_dim:  # the norm must be reduced over those groups, as only Paddle's own does
                pairs: Pairs = native.__call__(self, list(params_grads))
                return pairs
            with paddle.no_grad():
                clipped: Pairs = cls.__call__(self, params_grads)
            return clipped

        def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
            return cls.__new__, (cls,), self.__dict__  # so that a pickle opens without Paddle too

    Slot.__name__, Slot.__qualname__, Slot.__module__ = cls.__name__, cls.__qualname__, cls.__module__
    Slot.__doc__ = cls.__doc__
    return Slot
