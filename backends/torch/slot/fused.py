"""What steps in the place of an optimizer: a twin that divides the gradients, or one that leaves everything as it is."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from gradclip.core.tracing import constant

__all__ = ["Twin", "applies", "calls_base", "can_stop", "idle", "pays", "suits", "twin"]

_FUSED = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad)  # steps that read self.grad_scale

FEW = 1 << 18  #: elements up to which it costs less, by 5 to 9 % of a step, to clip in the host's caches before the step


class Twin:
    """An optimizer for one step, with its own ``grad_scale``, by which the fused kernels divide, and its own ``found_inf``.

    It shares everything else with the optimizer: they have one ``__dict__``, and these are slots. So nothing has to be
    restored after the step, even if the step fails. For a skipped step it has a ``__dict__`` of its own.
    """

    __slots__ = ("factor", "found_inf", "grad_scale")

    factor: Any  #: what the gradients are still to be multiplied with; None if the step is skipped
    found_inf: Any
    grad_scale: Any


_TWINS: dict[type, type] = {}


def twin(optimizer: torch.optim.Optimizer, grad_scale: Any, found_inf: Any, factor: Any) -> Any:
    """The optimizer's twin."""
    made = _made(optimizer)
    made.__dict__ = optimizer.__dict__
    made.grad_scale, made.found_inf, made.factor = grad_scale, found_inf, factor
    return made


class _NoGroups(list[Any]):
    """The groups of an optimizer that is to do nothing: a loop finds none, and an index finds a copy without parameters.

    Some optimizers of other packages fail for a group without parameters, and others without a first group. Those of torch
    fail for neither, and TorchDynamo knows only their groups in a list.
    """

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def idle(optimizer: torch.optim.Optimizer) -> Any:
    """A twin without parameters, for a step that is skipped: what this step counts, in groups or in itself, is lost with it."""
    made = _made(optimizer)
    made.factor = None
    groups = [{**group, "params": []} for group in optimizer.param_groups]
    if not _is_torchs(type(optimizer)):
        groups = _NoGroups(groups)
    made.__dict__ = {**optimizer.__dict__, "param_groups": groups, "state": copy.copy(optimizer.state)}
    return made


@constant
def _is_torchs(kind: Any) -> bool:
    """Whether an optimizer is one of torch's, or a subclass of one."""
    return any(base.__module__.startswith("torch.optim.") for base in kind.__mro__ if base is not torch.optim.Optimizer)


def _made(optimizer: torch.optim.Optimizer) -> Any:
    kind = type(optimizer)
    if kind not in _TWINS:
        _TWINS[kind] = type(kind.__name__, (Twin, kind), {})
    return object.__new__(_TWINS[kind])


@functools.cache
def _steps(kind: Any) -> list[Any]:
    """The different steps of a class and its bases, its own first."""
    steps = [vars(base)["step"] for base in kind.__mro__ if "step" in vars(base) and base is not torch.optim.Optimizer]
    return list(dict.fromkeys(map(inspect.unwrap, steps)))


@constant
def calls_base(kind: Any) -> bool:
    """Whether a step may call another one, with the same hooks."""
    return len(_steps(kind)) > 1


@constant
def _divides(kind: Any) -> bool:
    """Whether the step is one of torch's that divide: a subclass may have one of its own."""
    return _steps(kind)[:1] in [_steps(base) for base in _FUSED]


def applies(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a step of this optimizer divides by ``grad_scale``, and stops for ``found_inf``."""
    return _divides(type(optimizer)) and all(group.get("fused") for group in optimizer.param_groups)


def suits(gradients: Sequence[torch.Tensor]) -> bool:
    """Whether the division is exact for these gradients, and is done once for each.

    A step takes the divisor in float32, which is not enough for float64, and divides a gradient that two parameters share
    twice.
    """
    kinds, dtypes = set(map(type, gradients)), {x.dtype for x in gradients}
    return kinds == {torch.Tensor} and torch.float64 not in dtypes and len(set(map(id, gradients))) == len(gradients)


def pays(gradients: Sequence[torch.Tensor]) -> bool:
    """Whether a step that divides costs less than a clip in place: on the host only for many elements."""
    return not gradients[0].is_cpu or sum(map(torch.Tensor.numel, gradients)) > FEW


def can_stop(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the optimizer may stop for ``found_inf``: a first step of SGD would keep a momentum that nothing has set."""
    return all(
        not group.get("momentum") or optimizer.state.get(p, {}).get("momentum_buffer") is not None
        for group in optimizer.param_groups
        for p in group["params"]
        if p.grad is not None
    )
