"""A step in any framework's optimizer: :func:`clipped` finds the framework, whose slot keeps the step's state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never, TypedDict, Unpack, overload

from gradclip.core.groups import NO_RULE, Rules, Shards, check_groups, exchanged, following
from gradclip.core.registry import resolve
from gradclip.core.typed import Slotted, Wrong, X
from gradclip.steps.monitor import Monitor
from gradclip.steps.refusals import check_patience, not_an_optimizer
from gradclip.steps.step import Step

if TYPE_CHECKING:
    from gradclip.steps.slotted import Clipped

__all__ = ["clipped"]

#: top-level module of an optimizer's type -> the function ``(optimizer, step, patience) -> optimizer`` of that framework
_SLOTS = {
    "keras": "gradclip.backends.keras:clipped_by",
    "optax": "gradclip.backends.jax.slot:clipped_by",
    "paddle": "gradclip.backends.paddle.slot.clipped:clipped_by",
    "torch": "gradclip.backends.torch.slot.clipped:clipped_by",
}


class More(TypedDict, total=False):
    """The other arguments of :func:`clipped`, for its overloads."""

    monitor: Monitor | None
    reduce: object
    shards: Shards
    patience: float


@overload
def clipped(optimizer: Slotted, rule: Rules, **more: Unpack[More]) -> Clipped: ...
@overload
def clipped(optimizer: X, rule: Rules | Wrong[Never], **more: Unpack[More]) -> X: ...
def clipped(
    optimizer: Any,
    rule: Any = NO_RULE,
    *,
    monitor: Monitor | None = None,
    reduce: Any = None,
    shards: Shards = None,
    patience: float = 10,
) -> Any:
    """Make an optimizer clip the gradients in each of its steps. It goes wherever the optimizer went.

    The optimizer has the state: of the limits that follow the run (:class:`gradclip.Adaptive`; those in the rule do not
    change), of the monitor, and the number of skipped steps. Its framework saves this state with the optimizer's own.

    A step that the rule skips (``skip_above``, ``if_nonfinite="skip"``) changes no bit of the parameters, of the optimizer's
    moments and of its counts.

    Args:
        optimizer: an optimizer of PyTorch, Paddle or Keras, which is changed in place, and clips from its next step
            on, also in a step that was compiled before; or a transformation of optax, such as a whole ``optax.chain``.
            ``optax.MultiSteps(clipped(optimizer, rule), k)`` clips the mean of k gradients, and
            ``clipped(optax.MultiSteps(optimizer, k), rule)`` each of them. Only the second skips a gradient that is not finite:
            ``MultiSteps`` keeps a NaN in its own mean for ever.
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
        TypeError: if ``optimizer`` is not an optimizer, ``rule`` not a rule or ``monitor`` not a monitor; for a ``reduce`` or
            ``shards`` that no clip takes.
        ValueError: for an optimizer that clips already, or whose step a static program of Paddle has already; for a rule whose
            result has another shape than the gradient, and for a limit that does not follow the norms of its rule.

    Example:
        >>> import gradclip
        >>> from gradclip.dialects import torch
        >>> gradclip.clipped(torch.clip_grad_norm(max_norm=1.0), None)
        Traceback (most recent call last):
            ...
        gradclip.core.errors.ArgumentTypeError: The optimizer comes first.
        Received: optimizer=torch.clip_grad_norm
        Hint: gradclip.clipped(optimizer, rule).
    """
    place = _slot_of(optimizer)
    if place is None:
        raise not_an_optimizer(optimizer)
    limits = following(group.rule for group in check_groups(rule, keeps_shape=True))
    own = {key: limit.copy() for key, limit in limits.items()}
    step = Step(exchanged(rule, own) if own else rule, monitor, reduce=reduce, shards=shards)
    check_patience(patience)
    return resolve(place)(optimizer, step, patience)


def _slot_of(optimizer: object) -> str | None:
    """The function for an optimizer, by the top-level modules of the bases of its type."""
    roots = (base.__module__.partition(".")[0] for base in type(optimizer).__mro__)
    return next((_SLOTS[root] for root in roots if root in _SLOTS), None)
