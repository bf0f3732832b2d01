"""optax, and the small optimizers from JAX's own examples."""

from __future__ import annotations

from gradclip.migrate.apis import forms
from gradclip.migrate.apis.model import Api, Kind, Target, signature

__all__ = ["APIS"]

_DOCS = "https://optax.readthedocs.io/en/latest/api/transformations.html#optax."
_NORM_DOCS = "https://optax.readthedocs.io/en/latest/api/utilities.html#optax.tree.norm"
_SOURCE = "optax 0.2.8, optax/transforms/_clipping.py"
_WRAPPER = "gradclip.backends.jax.gradient_transformation"


def _names(name: str) -> tuple[str, ...]:
    return f"optax.{name}", f"optax.transforms.{name}"


def _gradclip(name: str, *, exact: bool = False) -> Target:
    note = "Like optax's, it has no state, so checkpoints keep their shape."
    return Target(f"gradclip.dialects.optax.{name}", exact=exact, wrapper=_WRAPPER, note=note)


def _norm(tree: str) -> Target:
    infinity = 'gradclip.dialects.optax.clip_by_global_norm(float("inf"))'
    return Target("gradclip.norm", by_hand=True, form=f"gradclip.norm({{{tree}}}, {infinity})", exact=False)


_TRANSFORMATIONS: tuple[Api, ...] = (
    Api(
        code="GO501",
        framework="optax",
        names=_names("clip_by_global_norm"),
        signature=signature("(max_norm)"),
        kind=Kind.OBJECT,
        returns="a transformation for optax.chain",
        nones="it stays None",
        dialect="optax.clip_by_global_norm",
        targets={
            "gradclip": _gradclip("clip_by_global_norm"),
            **forms.global_norm("max_norm", without="jax", nan_if_infinite=False),
        },
        since=_SOURCE,
        note="A transformation: one norm over all gradients.",
        link=_DOCS + "clip_by_global_norm",
    ),
    Api(
        code="GO502",
        framework="optax",
        names=_names("clip"),
        signature=signature("(max_delta)"),
        kind=Kind.OBJECT,
        returns="a transformation for optax.chain",
        nones="it stays None",
        dialect="optax.clip",
        targets={"gradclip": _gradclip("clip", exact=True), **forms.elementwise("max_delta", without="jax")},
        since=_SOURCE,
        note="A transformation: each element between -max_delta and max_delta.",
        link=_DOCS + "clip",
    ),
    Api(
        code="GO503",
        framework="optax",
        names=_names("clip_by_block_rms"),
        signature=signature("(threshold)"),
        kind=Kind.OBJECT,
        returns="a transformation for optax.chain",
        nones="it stays None",
        dialect="optax.clip_by_block_rms",
        targets={"gradclip": _gradclip("clip_by_block_rms")},
        since=_SOURCE,
        note="A transformation: each gradient by its own root mean square.",
        link=_DOCS + "clip_by_block_rms",
    ),
    Api(
        code="GO504",
        framework="optax",
        names=_names("adaptive_grad_clip"),
        signature=signature("(clipping, eps=1e-3, axis=None)"),
        kind=Kind.OBJECT,
        returns="a transformation for optax.chain",
        nones="it stays None",
        dialect="optax.adaptive_grad_clip",
        targets={"gradclip": _gradclip("adaptive_grad_clip")},
        since=_SOURCE,
        note="A transformation: each unit relative to the norm of its parameter; pass the parameters to update().",
        link=_DOCS + "adaptive_grad_clip",
    ),
)

_CLIP = "{grads}, gradclip.dialects.optax.per_example_global_norm_clip({l2_norm_clip})"

_FUNCTIONS: tuple[Api, ...] = (
    Api(
        code="GO505",
        framework="optax",
        names=_names("per_example_global_norm_clip"),
        signature=signature("(grads, l2_norm_clip)"),
        kind=Kind.RETURNED,
        returns="the sums of the clipped gradients, and the number of examples clipped",
        nones="it stays None",
        dialect="optax.per_example_global_norm_clip",
        targets={
            "gradclip": Target(
                "gradclip.clip",
                by_hand=True,
                form=f"result = gradclip.clip({_CLIP})",
                exact=False,
                note="result.grads are the sums, and (result.coefficient < 1).sum() the number of clipped examples.",
            )
        },
        since=_SOURCE,
        note="One norm for each example; the result is the sum over the examples and the number of clipped ones.",
        link=_DOCS + "per_example_global_norm_clip",
    ),
    Api(
        code="GO506",
        framework="optax",
        names=("optax.tree.norm", "optax.tree_utils.tree_norm"),
        signature=signature("(tree, ord=None, squared=False)"),
        kind=Kind.MEASURE,
        returns="the norm",
        nones="it counts for nothing",
        dialect="optax.clip_by_global_norm",
        targets={"gradclip": _norm("tree"), **forms.measured("tree", without="jax", dropped="ord squared")},
        since="optax 0.2.8, optax/tree_utils/_tree_math.py",
        note="The norm over all leaves.",
        link=_NORM_DOCS,
    ),
    Api(
        code="GO507",
        framework="optax",
        names=_names("per_example_layer_norm_clip"),
        signature=signature("(grads, global_l2_norm_clip, uniform=True)"),
        kind=Kind.RETURNED,
        returns="the sums of the clipped gradients, and the numbers of examples clipped",
        nones="it stays None",
        dialect="",
        targets={},
        since=_SOURCE,
        note="One norm for each example and each layer, with limits that share a total; gradclip has no such rule.",
        link=_DOCS + "per_example_layer_norm_clip",
    ),
    Api(
        code="GO508",
        framework="optax",
        names=("optax.contrib.differentially_private_aggregate",),
        signature=signature("(l2_norm_clip, noise_multiplier, key=None, *, seed=None)"),
        kind=Kind.OBJECT,
        returns="a transformation for optax.chain",
        nones="it stays None",
        dialect="optax.per_example_global_norm_clip",
        targets={},
        since="optax 0.2.8, optax/contrib/_privacy.py",
        note="It clips per example, averages and adds noise: its privacy accounting assumes this very transformation.",
        link="https://optax.readthedocs.io/en/latest/api/contrib.html",
    ),
    Api(
        code="GO509",
        framework="optax",
        names=("optax.contrib.dpsgd",),
        signature=signature("(learning_rate, l2_norm_clip, noise_multiplier, seed, momentum=None, nesterov=False)"),
        kind=Kind.OBJECT,
        returns="an optimizer",
        nones="it stays None",
        dialect="optax.per_example_global_norm_clip",
        targets={},
        since="optax 0.2.8, optax/contrib/_privacy.py",
        note="It clips per example, averages and adds noise: its privacy accounting assumes this very optimizer.",
        link="https://optax.readthedocs.io/en/latest/api/contrib.html",
    ),
    Api(
        code="GO510",
        framework="optax",
        names=("optax.global_norm",),
        signature=signature("(updates)"),
        kind=Kind.MEASURE,
        returns="the norm",
        nones="it counts for nothing",
        dialect="optax.clip_by_global_norm",
        targets={"gradclip": _norm("updates"), **forms.measured("updates", without="")},
        status="deprecated",
        since="0.2.8, for optax.tree.norm; optax 0.2.8, optax/_src/linear_algebra.py",
        note="The norm over all leaves.",
        link=_NORM_DOCS,
    ),
    Api(
        code="GO511",
        framework="jax",
        names=(
            "jax.example_libraries.optimizers.clip_grads",
            "jax.experimental.optimizers.clip_grads",
        ),
        signature=signature("(grad_tree, max_norm)"),
        kind=Kind.RETURNED,
        returns="a new pytree",
        nones="it stays None",
        dialect="optax.clip_by_global_norm",
        targets={
            "gradclip": Target(
                "gradclip.clip",
                by_hand=True,
                form="gradclip.clip({grad_tree}, gradclip.dialects.optax.clip_by_global_norm({max_norm})).grads",
                exact=False,
            ),
            **forms.global_norm("max_norm", without="", nan_if_infinite=False),
        },
        since="jax 0.10, jax/example_libraries/optimizers.py",
        note="One norm over all leaves of a pytree, into new ones.",
        link="https://docs.jax.dev/en/latest/jax.example_libraries.optimizers.html",
    ),
)

APIS: tuple[Api, ...] = (*_TRANSFORMATIONS, *_FUNCTIONS)
