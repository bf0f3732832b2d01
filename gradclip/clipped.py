"""One call for every optimizer: the same optimizer, which clips in each step."""

from __future__ import annotations

from typing import Any, TypeVar

from gradclip.groups import Rules, Shards, check_groups
from gradclip.limits.adaptive import adaptives, exchanged
from gradclip.mistakes import not_an_optimizer
from gradclip.monitor import Monitor
from gradclip.registry import resolve
from gradclip.skip import check_patience
from gradclip.step import Step

__all__ = ["clipped"]

T = TypeVar("T")

#: top-level module of an optimizer's type -> the function ``(optimizer, step, patience) -> optimizer`` of that framework
_SLOTS = {
    "keras": "gradclip.backends.keras:clipped_by",
    "optax": "gradclip.backends.jax.slot:clipped_by",
    "paddle": "gradclip.backends.paddle.clipped:clipped_by",
    "torch": "gradclip.backends.torch.clipped:clipped_by",
}


def clipped(
    optimizer: T,
    rule: Rules,
    *,
    monitor: Monitor | None = None,
    reduce: Any = None,
    shards: Shards = None,
    patience: float = 10,
) -> T:
    """Make an optimizer clip the gradients in each of its steps. It goes wherever the optimizer went.

    The optimizer has the state: of the limits that follow the run (:class:`gradclip.Adaptive`; those in the rule do not
    change), of the monitor, and the number of skipped steps. Its framework saves this state with the optimizer's own.

    A step that the rule skips (``skip_above``, ``if_nonfinite="skip"``) changes no bit of the parameters, of the optimizer's
    moments and of its counts.

    Args:
        optimizer: an optimizer of PyTorch, Paddle or Keras, which is changed in place (compile a Keras model after that); or a
            transformation of optax, such as a whole ``optax.chain``. ``optax.MultiSteps(clipped(optimizer, rule), k)`` clips
            the mean of k gradients, and ``clipped(optax.MultiSteps(optimizer, k), rule)`` each of them. Only the second skips
            a gradient that is not finite: ``MultiSteps`` keeps a NaN in its own mean for ever.
        rule: of any dialect, except one that sums over examples; or groups with such rules.
        monitor: a :class:`gradclip.Monitor`, which records each step.
        reduce: if other processes have some of the parameters: as for :func:`gradclip.clip`.
        shards: which processes hold other shards of a plain tensor, such as experts: as for :func:`gradclip.clip`.
        patience: after more than so many skipped steps in a row, the next one raises; ``math.inf`` for never. optax
            raises where reading the count is free, and Keras in an eager step. Where you log, look at
            ``state.clip["skips"]["in_a_row"]`` of optax and at ``optimizer.clip_skips`` of Keras.

    Returns:
        The optimizer, of the same type.

    Raises:
        TypeError: if ``optimizer`` is not an optimizer, ``rule`` not a rule or ``monitor`` not a monitor.
        ValueError: for an optimizer that clips already, and for a rule whose result has another shape than the gradient.

    Example:
        >>> import gradclip
        >>> from gradclip.dialects import torch
        >>> gradclip.clipped(torch.clip_grad_norm(max_norm=1.0), None)
        Traceback (most recent call last):
            ...
        gradclip.errors.ArgumentTypeError: The optimizer comes first.
        Received: optimizer=torch.clip_grad_norm
        Hint: gradclip.clipped(optimizer, rule).
    """
    place = _slot_of(optimizer)
    if place is None:
        raise not_an_optimizer(optimizer)
    own = {id(limit): limit.copy() for limit in adaptives(check_groups(rule, keeps_shape=True))}
    step = Step(exchanged(rule, own) if own else rule, monitor, reduce=reduce, shards=shards)
    check_patience(patience)
    made: T = resolve(place)(optimizer, step, patience)
    return made


def _slot_of(optimizer: object) -> str | None:
    """The function for an optimizer, by the top-level modules of the bases of its type."""
    roots = (base.__module__.partition(".")[0] for base in type(optimizer).__mro__)
    return next((_SLOTS[root] for root in roots if root in _SLOTS), None)
