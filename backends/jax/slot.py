"""A clip in optax: a link of its chain, and a whole transformation that clips and can skip its step."""

from __future__ import annotations

import gc
import math
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util

from gradclip.backends.jax.containers import Pytrees
from gradclip.backends.jax.versions import init_empty_state
from gradclip.core.clip import clip
from gradclip.core.errors import ArgumentError, ArgumentTypeError, shown
from gradclip.core.groups import NO_RULE, Rules, check_groups, exchanged
from gradclip.core.versions import check_version
from gradclip.steps.monitor import Monitor
from gradclip.steps.refusals import cannot_skip, clips_already, too_many
from gradclip.steps.step import Step

if TYPE_CHECKING:
    import optax  # optional: only the functions need it

__all__ = ["ClipState", "ClippedState", "MissingParamsError", "clipped_by", "gradient_transformation"]

_GAPS = Pytrees().is_gap
_OF_NUMPY = (np.ndarray, np.generic)


class MissingParamsError(ArgumentError, ArgumentTypeError):
    """A rule relative to the parameters, in an optax chain without parameters."""


class ClipState(NamedTuple):
    """The norm and the coefficient of the last clip of a link with ``record``."""

    norm: Any  #: before the clip, in the form of :attr:`gradclip.ClipResult.norm`; zeros before the first update
    coefficient: Any  #: ones before the first update


class ClippedState(NamedTuple):
    """The state of :func:`gradclip.clipped`, and of a link with a monitor or with a limit that follows the run."""

    clip: dict[str, Any]  #: of :class:`gradclip.Step`
    inner: Any  #: of the clipped transformation; in a link the :class:`ClipState` or None


def gradient_transformation(
    rule: Rules = NO_RULE, *, record: bool = False, monitor: bool = False
) -> optax.GradientTransformation:
    """A rule of any dialect as a link of an ``optax.chain``.

    Without ``record`` and ``monitor`` it has no state: an optimizer's checkpoint keeps its shape if this replaces optax's
    own clip. Under ``optax.inject_hyperparams`` the limit may change from step to step: wrap a function of the limit
    that returns this.

    Args:
        rule: from a dialect, or groups with such rules; a rule that is relative to the parameters needs ``params`` in
            ``update``, as optax's does. A :class:`ClippedState` carries the state of a limit that follows the run
            (:class:`gradclip.Adaptive`).
        record: whether the state has a :class:`ClipState`, with the norm and the coefficient of the last update.
        monitor: whether a :class:`ClippedState` has the monitor's counts. They are in the optimizer's checkpoints; read them
            with ``gradclip.Monitor().merge(optax.tree_utils.tree_get(state, "monitor"))``.

    Returns:
        An ``optax.GradientTransformation``. The gradients may be any pytree, with None or NumPy arrays in it.

    Raises:
        TypeError: if ``rule`` is not a rule.
        ValueError: for a rule per example, which needs an axis of examples and removes it; and for a rule that skips steps,
            which needs :func:`gradclip.clipped`.
        ImportError: if optax is older than gradclip works with.

    Example:
        >>> import optax, jax.numpy as jnp
        >>> from gradclip.backends.jax import gradient_transformation
        >>> from gradclip.dialects import torch
        >>> optimizer = optax.chain(gradient_transformation(torch.clip_grad_norm(max_norm=1.0)), optax.sgd(1.0))
        >>> params = jnp.zeros(2, "float32")
        >>> updates, state = optimizer.update(jnp.float32([3.0, 4.0]), optimizer.init(params), params)
        >>> updates.round(3)
        Array([-0.6, -0.8], dtype=float32)
    """
    import optax

    check_version("optax", optax.__version__)
    for group in check_groups(rule, keeps_shape=True):
        if group.rule.skips:
            hint = "gradclip.clipped(optimizer, rule) wraps the whole optimizer, such as an optax.chain."
            raise cannot_skip(group.rule, "A link of a chain cannot skip the links after it.", hint)
    step = Step(rule, Monitor() if monitor else None)

    def init(params: Any) -> Any:
        last = _form(step, params) if record else None
        if step.has_state:
            return ClippedState(_begun(step, params), last)
        return last if record else init_empty_state()(params)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        if not step.has_state:
            result = clip(_arrays(updates), rule, params=_params(step, params))
            return result.grads, _last(result) if record else state
        result, after = _advanced(step, updates, state, params)
        return result.grads, ClippedState(after, _last(result) if record else None)

    update.rule = rule  # type: ignore[attr-defined]  # for gradclip doctor
    return optax.GradientTransformation(init, update)


def clipped_by(optimizer: Any, step: Step, patience: float) -> Any:
    """:func:`gradclip.clipped` for a transformation of optax, whose state is then a :class:`ClippedState`.

    A skipped step is a select over the updates and the state: nothing reads a value.
    """
    import optax

    check_version("optax", optax.__version__)
    clips = getattr(optimizer.update, "clips", None)
    if clips is not None:
        raise clips_already(f"rule={clips}")
    if any(not isinstance(holder, FrameType) for holder in gc.get_referrers(optimizer)):
        jax.clear_caches()  # a jitted step may read it by that name, and would go on without the clip
    wrapped = optax.with_extra_args_support(optimizer)

    def init(params: Any) -> ClippedState:
        return ClippedState(_begun(step, params), wrapped.init(params))

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, ClippedState]:
        result, after = _advanced(step, updates, state, params)
        changes, inner = wrapped.update(result.grads, state.inner, params, **extra)
        if result.skip is not False:
            _check_run(step, patience, result, after["skips"]["in_a_row"])
            changes = jax.tree.map(lambda x: _selected(result.skip, _no_change(x), x), changes)
            inner = jax.tree.map(lambda old, new: _selected(result.skip, old, new), state.inner, inner)
        return changes, ClippedState(after, inner)

    update.clips = step.rule  # type: ignore[attr-defined]  # so that it is not clipped twice
    return optax.GradientTransformationExtraArgs(init, update)


def _begun(step: Step, params: Any) -> dict[str, Any]:
    """The state of a step before the first update."""
    params = _arrays(params)
    return step.init(params if jax.tree.leaves(params) else jnp.zeros(()))


def _advanced(step: Step, updates: Any, state: Any, params: Any) -> tuple[Any, dict[str, Any]]:
    """The result of one update, and the next state of the step."""
    if not isinstance(state, ClippedState):
        hint = "optimizer.init(params) makes one; a checkpoint with another rule, or without a clip, has another."
        raise ArgumentTypeError("This is not a state of this clip.", f"state={shown(state)}", hint)
    return step.update(_arrays(updates), state.clip, _params(step, params))


def _params(step: Step, params: Any) -> Any:
    """The parameters, if the rule needs them."""
    relative = [group.rule.name for group in step.groups if group.rule.relative_to is not None]
    if relative and params is None:
        raise MissingParamsError(f"{relative[0]} needs the parameters.", "params=None", "call update(updates, state, params).")
    return _arrays(params) if relative else None


def _form(step: Step, params: Any) -> ClipState:
    """The :class:`ClipState` before the first update."""
    unseen = {"error_if_nonfinite": False, "if_nonfinite": "propagate"}
    measures = exchanged(step.rule, dict.fromkeys(map(id, step.adaptives), math.inf), **unseen)

    def measured(p: Any) -> ClipState:
        return _last(clip(tree_util.tree_map(_as_gradient, p), measures, params=_params(step, p)))

    form = jax.eval_shape(measured, _arrays(params))
    return ClipState(
        jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), form.norm),
        jax.tree.map(lambda x: jnp.ones(x.shape, x.dtype), form.coefficient),
    )


def _no_change(x: Any) -> Any:
    """What changes no bit of a parameter: -0.0, also as the imaginary part. To add 0.0 would make 0.0 of -0.0."""
    return -0.0 if _GAPS(x) else -jnp.zeros_like(x)


def _selected(skip: Any, old: Any, new: Any) -> Any:
    """The old value in a skipped step."""
    if _GAPS(new):
        return new
    return jnp.where(skip, jnp.asarray(old, jnp.result_type(new)) if isinstance(old, float) else old, new)


def _check_run(step: Step, patience: float, result: Any, in_a_row: Any) -> None:
    """Raise after too many skipped steps in a row, where reading them is free."""
    if result.skip is True and not isinstance(in_a_row, jax.core.Tracer) and int(in_a_row) > patience:
        raise too_many(patience, step.rule, result.norm)


def _as_gradient(parameter: Any) -> Any:
    """A value in the dtype of its gradient; JAX's float0 if the parameter is of integers."""
    is_integer = jnp.issubdtype(jnp.result_type(parameter), jnp.integer)
    return np.zeros(np.shape(parameter), jax.dtypes.float0) if is_integer else parameter


def _last(result: Any) -> ClipState:
    return ClipState(result.norm, result.coefficient)


def _arrays(tree: Any) -> Any:
    """A pytree with its NumPy arrays as JAX arrays, which optax accepts too. Gradients of integers stay."""
    Pytrees().check_depth(tree)
    if not any(issubclass(kind, _OF_NUMPY) for kind in set(map(type, tree_util.tree_leaves(tree)))):
        return tree
    return tree_util.tree_map(lambda x: jnp.asarray(x) if isinstance(x, _OF_NUMPY) and not _GAPS(x) else x, tree)
