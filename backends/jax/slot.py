"""The slot that optax has for a clip: a link of its chain."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util

from gradclip.backends.jax.containers import Pytrees
from gradclip.backends.jax.versions import init_empty_state
from gradclip.clip import clip
from gradclip.errors import ArgumentError, ArgumentTypeError
from gradclip.floors import check_version
from gradclip.groups import Rules, check_groups
from gradclip.limits import Adaptive, tensors
from gradclip.limits.adaptive import adaptives, exchanged
from gradclip.monitor import Monitor, observed

if TYPE_CHECKING:
    import optax  # optional: only gradient_transformation needs it

__all__ = ["ClipState", "LimitState", "MissingParamsError", "MonitorState", "gradient_transformation"]

_GAPS = Pytrees().is_gap
_OF_NUMPY = (np.ndarray, np.generic)


class MissingParamsError(ArgumentError, ArgumentTypeError):
    """A rule relative to the parameters, in an optax chain without parameters."""


class ClipState(NamedTuple):
    """The state of a clip in an ``optax.chain`` with ``record``: its last norm and coefficient."""

    norm: Any  #: before the clip, in the form of :attr:`gradclip.ClipResult.norm`; zeros before the first update
    coefficient: Any  #: ones before the first update


class LimitState(NamedTuple):
    """The state of a clip in an ``optax.chain`` whose limit follows the run."""

    limits: list[dict[str, Any]]  #: the state of each :class:`gradclip.Adaptive` of the rules
    rest: Any  #: the state without such limits


class MonitorState(NamedTuple):
    """The state of a clip in an ``optax.chain`` with ``monitor``."""

    clip_monitor: dict[str, Any]  #: the state of :func:`gradclip.observed`
    last: ClipState | None  #: the last norm and coefficient, if recorded


def gradient_transformation(rule: Rules, *, record: bool = False, monitor: bool = False) -> optax.GradientTransformation:
    """A rule of any dialect as a link of an ``optax.chain``.

    Without ``record`` and ``monitor`` it has no state: an optimizer's checkpoint keeps its shape if this replaces optax's
    own clip. Under ``optax.inject_hyperparams`` the limit may change from step to step: wrap a function of the limit
    that returns this.

    Args:
        rule: from a dialect, or groups with such rules; a rule that is relative to the parameters needs ``params`` in
            ``update``, as optax's does. A :class:`LimitState` carries the state of a limit that follows the run
            (:class:`gradclip.Adaptive`).
        record: whether the state is a :class:`ClipState`, with the norm and the coefficient of the last update.
        monitor: whether the state is a :class:`MonitorState`, with the monitor's counts. It is in the optimizer's
            checkpoints; read it with ``gradclip.Monitor().merge(optax.tree_utils.tree_get(state, "clip_monitor"))``.

    Returns:
        An ``optax.GradientTransformation``. The gradients may be any pytree, with None or NumPy arrays in it.

    Raises:
        TypeError: if ``rule`` is not a rule.
        ValueError: for a rule per example, which needs an axis of examples and removes it.
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
    groups = check_groups(rule, keeps_shape=True)
    relative = [group.rule.name for group in groups if group.rule.relative_to is not None]
    adaptive = adaptives(groups)

    def update(updates: Any, state: optax.OptState, params: Any = None) -> tuple[Any, optax.OptState]:
        if relative and params is None:
            hint = "call update(updates, state, params)."
            raise MissingParamsError(f"{relative[0]} needs the parameters.", "params=None", hint)
        carried, limits = None, rule
        if adaptive:
            carried = [limit.carrying(seen) for limit, seen in zip(adaptive, state.limits, strict=True)]
            limits, state = exchanged(rule, dict(zip(map(id, adaptive), carried, strict=True))), state.rest
        result = clip(_arrays(updates), limits, params=_arrays(params) if relative else None)
        after = _counted(state, result)
        return result.grads, after if carried is None else LimitState([limit.state for limit in carried], after)

    def _counted(state: Any, result: Any) -> Any:
        last = _last(result) if record else None
        if monitor:
            return MonitorState(observed(state.clip_monitor, result), last)
        return last if record else state

    def init_last(params: Any) -> ClipState | None:
        if not record:
            return None
        unseen = {"error_if_nonfinite": False, "if_nonfinite": "propagate"}
        measures = exchanged(rule, dict.fromkeys(map(id, adaptive), math.inf), **unseen)

        def measured(p: Any) -> ClipState:
            return _last(clip(tree_util.tree_map(_as_gradient, p), measures, params=p if relative else None))

        form = jax.eval_shape(measured, _arrays(params))
        return ClipState(
            jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), form.norm),
            jax.tree.map(lambda x: jnp.ones(x.shape, x.dtype), form.coefficient),
        )

    def init(params: Any) -> Any:
        if not record and not monitor and not adaptive:
            return init_empty_state()(params)
        leaves = Pytrees().flatten(_arrays(params))[0]
        like = next((x for x in leaves if x is not None), jnp.zeros(()))

        def begun(limit: Adaptive) -> dict[str, Any]:
            return tensors(limit.state, like, each=len(leaves) if limit.is_each else None)

        state: Any = init_last(params)
        if monitor:
            many = len(rule) if isinstance(rule, (list, tuple)) else None
            state = MonitorState(Monitor().init(like=like, groups=many), state)
        return LimitState([begun(limit) for limit in adaptive], state) if adaptive else state

    return optax.GradientTransformation(init, update)


def _as_gradient(parameter: Any) -> Any:
    """A value in the dtype of its gradient; JAX's float0 if the parameter is of integers."""
    is_integer = jnp.issubdtype(jnp.result_type(parameter), jnp.integer)
    return np.zeros(np.shape(parameter), jax.dtypes.float0) if is_integer else parameter


def _last(result: Any) -> ClipState:
    return ClipState(result.norm, result.coefficient)


def _arrays(tree: Any) -> Any:
    """A pytree with its NumPy arrays as JAX arrays, which optax accepts too. Gradients of integers stay."""
    if not any(issubclass(kind, _OF_NUMPY) for kind in set(map(type, tree_util.tree_leaves(tree)))):
        return tree
    return tree_util.tree_map(lambda x: jnp.asarray(x) if isinstance(x, _OF_NUMPY) and not _GAPS(x) else x, tree)
