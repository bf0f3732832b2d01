"""``paddle.nn.ClipGradBy*``: objects that clip ``(parameter, gradient)`` pairs, also for ``grad_clip=`` of Paddle's optimizers.

The names of ``paddle.fluid``, ``GradientClipBy*``, are the same classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self, SupportsFloat, TypeVar

from gradclip.core.check import is_writable
from gradclip.core.containers import wanted
from gradclip.core.engine import Options, run
from gradclip.core.errors import TensorTypeError
from gradclip.core.gradients import Gradients, open_
from gradclip.core.lane import Into
from gradclip.core.registry import as_float, home
from gradclip.core.result import ClipResult, last
from gradclip.core.rule import Rule, follows_run
from gradclip.core.tracing import untraced
from gradclip.core.typed import Limit
from gradclip.dialects import paddle as dialect

if TYPE_CHECKING:  # what an optimizer's grad_clip= takes; where Paddle is imported, __new__ makes one
    from paddle.nn.clip import ClipGradBase
else:
    ClipGradBase = object

__all__ = [
    "ClipGradByGlobalNorm",
    "ClipGradByNorm",
    "ClipGradByValue",
    "GradientClipByGlobalNorm",
    "GradientClipByNorm",
    "GradientClipByValue",
]

Pairs = list[tuple[Any, Any]]
P = TypeVar("P")
G = TypeVar("G")


class ClipGrad(ClipGradBase):  # type: ignore[misc]  # Any, where mypy does not read Paddle
    """The base class: pairs in, pairs out. Use one of the three subclasses."""

    rule: Rule  #: the rule of the object
    last: ClipResult[None, Any] | None = None  #: the norm and the coefficient of the last clip, without its gradients

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # Paddle's optimizers test isinstance(clip, paddle.nn.ClipGradBase): be one if Paddle is imported
        backend = home("paddle")
        made: Self = super().__new__(cls if backend is None or backend.as_slot is None else backend.as_slot(cls))
        return made

    @untraced
    def __call__(self, params_grads: Iterable[tuple[P, G | None]]) -> list[tuple[P, G]]:
        """Clip the gradients of pairs.

        Args:
            params_grads: ``(parameter, gradient)`` pairs, of any framework; parameters may be anything. A gradient whose
                parameter has ``need_clip`` False does not count in the norm and is returned unchanged.

        Returns:
            The pairs that have a gradient.

        Raises:
            TypeError: for anything but pairs.
        """
        pairs = [pair for pair in _pairs(params_grads) if pair[1] is not None]
        chosen = wanted(pairs)
        if all(chosen):
            return list(zip([p for p, _ in pairs], self._clipped(open_([g for _, g in pairs], holders="none")), strict=True))
        gradients = [g for (_, g), is_wanted in zip(pairs, chosen, strict=True) if is_wanted]
        clipped = iter(self._clipped(open_(gradients, holders="none")))
        return [(p, next(clipped) if is_wanted else g) for (p, g), is_wanted in zip(pairs, chosen, strict=True)]

    def _clipped(self, opened: Gradients) -> list[Any]:
        # an optimizer only reads them, so unclipped gradients need no copy, which costs several times their norm
        return self._carried_out(opened, "kept")

    def _carried_out(self, opened: Gradients, into: Into) -> list[Any]:
        found = run(opened, self.rule, Options(into))
        self.last = last(opened, found)
        return list(found.grads)


class ClipGradByNorm(ClipGrad):
    """Clip each gradient by its own Euclidean norm, as ``paddle.nn.ClipGradByNorm`` does.

    ``g * clip_norm / max(norm(g), clip_norm)``

    It makes new tensors, but may return a gradient itself if that is not clipped: an optimizer only reads it.

    Args:
        clip_norm: the limit, above 0; infinity measures only.

    Raises:
        ValueError: for a limit that is 0, negative or NaN.

    Source: paddlepaddle 3.3.1, ``paddle/nn/clip.py``.

    >>> import gradclip, numpy as np
    >>> clip = gradclip.ClipGradByNorm(1.0)
    >>> clip([("weight", np.array([3.0, 4.0])), ("bias", None)])
    [('weight', array([0.6, 0.8]))]
    """

    def __init__(self, clip_norm: Limit) -> None:
        super().__init__()
        self.rule = dialect.clip_grad_by_norm(as_float(clip_norm))
        self.clip_norm = self.rule.limit

    def __str__(self) -> str:
        return f"Gradient Clip By Norm, clip_norm={_text(self.clip_norm)}"


class ClipGradByGlobalNorm(ClipGrad):
    """Clip all gradients by one Euclidean norm over them, as ``paddle.nn.ClipGradByGlobalNorm`` does.

    ``g_i * clip_norm / max(n, clip_norm), with n = norm(g_1, ..., g_k)``

    It clips in place, as Paddle does, if all gradients are dense and writable.

    Args:
        clip_norm: the limit, 0 to infinity; infinity measures only.
        group_name: accepted and of no effect.
        auto_skip_clip: clip only where the norm is above the limit, so that a NaN norm clips nothing.

    Raises:
        ValueError: for a negative or NaN limit.
        AssertionError: if ``auto_skip_clip`` is not a bool.

    Source: paddlepaddle 3.3.1, ``paddle/nn/clip.py``.

    >>> import gradclip, numpy as np
    >>> clip = gradclip.ClipGradByGlobalNorm(1.0)
    >>> clip([("weight", np.array([3.0])), ("bias", np.array([4.0]))])
    [('weight', array([0.6])), ('bias', array([0.8]))]
    """

    def __init__(self, clip_norm: Limit, group_name: str = "default_group", auto_skip_clip: bool = False) -> None:
        super().__init__()
        self.rule = dialect.clip_grad_by_global_norm(as_float(clip_norm), group_name, auto_skip_clip)
        self.clip_norm = self.rule.limit
        self.group_name = group_name
        self.auto_skip_clip = auto_skip_clip

    @untraced
    def __call__(self, params_grads: Iterable[tuple[P, G | None]]) -> list[tuple[P, G]]:
        pairs = _pairs(params_grads)
        if not any(wanted(pair for pair in pairs if pair[1] is not None)):
            self.last = None
            return pairs  # Paddle leaves out pairs without a gradient only if it clips
        return super().__call__(pairs)

    def _clipped(self, opened: Gradients) -> list[Any]:
        backend = opened.backend
        leaves = opened.present[:1] if backend is None or opened.lane.dtype else opened.present
        in_place = backend is not None and all(not backend.is_sparse(g) and is_writable(backend, g) for g in leaves)
        return self._carried_out(opened, "place" if in_place else "new")

    def __str__(self) -> str:
        return f"Gradient Clip By GlobalNorm, global_norm={_text(self.clip_norm)}"


class ClipGradByValue(ClipGrad):
    """Clip each element between two bounds, as ``paddle.nn.ClipGradByValue`` does.

    It makes new tensors, but may return a Paddle tensor itself if that is within the bounds: an optimizer only reads it.

    ``max(min(g, upper), lower)``

    Args:
        max: the upper bound: it comes first.
        min: the lower bound; ``-max`` if None, and then ``max`` must be above 0.

    Raises:
        ValueError, AssertionError: one exception that is both, for bounds that cross.
        TypeError: for bounds that are not numbers.

    Source: paddlepaddle 3.3.1, ``paddle/nn/clip.py``.

    >>> import gradclip, numpy as np
    >>> gradclip.ClipGradByValue(1.0, -2.0)([("weight", np.array([3.0, -4.0]))])
    [('weight', array([ 1., -2.]))]
    """

    def __init__(self, max: SupportsFloat, min: SupportsFloat | None = None) -> None:
        super().__init__()
        self.rule = dialect.clip_grad_by_value(as_float(max), as_float(min))
        self.max, self.min = self.rule.upper, self.rule.lower

    def __str__(self) -> str:
        return f"Clip Gradient By Value, min = {float(self.min):f}, max={float(self.max):f}"


GradientClipByNorm = ClipGradByNorm
"""The name of :class:`ClipGradByNorm` in ``paddle.fluid``."""
GradientClipByGlobalNorm = ClipGradByGlobalNorm
"""The name of :class:`ClipGradByGlobalNorm` in ``paddle.fluid``."""
GradientClipByValue = ClipGradByValue
"""The name of :class:`ClipGradByValue` in ``paddle.fluid``."""


def _text(limit: Any) -> str:
    """A limit as Paddle writes it, or one that follows the run."""
    return repr(limit) if follows_run(limit) else f"{float(limit):f}"


def _pairs(params_grads: Any) -> Pairs:
    if not isinstance(params_grads, Iterable):
        raise _no_pairs(params_grads)
    pairs = list(params_grads)
    is_usual = set(map(type, pairs)) == {tuple} and set(map(len, pairs)) == {2}  # faster to test all at once than one by one
    return pairs if is_usual else list(map(_pair, pairs))


def _pair(pair: Any) -> tuple[Any, Any]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise _no_pairs(pair)
    return pair[0], pair[1]


def _no_pairs(given: Any) -> TensorTypeError:
    what, hint = "params_grads must be (parameter, gradient) pairs.", "list(zip(parameters, gradients))."
    return TensorTypeError(what, f"{type(given).__name__}", hint)
