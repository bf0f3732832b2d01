"""The public functions: the clip as one function, in place or not, and in two stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Union, Unpack, overload

from gradclip.core.engine import Options, run
from gradclip.core.gradients import Container, Gradients, open_
from gradclip.core.groups import NO_RULE, Group, Rules, Shards
from gradclip.core.result import ClipResult, public
from gradclip.core.rule import TENSOR, EachRule, Rule
from gradclip.core.selections import names_of
from gradclip.core.tracing import untraced
from gradclip.core.typed import (
    Dataclass,
    GradsT,
    JaxT,
    Model,
    Nest,
    NumpyT,
    OwnLeaf,
    PaddleT,
    RuleT,
    TensorflowT,
    TorchT,
    UnclearT,
    X,
)

if TYPE_CHECKING:
    from gradclip.core.returned import Unclear
    from gradclip.core.typed import JaxNorm, NumpyNorm, PaddleNorm, TensorflowNorm, TorchNorm

__all__ = ["clip", "clip_", "norm", "norms_by_name", "scale_by_norm", "scale_by_norm_"]

EachRules: TypeAlias = Union[EachRule, Group, Sequence[Group]]  # noqa: UP007  #: the norm is no single tensor, or may be none


class More(TypedDict, total=False):
    """The other arguments of :func:`clip`, for its overloads: there is one for each framework."""

    params: object
    reduce: object
    shards: Shards


@overload
def clip(grads: TorchT, rule: EachRules, **more: Unpack[More]) -> ClipResult[TorchT, Any]: ...
@overload
def clip(grads: GradsT, rule: EachRules, **more: Unpack[More]) -> Unclear[GradsT]: ...
@overload
def clip(grads: UnclearT, rule: Rule, **more: Unpack[More]) -> Unclear[UnclearT]: ...
@overload
def clip(grads: PaddleT, rule: Rule, **more: Unpack[More]) -> ClipResult[PaddleT, PaddleNorm]: ...
@overload
def clip(grads: NumpyT, rule: Rule, **more: Unpack[More]) -> ClipResult[NumpyT, NumpyNorm]: ...
@overload
def clip(grads: TorchT, rule: Rule, **more: Unpack[More]) -> ClipResult[TorchT, TorchNorm]: ...
@overload
def clip(grads: JaxT, rule: Rule, **more: Unpack[More]) -> ClipResult[JaxT, JaxNorm]: ...
@overload
def clip(grads: TensorflowT, rule: Rule, **more: Unpack[More]) -> ClipResult[TensorflowT, TensorflowNorm]: ...
@overload
def clip(grads: GradsT, rule: RuleT, **more: Unpack[More]) -> Unclear[GradsT]: ...
@untraced
def clip(
    grads: Any, rule: Any = NO_RULE, *, params: Any = None, reduce: Any = None, shards: Shards = None
) -> ClipResult[Any, Any]:
    """Clip gradients into new ones.

    Args:
        grads: a tensor, a parameter (it stands for its gradient, as does any leaf of torch or Paddle that requires one), or
            any container of them that their framework accepts: a list, tuple, dict, iterator, JAX pytree, TF nest, Paddle
            ``(parameter, gradient)`` pairs. None stays where it is. An iterator of pairs of a name and a tensor,
            such as ``model.named_parameters()`` or ``grads.items()``, counts as a dict.
            Any floating dtype, and complex if the framework supports it; dtypes and devices may be mixed.
        rule: from a dialect; or a :class:`gradclip.Group`, which is a rule for some of the gradients; or a list of
            groups.
        params: the parameters, in a container of the same structure (an iterator for a list), for a rule whose limit is
            relative to their norm (adaptive clipping). Not needed if the gradients come with their parameters.
        reduce: for one norm over gradients of several processes, as in pipeline parallelism: the group of the processes
            (torch: a ``ProcessGroup`` or ``DeviceMesh``; JAX, in ``shard_map``, ``pmap``, ``vmap``: the name of an axis, or
            a tuple of names), or a function. The function receives the sum of the p-th powers of this process's gradients, as
            a 0-d float64 tensor (for an infinite order their maximum; for several groups of one order a vector, with an entry
            for each). It returns the sum over all processes, or writes it in place. Gradients whose type shows their shards
            need no ``reduce`` (torch: DTensors; JAX: sharded arrays under ``jit``). A list may also have groups without such
            a norm: these use only this process's gradients.
        shards: which processes hold other shards of a gradient whose type does not say so (experts, a caller's own shards):
            a mapping from a selection, as for :class:`gradclip.Group`, to a group as for ``reduce``
            (``{"*.experts.*": group}``), or a function of the name and the parameter that returns a group or None. Each
            gradient counts once, also beside DTensors and with ``reduce``. With a mapping a process without such gradients
            takes part. A plain tensor that ``shards`` leaves out counts as a replica beside sharded ones. If such replicas
            differ, the first clips raise an error on all processes of the group.

    Returns:
        The clipped gradients in the same container and dtypes, with the norm and the coefficient; for a list of groups
        these are lists, with an entry for each group. It is differentiable if the framework is. A gradient that is not clipped
        equals the input bit for bit. A writable tensor in the result is always a new one.
        The norm of finite gradients is finite if its dtype can represent it, except on accelerators (cuda, mps, xpu, xla, the
        GPUs and TPUs of other frameworks): there squares are summed in float32, and overflow as natively. CUDA devices of
        compute capability 6.0, 7.0, 8.0, 9.0 and 10.0 sum one norm over all in float64 under eager PyTorch.

    Raises:
        TypeError: for an object that is not a gradient or not a rule, and for tensors of two frameworks in one call.
        ValueError: for a limit or axes that do not fit.
        RuntimeError: for a norm that is not finite, if the rule has ``error_if_nonfinite``.

    Example:
        >>> import gradclip, numpy as np
        >>> from gradclip.dialects import torch
        >>> result = gradclip.clip({"w": np.array([3.0, 4.0])}, torch.clip_grad_norm(max_norm=1.0))
        >>> result.grads["w"].round(3), float(result.norm)
        (array([0.6, 0.8]), 5.0)
    """
    return clip_opened(open_(grads), rule, Options(params=params, reduce=reduce, shards=shards))


@overload
def clip_(grads: TorchT, rule: EachRules, **more: Unpack[More]) -> ClipResult[TorchT, Any]: ...
@overload
def clip_(grads: GradsT, rule: EachRules, **more: Unpack[More]) -> Unclear[GradsT]: ...
@overload
def clip_(grads: UnclearT, rule: Rule, **more: Unpack[More]) -> Unclear[UnclearT]: ...
@overload
def clip_(grads: PaddleT, rule: Rule, **more: Unpack[More]) -> ClipResult[PaddleT, PaddleNorm]: ...
@overload
def clip_(grads: NumpyT, rule: Rule, **more: Unpack[More]) -> ClipResult[NumpyT, NumpyNorm]: ...
@overload
def clip_(grads: TorchT, rule: Rule, **more: Unpack[More]) -> ClipResult[TorchT, TorchNorm]: ...
@overload
def clip_(grads: JaxT, rule: Rule, **more: Unpack[More]) -> ClipResult[JaxT, JaxNorm]: ...
@overload
def clip_(grads: TensorflowT, rule: Rule, **more: Unpack[More]) -> ClipResult[TensorflowT, TensorflowNorm]: ...
@overload
def clip_(grads: GradsT, rule: RuleT, **more: Unpack[More]) -> Unclear[GradsT]: ...
@untraced
def clip_(
    grads: Any, rule: Any = NO_RULE, *, params: Any = None, reduce: Any = None, shards: Shards = None
) -> ClipResult[Any, Any]:
    """Clip gradients in place. Arguments and result are those of :func:`clip`; the gradients in the result are the given ones.

    NumPy arrays, tensors of PyTorch and Paddle, and a ``tf.Variable`` with ``trainable=False`` are writable. JAX arrays and
    ``tf.Tensor`` are not, and raise: use :func:`clip`. It writes only gradients. A parameter, and any leaf that requires a
    gradient, stands for its gradient. Trainable variables, a model's ``state_dict()``, an optimizer's state and a loss
    raise an error.

    Raises:
        TypeError, ValueError, RuntimeError: one exception that is all three, for a gradient that is not writable; then no
            gradient has changed.

    Example:
        >>> import gradclip, numpy as np
        >>> from gradclip.dialects import tensorflow
        >>> gradient = np.array([3.0, 4.0])
        >>> gradclip.clip_(gradient, tensorflow.clip_by_norm(clip_norm=1.0)).coefficient
        np.float64(0.2)
        >>> gradient.round(3)
        array([0.6, 0.8])
    """
    return clip_opened(open_(grads), rule, Options("place", params=params, reduce=reduce, shards=shards))


@overload
def norm(grads: GradsT, rule: EachRules, *, reduce: object = ..., shards: Shards = ...) -> Any: ...
@overload
def norm(grads: UnclearT, rule: Rule, *, reduce: object = ..., shards: Shards = ...) -> Any: ...
@overload
def norm(grads: NumpyT, rule: Rule, *, reduce: object = ..., shards: Shards = ...) -> NumpyNorm: ...
@overload
def norm(grads: Nest[OwnLeaf[X]], rule: Rule, *, reduce: object = ..., shards: Shards = ...) -> X: ...
@overload
def norm(grads: Dataclass, rule: Rule, *, reduce: object = ..., shards: Shards = ...) -> JaxNorm: ...
@overload
def norm(grads: GradsT, rule: RuleT, *, reduce: object = ..., shards: Shards = ...) -> Any: ...
@untraced
def norm(grads: Any, rule: Any = NO_RULE, *, reduce: Any = None, shards: Shards = None) -> Any:
    """The first of two stages: the norm that :func:`clip` would use, before anything is scaled.

    Log it or test it, then pass it to :func:`scale_by_norm`.

    Args:
        grads, rule, reduce, shards: as for :func:`clip`.

    Returns:
        The norm in the form of :attr:`gradclip.ClipResult.norm`; None for a rule by value.

    Raises:
        TypeError, ValueError, RuntimeError: as for :func:`clip`.

    Example:
        >>> import gradclip, numpy as np
        >>> from gradclip.dialects import torch
        >>> gradclip.norm([np.array([3.0]), np.array([4.0])], torch.clip_grad_norm(max_norm=1.0))
        np.float64(5.0)
    """
    return clip_opened(open_(grads), rule, Options(until="norm", reduce=reduce, shards=shards)).norm


@overload
def norms_by_name(grads: Model[X], order: float = ...) -> dict[str, X]: ...
@overload
def norms_by_name(grads: UnclearT, order: float = ...) -> dict[str, Any]: ...
@overload
def norms_by_name(grads: NumpyT, order: float = ...) -> dict[str, NumpyNorm]: ...
@overload
def norms_by_name(grads: Nest[OwnLeaf[X]], order: float = ...) -> dict[str, X]: ...
@overload
def norms_by_name(grads: Dataclass, order: float = ...) -> dict[str, JaxNorm]: ...
@overload
def norms_by_name(grads: GradsT, order: float = ...) -> dict[str, Any]: ...
@untraced
def norms_by_name(grads: Any, order: float = 2.0) -> dict[str, Any]:
    """The norm of each gradient by its name: to see which one explodes.

    Args:
        grads: any container that :func:`clip` takes, or a model of PyTorch or Paddle whose parameters hold gradients.
        order: p of the p-norm; infinity is the largest magnitude.

    Returns:
        A dict from the names, as patterns of :class:`gradclip.Group` match them (if two are equal, the paths: ``"['a'].b"``),
        to 0-d tensors (NumPy: scalars) of at least float32 on the gradients' device. It leaves out entries without gradient.

    Raises:
        TypeError: for an object that is not a gradient.

    Example:
        >>> import gradclip, numpy as np
        >>> gradclip.norms_by_name({"encoder": {"weight": np.array([3.0, 4.0])}, "head": np.array([12.0])})
        {'encoder.weight': np.float64(5.0), 'head': np.float64(12.0)}
    """
    named = getattr(grads, "named_parameters", None)
    opened = open_(dict(named()) if callable(named) else grads)
    rule = Rule(name="norms", scope=TENSOR, order=float(order))
    names = names_of(opened)
    listed = replace(opened, container=Container(opened.leaves, list))
    found = public(listed, run(opened, rule, Options(until="norm", shards={})), is_list=False).norm  # of these tensors
    if len(set(names)) < len(names):  # {"a.b": x, "a": {"b": y}} has "a.b" twice
        names = opened.paths()
    return {name: n for name, n in zip(names, found, strict=True) if n is not None} if opened.leaves else {}


@overload
def scale_by_norm(grads: TorchT, rule: EachRules, norm: object, *, params: object = ...) -> ClipResult[TorchT, Any]: ...
@overload
def scale_by_norm(grads: GradsT, rule: EachRules, norm: object, *, params: object = ...) -> Unclear[GradsT]: ...
@overload
def scale_by_norm(grads: UnclearT, rule: Rule, norm: object, *, params: object = ...) -> Unclear[UnclearT]: ...
@overload
def scale_by_norm(grads: PaddleT, rule: Rule, norm: object, *, params: object = ...) -> ClipResult[PaddleT, PaddleNorm]: ...
@overload
def scale_by_norm(grads: NumpyT, rule: Rule, norm: object, *, params: object = ...) -> ClipResult[NumpyT, NumpyNorm]: ...
@overload
def scale_by_norm(grads: TorchT, rule: Rule, norm: object, *, params: object = ...) -> ClipResult[TorchT, TorchNorm]: ...
@overload
def scale_by_norm(grads: JaxT, rule: Rule, norm: object, *, params: object = ...) -> ClipResult[JaxT, JaxNorm]: ...
@overload
def scale_by_norm(
    grads: TensorflowT, rule: Rule, norm: object, *, params: object = ...
) -> ClipResult[TensorflowT, TensorflowNorm]: ...
@overload
def scale_by_norm(grads: GradsT, rule: RuleT, norm: object, *, params: object = ...) -> Unclear[GradsT]: ...
@untraced
def scale_by_norm(grads: Any, rule: Any = NO_RULE, norm: Any = None, *, params: Any = None) -> ClipResult[Any, Any]:
    """The second of two stages: clip as ``rule`` does, by a known norm.

    Args:
        grads, rule, params: as for :func:`clip`.
        norm: in the form that :func:`norm` returns for this rule.

    Returns:
        As :func:`clip`; the norm in the result is the known one, of at least float32.

    Raises:
        TypeError, ValueError: as for :func:`clip`, and for a norm that is negative or of another form.

    Example:
        >>> import gradclip, numpy as np
        >>> from gradclip.dialects import torch
        >>> rule = torch.clip_grad_norm(max_norm=1.0)
        >>> gradclip.scale_by_norm(np.array([3.0, 4.0]), rule, norm=10.0).grads.round(3)
        array([0.3, 0.4])
    """
    return clip_opened(open_(grads), rule, Options(norm=norm, params=params))


@overload
def scale_by_norm_(grads: TorchT, rule: EachRules, norm: object, *, params: object = ...) -> ClipResult[TorchT, Any]: ...
@overload
def scale_by_norm_(grads: GradsT, rule: EachRules, norm: object, *, params: object = ...) -> Unclear[GradsT]: ...
@overload
def scale_by_norm_(grads: UnclearT, rule: Rule, norm: object, *, params: object = ...) -> Unclear[UnclearT]: ...
@overload
def scale_by_norm_(grads: PaddleT, rule: Rule, norm: object, *, params: object = ...) -> ClipResult[PaddleT, PaddleNorm]: ...
@overload
def scale_by_norm_(grads: NumpyT, rule: Rule, norm: object, *, params: object = ...) -> ClipResult[NumpyT, NumpyNorm]: ...
@overload
def scale_by_norm_(grads: TorchT, rule: Rule, norm: object, *, params: object = ...) -> ClipResult[TorchT, TorchNorm]: ...
@overload
def scale_by_norm_(grads: JaxT, rule: Rule, norm: object, *, params: object = ...) -> ClipResult[JaxT, JaxNorm]: ...
@overload
def scale_by_norm_(
    grads: TensorflowT, rule: Rule, norm: object, *, params: object = ...
) -> ClipResult[TensorflowT, TensorflowNorm]: ...
@overload
def scale_by_norm_(grads: GradsT, rule: RuleT, norm: object, *, params: object = ...) -> Unclear[GradsT]: ...
@untraced
def scale_by_norm_(grads: Any, rule: Any = NO_RULE, norm: Any = None, *, params: Any = None) -> ClipResult[Any, Any]:
    """:func:`scale_by_norm` in place, for tensors that :func:`clip_` can write.

    Args:
        grads, rule, norm, params: as for :func:`scale_by_norm`.

    Raises:
        TypeError, ValueError, RuntimeError: one exception that is all three, as for :func:`clip_`.

    Example:
        >>> import gradclip, numpy as np
        >>> from gradclip.dialects import torch
        >>> gradient, rule = np.array([3.0, 4.0]), torch.clip_grad_norm(max_norm=1.0)
        >>> gradclip.scale_by_norm_(gradient, rule, norm=10.0).norm
        np.float64(10.0)
        >>> gradient.round(3)
        array([0.3, 0.4])
    """
    return clip_opened(open_(grads), rule, Options("place", norm=norm, params=params))


@untraced
def clip_opened(opened: Gradients, rule: Rules, options: Options) -> ClipResult[Any, Any]:
    """The clip of gradients that have been opened: an iterator can be opened only once."""
    return public(opened, run(opened, rule, options), is_list=isinstance(rule, (list, tuple)))
