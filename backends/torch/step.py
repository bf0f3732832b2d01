"""The step hook of PyTorch's optimizers: clip in place before a step, or let a fused step apply the coefficient."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gradclip.backends.torch import versions
from gradclip.clip import carry_out
from gradclip.dtypes import LARGEST
from gradclip.engine import Asked
from gradclip.errors import ArgumentError, ArgumentTypeError, DTypeError
from gradclip.gradients import Gradients, open_
from gradclip.groups import Rules, check_groups
from gradclip.result import ClipResult, Found, last
from gradclip.rule import Rule, Scope

__all__ = ["StepPreHook", "step_pre_hook"]

_FUSED = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad)  # their steps read self.grad_scale


class StepPreHook:
    """The result of :func:`step_pre_hook`.

    Attributes:
        last: the norm and the coefficient of the last clip, on their device: a :class:`gradclip.ClipResult` without gradients.
            None before the first.
    """

    def __init__(self, rule: Rules, reduce: Any, monitor: Any = None) -> None:
        self.rule, self.reduce, self.monitor = rule, reduce, monitor
        self.last: ClipResult | None = None

    def __call__(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if isinstance(optimizer, _Twin):
            return None  # torch calls the hooks again if a subclass's step calls its base's
        _check_untouched(optimizer, args)
        if _closure(args, kwargs) is not None:
            return _with_clips_inside(self.clip, optimizer, args, kwargs)
        self.clip(optimizer)
        return None

    def clip(self, optimizer: torch.optim.Optimizer) -> None:
        """Clip the gradients of the optimizer's parameters, in place."""
        self._carried_out(self._opened(optimizer), Asked("place", reduce=self.reduce))

    def _opened(self, optimizer: torch.optim.Optimizer) -> Gradients:
        """The gradients of the optimizer's parameters, with the optimizer's names if names are needed."""
        parameters: Any = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if not isinstance(self.rule, Rule) or self.monitor is not None:
            names = [name for group in optimizer.param_groups for name in group.get("param_names", ())]
            if len(set(names)) == len(parameters):
                parameters = dict(zip(names, parameters, strict=True))
        return open_(parameters, holders="all")  # an optimizer accepts any leaf tensor as a parameter

    def _carried_out(self, opened: Gradients, asked: Asked) -> Found:
        if self.monitor is not None:
            self.monitor.measure(opened.tree)
        found = carry_out(opened, self.rule, asked)
        self.last = last(opened, found, is_list=isinstance(self.rule, (list, tuple)))
        if self.monitor is not None:
            self.monitor.update(self.last, grads=opened.tree)
        return found


def step_pre_hook(rule: Rules, *, reduce: Any = None, fused: bool = False, monitor: Any = None) -> StepPreHook:
    """A hook that clips the gradients of an optimizer's parameters before each step.

    Args:
        rule: of any dialect, except one that sums over examples; or groups with such rules. All parameter groups are clipped
            together. Names are the optimizer's (``SGD(model.named_parameters())``), or else the parameters'
            numbers.
        reduce: if other processes have some of the parameters: as for :func:`gradclip.clip`.
        fused: measure only, and pass the coefficient to the optimizer, which applies it as it reads the gradients: a clipping
            step saves a pass over them. For a rule with one norm over all gradients and an ``Adam``, ``AdamW``, ``SGD``
            or ``Adagrad`` made with ``fused=True``, with gradients of at most float32. After the step the gradients are
            clipped, as without ``fused``. No other hook may change the gradients after this one.
        monitor: a :class:`gradclip.Monitor`, which records each step.

    A closure passed to ``step`` makes new gradients, several times in ``torch.optim.LBFGS``; each time they are clipped.

    Under a ``torch.amp.GradScaler``, call ``scaler.unscale_(optimizer)`` before ``scaler.step(optimizer)`` of a fused
    optimizer.

    Returns:
        A hook for ``optimizer.register_step_pre_hook``, which returns a handle whose ``remove()`` removes it. Its
        ``last`` is a :class:`gradclip.ClipResult` with the norm and the coefficient of the last clip.

    Raises:
        TypeError: if ``rule`` is not a rule. With ``fused``, in a step: for an optimizer that applies no coefficient, and
            for float64 gradients.
        ValueError: for a rule whose result has another shape than the gradient; in a step, for gradients that are still
            scaled. With ``fused``: for a rule or groups with more than one coefficient; in a step, for a closure, which would
            make other gradients than the measured ones, and for one gradient of two parameters.

    >>> import torch, gradclip.backends.torch
    >>> from gradclip.dialects import torch as dialect
    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> optimizer = torch.optim.SGD([weight], lr=1.0, fused=True)
    >>> hook = gradclip.backends.torch.step_pre_hook(dialect.clip_grad_norm(1.0), fused=True)
    >>> handle = optimizer.register_step_pre_hook(hook)
    >>> weight.grad = torch.tensor([3.0, 4.0])
    >>> optimizer.step()
    >>> weight.data
    tensor([-0.6000, -0.8000])
    >>> hook.last.norm
    tensor(5.)
    >>> handle.remove()
    """
    check_groups(rule, keeps_shape=True)
    return (FusedStepPreHook if fused else StepPreHook)(rule, reduce, monitor)


class _ClippedClosure:
    """A closure for ``step`` that clips the gradients that it has just made."""

    def __init__(self, closure: Callable[[], Any], clip: Callable[[torch.optim.Optimizer], None], optimizer: Any) -> None:
        self.closure, self.clip, self.optimizer = closure, clip, optimizer

    def __call__(self) -> Any:
        loss = self.closure()
        self.clip(self.optimizer)
        return loss


def _closure(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The closure passed to ``step``, or None."""
    return next((x for x in (*args[1:], *kwargs.values()) if callable(x)), None)


def _with_clips_inside(
    clip: Callable[[torch.optim.Optimizer], None], optimizer: torch.optim.Optimizer, args: Any, kwargs: Any
) -> tuple[Any, Any] | None:
    """The arguments of ``step`` with a clipping closure; None if it clips already (a subclass's step calls its base's)."""
    closure = _closure(args, kwargs)
    if isinstance(closure, _ClippedClosure) and closure.clip == clip:
        return None

    def wrapped(x: Any) -> Any:
        return _ClippedClosure(closure, clip, optimizer) if x is closure else x

    return tuple(map(wrapped, args)), {name: wrapped(x) for name, x in kwargs.items()}


# ---- the coefficient inside the step -------------------------------------------------------------------------------------


class FusedStepPreHook(StepPreHook):
    """The result of :func:`step_pre_hook` with ``fused=True``."""

    def __init__(self, rule: Rules, reduce: Any, monitor: Any = None) -> None:
        super().__init__(rule, reduce, monitor)
        if not isinstance(rule, Rule) or rule.scope is not Scope.GLOBAL:
            what = "fused=True is for a rule with one norm over all gradients: a step applies one coefficient."
            raise ArgumentError(what, f"rule={rule}", "leave fused=True out.")
        if rule.if_nonfinite == "zero":
            what = "A fused step multiplies, and 0 times infinity or NaN is not 0."
            raise ArgumentError(what, 'if_nonfinite="zero"', "leave fused=True out.")

    def __call__(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if isinstance(optimizer, _Twin):
            return None
        _check_optimizer(optimizer)
        _check_untouched(optimizer, args)
        _check_closure(args, kwargs)
        with torch.no_grad():  # autograd does not record an optimizer's operations
            divisor = self._divisor(self._opened(optimizer))
        return None if divisor is None else ((_twin(optimizer, divisor), *args[1:]), kwargs)

    def _divisor(self, opened: Gradients) -> torch.Tensor | None:
        """The divisor for the step; None for no division: then the step is the same to the bit as without a hook."""
        _check_gradients(opened)
        found = self._carried_out(opened, Asked(until="coefficient", reduce=self.reduce))
        coefficient = found.coefficient
        if not isinstance(coefficient, float):
            reciprocal: torch.Tensor = coefficient.float().reciprocal()
            return reciprocal
        divisor = 1 / coefficient if coefficient else math.inf
        if LARGEST["float32"] < divisor < math.inf:  # the kernels expect float32
            carry_out(opened, self.rule, Asked("place", norm=found.norm))
            return None
        return None if divisor == 1 else torch.scalar_tensor(divisor, dtype=torch.float32)


class _Twin:
    """An optimizer for one step with its own ``grad_scale``, by which the fused kernels divide.

    It shares everything else with the optimizer: they have one ``__dict__``, and ``grad_scale`` is a slot. So nothing has to be
    restored after the step, even if the step fails.
    """

    __slots__ = ("grad_scale",)


_TWINS: dict[type, type] = {}


def _twin(optimizer: torch.optim.Optimizer, grad_scale: torch.Tensor) -> Any:
    kind = type(optimizer)
    if kind not in _TWINS:
        _TWINS[kind] = type(kind.__name__, (_Twin, kind), {})
    twin: Any = object.__new__(_TWINS[kind])
    twin.__dict__ = optimizer.__dict__
    twin.grad_scale = grad_scale
    return twin


# ---- errors before anything has changed ----------------------------------------------------------------------------------


def _check_optimizer(optimizer: torch.optim.Optimizer) -> None:
    if not isinstance(optimizer, _FUSED):
        what = "This optimizer applies no coefficient in its step."
        hint = "torch's own Adam, AdamW, SGD and Adagrad do; for others leave fused=True out of step_pre_hook."
        raise ArgumentTypeError(what, f"optimizer={type(optimizer).__name__}", hint)
    if not all(group.get("fused") for group in optimizer.param_groups):
        each = [group.get("fused") for group in optimizer.param_groups]
        hint = f"{type(optimizer).__name__}(..., fused=True), or leave it out of step_pre_hook."
        raise ArgumentTypeError("Only a fused optimizer applies a coefficient in its step.", f"fused={each}", hint)


def _check_untouched(optimizer: torch.optim.Optimizer, args: Sequence[Any]) -> None:
    """Check that the step will use these gradients: that neither its own ``grad_scale`` nor a scaler's will divide them."""
    if any(isinstance(x, _Twin) for x in args[:1]):
        what = "Another hook has measured these gradients already, and its coefficient is still to be applied."
        raise ArgumentError(what, "a hook after one with fused=True", "register the one with fused=True last, and only one.")
    scale: Any = getattr(optimizer, "grad_scale", None)
    if scale is not None:
        if hasattr(optimizer, "found_inf"):  # a GradScaler's; it removes both after a step, but not after an error
            del optimizer.grad_scale, optimizer.found_inf
        hint = "scaler.unscale_(optimizer) before scaler.step(optimizer)."
        raise ArgumentError("The gradients are still scaled, and so would be their norm.", "optimizer.grad_scale is set", hint)


def _check_closure(args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    if _closure(args, kwargs) is not None:
        hint = "call backward() and then step(), or leave fused=True out: the closure is clipped then."
        raise ArgumentError("A closure makes other gradients than the hook has measured.", "closure", hint)


def _check_gradients(opened: Gradients) -> None:
    if torch.float64 in {x.dtype for x in opened.present}:
        what = "A fused step takes the coefficient in float32, which is not enough for float64 gradients."
        raise DTypeError(what, "dtype=float64", "leave fused=True out of step_pre_hook.")
    if len(set(map(id, opened.present))) < len(opened.present):
        what = "A gradient that two parameters share would be scaled twice in the step."
        raise ArgumentError(what, "the same tensor as .grad twice", "leave fused=True out of step_pre_hook.")


versions.run_between_graphs()
