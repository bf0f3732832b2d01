"""The step hook of PyTorch's optimizers: clip in place before a step, or let a fused step apply the coefficient."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from gradclip.backends.torch import versions
from gradclip.backends.torch.slot.closures import called, closure_of, exchanged, with_clips_inside
from gradclip.backends.torch.slot.few import clip_few
from gradclip.backends.torch.slot.fused import Twin, applies, calls_base, can_stop, idle, pays, suits, twin
from gradclip.backends.torch.slot.names import in_modules, of_optimizer
from gradclip.core.dtypes import LARGEST
from gradclip.core.engine import Options, run
from gradclip.core.errors import ArgumentError, DTypeError, page
from gradclip.core.gradients import Gradients, open_
from gradclip.core.groups import NO_RULE, Rules, Shards, check_groups
from gradclip.core.result import Outcome, last
from gradclip.core.rule import GLOBAL, Rule
from gradclip.steps.refusals import check_patience
from gradclip.steps.slot import Slot
from gradclip.steps.step import Step

__all__ = ["StepPreHook", "step_pre_hook"]


class StepPreHook(Slot):
    """The result of :func:`step_pre_hook`: a hook with its state.

    A fused optimizer gets the coefficient and whether to stop by a twin in its place, and reads no gradient twice; all
    others get gradients that are clipped in place, or none for a skipped step.
    """

    def __init__(self, step: Step, patience: float = 10, *, fused: bool = True) -> None:
        self._may_fuse = fused
        super().__init__(step, patience)
        self._begin()

    def _settle(self, step: Step) -> None:
        super()._settle(step)
        rule = step.rule
        # one coefficient, which multiplies all: 0 times NaN is not 0
        self.fuses = self._may_fuse and isinstance(rule, Rule) and rule.scope is GLOBAL and rule.if_nonfinite != "zero"
        self._is_total = any(group.rule.scope is GLOBAL for group in step.groups)
        self._is_simple = isinstance(rule, Rule) and not self.limits and step.monitor is None
        self._is_simple &= step.reduce is None and step.shards is None

    def _begin(self) -> None:
        self.handles: list[Any] = []  # of clipped_by
        self._left_out: list[tuple[Any, Any]] = []  # parameters of a skipped step, with their gradients
        self._restores: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()  # which optimizers call _restore
        self._known: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()  # their parameters
        self._names: weakref.WeakKeyDictionary[torch.optim.Optimizer, tuple[int, list[str]]] = weakref.WeakKeyDictionary()

    def __getstate__(self) -> dict[str, Any]:
        begun = ("handles", "_left_out", "_restores", "_known", "_names")
        return {name: x for name, x in vars(self).items() if name not in begun}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()  # a copy is the hook of another optimizer

    def __call__(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if isinstance(optimizer, Twin):
            return None  # torch calls the hooks again if a subclass's step calls its base's
        if self._is_total and versions.is_in_backward():
            what = "An optimizer that steps inside backward has no norm over all gradients: others are not there yet."
            hint = "a rule by gradient, as dialects.keras.clipnorm(1.0), or the norm of the step before: "
            hint += page("slots.md")
            raise ArgumentError(what, f"rule={self.rule}", hint)
        few = clip_few(optimizer, args, kwargs, self.step.rule) if self._is_simple and not self._left_out else None
        if few is not None:
            self.last = few
            return None
        closure = closure_of(args, kwargs)
        if closure is not None and not self.step.skips:
            return with_clips_inside(self.clip, optimizer, args, kwargs)
        if closure is not None:
            args, kwargs = exchanged(args, kwargs, closure, called(optimizer, closure, self.step.rule))
        if self._left_out:
            self._restore()  # after a step that failed
        try:
            with torch.no_grad():  # autograd does not record an optimizer's operations
                stepper = self._prepared(optimizer, args[0] if args else optimizer)
        except BaseException:
            for name in ("grad_scale", "found_inf"):  # a GradScaler's; it removes both after a step, but not after an error
                vars(optimizer).pop(name, None)
            raise
        return (stepper, *args[1:]), kwargs

    def _prepared(self, optimizer: torch.optim.Optimizer, stepper: Any) -> Any:
        """The optimizer, or a twin, that is to step with the gradients as they are left."""
        if isinstance(stepper, Twin) and stepper.factor is None:
            return stepper  # another hook skips this step
        opened = self._opened(optimizer)
        scale, found_inf = (getattr(stepper, name, None) for name in ("grad_scale", "found_inf"))
        if isinstance(stepper, Twin):  # another hook has measured these gradients, and its coefficient is still to be applied
            _multiply(opened, stepper.factor)
            scale = None
        is_void = found_inf is not None and (found_inf.is_cpu or not can_stop(optimizer)) and bool(found_inf)
        if is_void and self._is_alone(opened):
            return self._leave_out(optimizer)  # a GradScaler skips this step: there is nothing to measure
        if self._divides(optimizer, opened.present, scale):
            factor = self._coefficient(opened, scale)
        else:
            _unscale(opened, scale)
            self._clip(optimizer, opened)
            scale, factor = None, 1.0
        if is_void:
            return self._leave_out(optimizer)
        stops = self._skips(optimizer, found_inf) if self.step.skips else found_inf
        if stops is True:
            return self._leave_out(optimizer)
        divisor = scale if isinstance(factor, float) and factor == 1 else _divisor(factor, scale)
        if isinstance(divisor, float):  # no float32, which the kernels expect
            _multiply(opened, factor / (1.0 if scale is None else float(scale)))
            divisor, scale, factor = None, None, 1.0
        unchanged = divisor is getattr(optimizer, "grad_scale", None) and stops is found_inf
        if unchanged and not calls_base(type(optimizer)):
            return optimizer
        return twin(optimizer, divisor, stops, factor if scale is None else factor / scale)

    def _divides(self, optimizer: torch.optim.Optimizer, gradients: Sequence[torch.Tensor], scale: Any) -> bool:
        """Whether the optimizer's step is to divide the gradients, instead of a clip in place."""
        if not (self.fuses and applies(optimizer) and suits(gradients)):
            return False
        # a GradScaler's scale is to be undone in any case, and a skipped step leaves the gradients as they are
        return not self._has_each if scale is not None else self.step.skips or pays(gradients)

    def _is_alone(self, opened: Gradients) -> bool:
        """Whether no other process waits for this one's norm."""
        return self.step.reduce is None and self.step.shards is None and set(map(type, opened.present)) <= {torch.Tensor}

    @property
    def _has_each(self) -> bool:
        return self.monitor is not None and self.monitor.each is not None

    def _coefficient(self, opened: Gradients, scale: torch.Tensor | None) -> Any:
        """The coefficient of the gradients as they were before a GradScaler scaled them."""
        options = Options(until="coefficient", reduce=self.step.reduce, shards=self.step.shards)
        if scale is not None:
            scaled = run(opened, self.rule, replace(options, until="norm")).norm
            options.norm = scaled / (float(scale) if isinstance(scaled, float) else scale)
        return self._run(opened, options).coefficient

    def _skips(self, optimizer: torch.optim.Optimizer, found_inf: Any) -> Any:
        """What a step is to stop for: a flag for the fused kernels; or True for a skipped step, after a look at a value."""
        assert self.last is not None
        skip: Any = self.last.skip
        if not isinstance(skip, bool) and applies(optimizer) and can_stop(optimizer):
            self.count(skip)
            flag = skip.to(torch.float32)
            return flag if found_inf is None else torch.maximum(flag, (found_inf > 0).to(flag))
        skip = bool(skip)
        self.count(skip)
        return skip or found_inf

    def _leave_out(self, optimizer: torch.optim.Optimizer) -> Any:
        """Leave the gradients out of this step: without one, a parameter and its state stay as they are.

        Returns:
            An optimizer without parameters, to step in the place of this one.
        """
        if optimizer not in self._restores:
            self._restores.add(optimizer)
            optimizer.register_step_post_hook(self._after)
        self._left_out = [(p, p.grad) for group in optimizer.param_groups for p in group["params"]]
        for parameter, _ in self._left_out:
            parameter.grad = None
        return idle(optimizer)

    def _after(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if not isinstance(optimizer, Twin):
            self._restore()

    def _restore(self) -> None:
        """Give the parameters of a skipped step their gradients back."""
        left_out, self._left_out = self._left_out, []
        for parameter, gradient in left_out:
            if parameter.grad is None:
                parameter.grad = gradient

    def remove(self) -> None:
        """Take the clip out of the optimizer that :func:`gradclip.clipped` gave it to."""
        for handle in self.handles:
            handle.remove()

    def clip(self, optimizer: torch.optim.Optimizer) -> None:
        """Clip the gradients of the optimizer's parameters, in place."""
        self._clip(optimizer, self._opened(optimizer))

    def _clip(self, optimizer: torch.optim.Optimizer, opened: Gradients) -> None:
        options = Options("place", reduce=self.step.reduce, shards=self.step.shards)
        if not _is_recorded(optimizer, opened.present):
            self._run(opened, options)
            return
        with torch.enable_grad():
            clipped: Any = self._run(opened, replace(options, into="new")).grads
        clipped = clipped.values() if isinstance(clipped, dict) else clipped
        for parameter, gradient in zip(opened.params, clipped, strict=True):
            if gradient is not None:
                parameter.grad = gradient

    def know(self, optimizer: torch.optim.Optimizer, count: int) -> None:
        """Let the limits follow the parameters that ``add_param_group`` has added; it adds them at the end."""
        before = self._known.get(optimizer, count)
        self._known[optimizer] = count
        for limit in self.limits if before < count else ():
            limit.grow(before, count)

    def _opened(self, optimizer: torch.optim.Optimizer) -> Gradients:
        """The gradients of the optimizer's parameters, with the optimizer's names if names are needed."""
        parameters: Any = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if self.limits:
            self.know(optimizer, len(parameters))
        if self.step.needs_names or self.monitor is not None:
            names = of_optimizer(optimizer, len(parameters)) or self._found(optimizer, parameters)
            if names:
                parameters = dict(zip(names, parameters, strict=True))
        return open_(parameters, holders="all")  # an optimizer accepts any leaf tensor as a parameter

    def _found(self, optimizer: torch.optim.Optimizer, parameters: list[Any]) -> list[str]:
        """Names for a monitor that measures each gradient. They select nothing: there parameters without names have numbers."""
        if not self._has_each or not isinstance(self.step.rule, Rule) or self.step.shards is not None:
            return []
        count, names = self._names.get(optimizer, (0, []))
        if count != len(parameters):  # once: it looks through all objects
            names = in_modules(parameters)
            self._names[optimizer] = len(parameters), names
        return names

    def _run(self, opened: Gradients, options: Options) -> Outcome:
        step = self.step
        if step.monitor is not None:
            step.monitor.measure(opened.container.tree)
        found = run(opened, step.rule, options)
        self.last = last(opened, found, is_list=isinstance(step.rule, (list, tuple)))
        if step.monitor is not None:
            step.monitor.update(self.last, grads=opened.container.tree)
        return found


def _is_recorded(optimizer: torch.optim.Optimizer, gradients: Sequence[torch.Tensor]) -> bool:
    """Whether autograd records the step, from gradients that it has recorded: an operation in place would be left out."""
    is_asked = any(group.get("differentiable") for group in optimizer.param_groups)
    return is_asked and any(x.requires_grad for x in gradients)


def _multiply(opened: Gradients, factor: Any) -> None:
    opened.lane.scale([opened.leaves[i] for i in opened.unique()], factor, "place")


def _unscale(opened: Gradients, scale: torch.Tensor | None) -> None:
    """Undo a GradScaler's scale in place."""
    if scale is None:
        return
    if torch.float16 in {x.dtype for x in opened.present}:
        hint = "keep the parameters in float32: torch.autocast calculates in float16."
        raise DTypeError("Gradients in float16 cannot be unscaled: small ones would be lost.", "dtype=float16", hint)
    _multiply(opened, 1 / float(scale) if scale.is_cpu else scale.reciprocal())


def _divisor(factor: Any, scale: torch.Tensor | None) -> Any:
    """What a step divides by: a tensor; or a float, if it is too large for float32."""
    if not isinstance(factor, float):
        reciprocal: torch.Tensor = factor.float().reciprocal()
        return reciprocal if scale is None else reciprocal * scale
    if not factor:
        return torch.scalar_tensor(math.inf)
    divisor = (1.0 if scale is None else float(scale)) / factor
    return divisor if LARGEST["float32"] < divisor < math.inf else torch.scalar_tensor(divisor)


def step_pre_hook(
    rule: Rules = NO_RULE,
    *,
    reduce: Any = None,
    shards: Shards = None,
    fused: bool = True,
    monitor: Any = None,
    patience: float = 10,
) -> StepPreHook:
    """A hook that clips the gradients of an optimizer's parameters before each step.

    Args:
        rule: of any dialect, except one that sums over examples; or groups with such rules. All parameter groups are clipped
            together. Names are the optimizer's (``SGD(model.named_parameters())``), or else the parameters'
            numbers.
        reduce: if other processes have some of the parameters: as for :func:`gradclip.clip`.
        shards: which processes hold other shards of a plain tensor, such as experts: as for :func:`gradclip.clip`.
        fused: whether an ``Adam``, ``AdamW``, ``SGD`` or ``Adagrad`` made with ``fused=True`` may apply the coefficient itself,
            as it reads the gradients: a clipping step saves a pass over them. It does where that is exact: for a rule with
            one norm over all gradients, and gradients of at most float32; on the host also only if they are large. After the
            step the gradients are clipped. Another hook that comes after this one sees gradients that are not clipped yet.
        monitor: a :class:`gradclip.Monitor`, which records each step.
        patience: after more than so many skipped steps in a row, the next one raises; ``math.inf`` for never.

    A rule with ``skip_above`` or ``if_nonfinite="skip"`` skips steps: the parameters, the moments and the step counts
    stay as they are to the bit. On an accelerator a fused optimizer learns of it by a tensor, without a look at a value; only
    for ``patience`` is one read, once in so many steps. Others get no gradients, after one look at a value in each step, as
    ``torch.amp.GradScaler`` makes it. A scheduler counts the step.

    A step with ``differentiable=True`` has the derivative of its clip.

    A closure passed to ``step`` makes new gradients, several times in ``torch.optim.LBFGS``; each time they are clipped.
    For a rule that skips the hook calls it, before the step.

    A ``torch.amp.GradScaler`` leaves it to a fused optimizer to undo the scale. Then the limit is for the gradients before they
    were scaled, and the step divides by the scale and the coefficient together; so there is no need of ``scaler.unscale_``.

    Returns:
        A hook for ``optimizer.register_step_pre_hook``, which returns a handle whose ``remove()`` removes it. Its
        ``last`` is a :class:`gradclip.ClipResult` with the norm and the coefficient of the last clip.

    Raises:
        TypeError: if ``rule`` is not a rule; in a step, for float16 gradients that are still scaled and that the step cannot
            unscale.
        ValueError: for a rule whose result has another shape than the gradient; in a step, for a ``torch.optim.LBFGS`` and a
            rule that skips, and after too many skipped steps.

    >>> import torch, gradclip.backends.torch
    >>> from gradclip.dialects import torch as dialect
    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> optimizer = torch.optim.SGD([weight], lr=1.0, fused=True)
    >>> hook = gradclip.backends.torch.step_pre_hook(dialect.clip_grad_norm(1.0))
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
    check_patience(patience)
    step = Step(rule, monitor, reduce=reduce, shards=shards)
    return StepPreHook(step, patience, fused=fused)


versions.run_between_graphs()
