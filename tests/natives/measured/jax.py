"""optax's own transformations, and the optax dialect."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from frameworks.jax import framework
from natives.behaviours import Behaviours
from natives.compare import Outcome
from natives.replay import Native, calls

import gradclip
from gradclip.backends.jax import gradient_transformation
from gradclip.dialects import optax as dialect

NAMES = ("clip_by_global_norm", "clip", "clip_by_block_rms", "adaptive_grad_clip")


def as_optax(name: str) -> Any:
    """Return a rule's transformation, under the native's name."""
    return lambda *arguments, **named: gradient_transformation(getattr(dialect, name)(*arguments, **named))


def per_example(grads: Any, limit: Any) -> Any:
    """Return the native's result: the sum, and the number of clipped examples."""
    result = gradclip.clip(grads, dialect.per_example_global_norm_clip(limit))
    return result.grads, jnp.sum(result.coefficient < 1)


THEIRS = SimpleNamespace(
    **{name: getattr(optax, name) for name in NAMES},
    norm=optax.tree.norm,
    per_example_global_norm_clip=optax.per_example_global_norm_clip,
)
OURS = SimpleNamespace(
    **{name: as_optax(name) for name in NAMES},
    norm=lambda tree: framework.make(gradclip.norm(tree, dialect.clip_by_global_norm(1.0)) or 0.0),
    per_example_global_norm_clip=per_example,
)
PREFIX = "optax."  #: of the names of its natives


# ---- the recorded cases --------------------------------------------------------------------------------------------------


def native(grads: list[Any], limit: Any) -> Outcome:
    transformation = optax.clip_by_global_norm(limit)
    updates = transformation.update(grads, transformation.init(grads))[0]
    return Outcome(updates, optax.tree.norm(grads), updates)


def ours(grads: list[Any], limit: Any) -> Outcome:
    result = gradclip.clip(grads, dialect.clip_by_global_norm(limit))
    return Outcome(result.grads, float(result.norm), result.grads)  # optax's own norm of float16 gradients is float16


CALLS = calls(Native("optax.clip_by_global_norm", native, ours))

# ---- behaviours ----------------------------------------------------------------------------------------------------------

_LAYERS = "gradclip does not take over per_example_layer_norm_clip"
#: recorded behaviours without a counterpart here, with the reason
NOT_REPLAYED = {
    "numpy leaves": "NumPy arrays are a framework of their own to gradclip, and come back as NumPy arrays",
    "numpy f64 leaves without x64": "the same",
    **dict.fromkeys((f"per_example_layer_norm_clip {limit}" for limit in ("inf", "0.0", "1.25", "-1.0", "nan")), _LAYERS),
    "inject_hyperparams needs the factory's named arg": "about optax.inject_hyperparams, which reads signatures of factories",
}

GLOBAL, VALUE, RMS = "optax.clip_by_global_norm", "optax.clip", "optax.clip_by_block_rms"
ADAPTIVE, EXAMPLE = "optax.adaptive_grad_clip", "optax.per_example_global_norm_clip"
BEHAVIOURS = Behaviours()
of = BEHAVIOURS.of
NAN, INF = float("nan"), float("inf")


def update(transformation: Any, grads: Any, params: Any = None) -> Any:
    return transformation.update(grads, transformation.init(grads), params)[0]


def f32(values: Any) -> Any:
    return jnp.asarray(values, jnp.float32)


@of(GLOBAL, "a nested pytree keeps its structure")
def _(api: Any) -> Any:
    tree = {"a": (f32([3.0]),), "b": [f32([4.0]), None]}
    updates = update(api.clip_by_global_norm(1.0), tree)
    return str(jax.tree.structure(updates)), updates


@of(GLOBAL, "empty pytrees")
def _(api: Any) -> Any:
    return update(api.clip_by_global_norm(1.0), {}), update(api.clip_by_global_norm(1.0), ())


@of(GLOBAL, "the norm of an empty pytree")
def _(api: Any) -> Any:
    return float(api.norm({}))


@of(GLOBAL, "a Python float as a leaf")
def _(api: Any) -> Any:
    return update(api.clip_by_global_norm(1.0), [f32([3.0]), 4.0])


@of(GLOBAL, "max_norm a vector", limit=np.float32([1.0, 2.0]))
@of(GLOBAL, "max_norm of shape (1,)", limit=np.float32([1.0]))
def _(api: Any, limit: Any) -> Any:
    return update(api.clip_by_global_norm(jnp.asarray(limit)), [f32([3.0, 4.0])])


@of(GLOBAL, "the state")
def _(api: Any) -> Any:
    return api.clip_by_global_norm(1.0).init([f32([3.0, 4.0])])


@of(GLOBAL, "jit")
def _(api: Any) -> Any:
    return jax.jit(lambda g: update(api.clip_by_global_norm(1.0), g))(f32([3.0, 4.0]))


@of(GLOBAL, "vmap")
def _(api: Any) -> Any:
    return jax.vmap(lambda g: update(api.clip_by_global_norm(1.0), g))(f32([[3.0, 4.0], [30.0, 40.0], [0.3, 0.4]]))


@of(GLOBAL, "derivative, clipped", at=[3.0, 4.0])
@of(GLOBAL, "derivative at zeros", at=[0.0, 0.0])
@of(GLOBAL, "derivative, unclipped", at=[0.3, 0.4])
def _(api: Any, at: list[float]) -> Any:
    return jax.grad(lambda g: jnp.sum(update(api.clip_by_global_norm(1.0), g)))(f32(at))


@of(GLOBAL, "max_norm a NumPy float64 and a bfloat16 gradient", limit=np.float64(1))
@of(GLOBAL, "max_norm a float32 array and a bfloat16 gradient", limit=np.float32([1])[0])
def _(api: Any, limit: Any) -> Any:
    return update(api.clip_by_global_norm(jnp.asarray(limit) if limit.dtype == "float32" else limit), jnp.ones(4, "bfloat16"))


@of(VALUE, "max_delta 1", limit=1.0)
@of(VALUE, "max_delta 0", limit=0.0)
@of(VALUE, "max_delta -1", limit=-1.0)
@of(VALUE, "max_delta inf", limit=INF)
@of(VALUE, "max_delta nan", limit=NAN)
def _(api: Any, limit: float) -> Any:
    return update(api.clip(limit), f32([3.0, -4.0, NAN, INF]))


@of(VALUE, "complex leaves")
def _(api: Any) -> Any:
    return update(api.clip(1.0), jnp.asarray([3 + 4j], "complex64"))


@of(VALUE, "integer leaves")
def _(api: Any) -> Any:
    return update(api.clip(1.5), jnp.asarray([3, -4]))


@of(RMS, "threshold 1", limit=1.0, at=[3.0, 4.0])
@of(RMS, "threshold 0", limit=0.0, at=[3.0, 4.0])
@of(RMS, "threshold -1", limit=-1.0, at=[3.0, 4.0])
@of(RMS, "threshold inf", limit=INF, at=[3.0, 4.0])
@of(RMS, "threshold nan", limit=NAN, at=[3.0, 4.0])
@of(RMS, "zeros", limit=1.0, at=[0.0, 0.0])
@of(RMS, "threshold 0, zeros", limit=0.0, at=[0.0, 0.0])
@of(RMS, "threshold inf, an infinite element", limit=INF, at=[INF, 1.0])
@of(RMS, "empty", limit=1.0, at=[])
@of(RMS, "inf", limit=1.0, at=[INF, 1.0])
def _(api: Any, limit: float, at: list[float]) -> Any:
    return update(api.clip_by_block_rms(limit), f32(at))


@of(ADAPTIVE, "without the parameters")
def _(api: Any) -> Any:
    transformation = api.adaptive_grad_clip(0.5)
    return transformation.update(f32([3.0]), transformation.init(f32([3.0])))


@of(ADAPTIVE, "parameters of zero", clipping=0.5, grads=[3.0, 4.0], params=[0.0, 0.0])
@of(ADAPTIVE, "zeros", clipping=0.5, grads=[0.0, 0.0], params=[1.0, 1.0])
@of(ADAPTIVE, "columns", clipping=0.5, grads=[[3.0, 0.0], [4.0, 1.0]], params=[[1.2, 2.0], [1.6, 0.0]])
@of(ADAPTIVE, "shape (1, 3) is a vector", clipping=1.0, grads=[[3.0, 0.0, 4.0]], params=[[1.0, 1.0, 1.0]])
@of(ADAPTIVE, "nan", clipping=0.5, grads=[NAN, 1.0], params=[1.0, 1.0])
@of(ADAPTIVE, "six dimensions", clipping=0.5, grads=np.ones((2,) * 6), params=np.ones((2,) * 6))
@of(ADAPTIVE, "clipping inf", clipping=INF, grads=[3.0, 4.0], params=[1.0, 1.0])
@of(ADAPTIVE, "clipping inf, an infinite element", clipping=INF, grads=[INF, 1.0], params=[1.0, 1.0])
@of(ADAPTIVE, "clipping -1", clipping=-1.0, grads=[3.0, 4.0], params=[3.0, 4.0])
@of(ADAPTIVE, "clipping nan", clipping=NAN, grads=[3.0, 4.0], params=[3.0, 4.0])
@of(ADAPTIVE, "clipping 0, zeros", clipping=0.0, grads=[0.0, 0.0], params=[1.0, 1.0])
@of(ADAPTIVE, "clipping 0", clipping=0.0, grads=[3.0, 4.0], params=[1.0, 1.0])
def _(api: Any, clipping: float, grads: Any, params: Any) -> Any:
    return update(api.adaptive_grad_clip(clipping), f32(grads), f32(params))


BATCH = [[0.0, 0.0, 0.0], [0.0, 3.0, 4.0], [4.0, 0.0, 3.0], [3.0, 4.0, 0.0]]


@of(EXAMPLE, "limit inf", limit=INF, grads=BATCH)
@of(EXAMPLE, "limit 0", limit=0.0, grads=BATCH)
@of(EXAMPLE, "limit 1.25", limit=1.25, grads=BATCH)
@of(EXAMPLE, "limit -1", limit=-1.0, grads=BATCH)
@of(EXAMPLE, "limit nan", limit=NAN, grads=BATCH)
@of(EXAMPLE, "nan", limit=1.0, grads=[[NAN, 1.0], [3.0, 4.0]])
@of(EXAMPLE, "inf", limit=1.0, grads=[[INF, 1.0], [3.0, 4.0]])
@of(EXAMPLE, "no examples", limit=1.0, grads=np.empty((0, 3)))
def _(api: Any, limit: float, grads: Any) -> Any:
    summed, clipped = api.per_example_global_norm_clip([f32(grads)], limit)
    return summed, int(clipped)


@of(EXAMPLE, "two numbers of examples", grads=[BATCH, [1.0, 2.0]])
@of(EXAMPLE, "a gradient without examples", grads=[1.0])
def _(api: Any, grads: Any) -> Any:
    return api.per_example_global_norm_clip([f32(g) for g in grads], 1.0)


@of(EXAMPLE, "a dict")
def _(api: Any) -> Any:
    summed, clipped = api.per_example_global_norm_clip({"a": f32(BATCH)}, 1.25)
    return summed, int(clipped)
