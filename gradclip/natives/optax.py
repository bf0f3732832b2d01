"""optax, and the small optimizers from JAX's own examples."""

from __future__ import annotations

from functools import partial

from gradclip.natives.model import Applied, Native

__all__ = ["NATIVES", "may_clip_updates"]

_native = partial(Native, source="optax 0.2.8, optax/transforms/_clipping.py")
_private = partial(
    Native,
    source="optax 0.2.8, optax/contrib/_privacy.py",
    dialect_name="optax.per_example_global_norm_clip",
    does_more=True,
    link="https://optax.readthedocs.io/en/latest/api/contrib.html",
)
_DOCS = "https://optax.readthedocs.io/en/latest/api/transformations.html#optax."
_NORM_DOCS = "https://optax.readthedocs.io/en/latest/api/utilities.html#optax.tree.norm"
_ZEROS, _SIGN, _ONE = (
    "zero gradients become NaN",
    "the gradients change their sign",
    "a gradient that is not finite becomes NaN",
)


def _names(name: str) -> tuple[str, ...]:
    return f"optax.{name}", f"optax.transforms.{name}"


def may_clip_updates(name: str) -> bool:
    """Whether a clip is also meant for what an optimizer has made: Adafactor limits the root mean square of its updates."""
    return name.endswith("clip_by_block_rms")


NATIVES = (
    _native(
        code="GO501",
        names=_names("clip_by_global_norm"),
        applied=Applied.CHAIN,
        note="A transformation: one norm over all gradients.",
        link=_DOCS + "clip_by_global_norm",
        departs={
            "zero-limit": "gradients become NaN if all are zero",
            "infinite-limit": "every gradient becomes NaN if one is infinite",
            "negative-limit": _SIGN,
            "twice": "it counts twice",
        },
        departs_also=("finite-norm", "any-number", "derivative"),
    ),
    _native(
        code="GO502",
        names=_names("clip"),
        applied=Applied.CHAIN,
        note="A transformation: each element between -max_delta and max_delta.",
        link=_DOCS + "clip",
        departs={"negative-limit": "every element becomes the bound"},
        departs_also=("integers",),
    ),
    _native(
        code="GO503",
        names=_names("clip_by_block_rms"),
        applied=Applied.CHAIN,
        note="A transformation: each gradient by its own root mean square.",
        link=_DOCS + "clip_by_block_rms",
        departs={"zero-limit": _ZEROS, "infinite-limit": _ONE, "negative-limit": "nothing is clipped"},
        departs_also=("finite-norm", "dtype-kept", "derivative"),
    ),
    _native(
        code="GO504",
        names=_names("adaptive_grad_clip"),
        applied=Applied.CHAIN,
        note="A transformation: each unit relative to the norm of its parameter; pass the parameters to update().",
        link=_DOCS + "adaptive_grad_clip",
        departs={"infinite-limit": _ONE, "negative-limit": _SIGN},
        departs_also=("finite-norm", "dtype-kept", "derivative"),
    ),
    _native(
        code="GO505",
        advice="result.grads are the sums, and (result.coefficient < 1).sum() the number of clipped examples.",
        names=_names("per_example_global_norm_clip"),
        applied=Applied.TENSORS,
        tensors="grads",
        returned="the sums of the clipped gradients, and the number of examples clipped",
        note="One norm for each example; the result is the sum over the examples and the number of clipped ones.",
        link=_DOCS + "per_example_global_norm_clip",
        departs={"negative-limit": _SIGN, "twice": "it counts twice", "nothing-to-clip": "an error"},
        departs_also=("finite-norm", "dtype-kept", "derivative"),
    ),
    _native(
        code="GO506",
        names=("optax.tree.norm", "optax.tree_utils.tree_norm"),
        applied=Applied.NORM,
        signature_text="(tree, ord=None, squared=False)",
        dialect_name="torch.clip_grad_norm",  # which has the order of a norm
        called={"ord": "norm_type"},
        source="optax 0.2.8, optax/tree_utils/_tree_math.py",
        note="The norm over all leaves.",
        link=_NORM_DOCS,
    ),
    _native(
        code="GO507",
        names=_names("per_example_layer_norm_clip"),
        applied=Applied.TENSORS,
        signature_text="(grads, global_l2_norm_clip, uniform=True)",
        dialect_name="",
        returned="the sums of the clipped gradients, and the numbers of examples clipped",
        note="One norm for each example and each layer, with limits that share a total; gradclip has no such rule.",
        link=_DOCS + "per_example_layer_norm_clip",
    ),
    _private(
        code="GO508",
        names=("optax.contrib.differentially_private_aggregate",),
        applied=Applied.CHAIN,
        signature_text="(l2_norm_clip, noise_multiplier, key=None, *, seed=None)",
        note="It clips per example, averages and adds noise: its privacy accounting assumes this very transformation.",
    ),
    _private(
        code="GO509",
        names=("optax.contrib.dpsgd",),
        applied=Applied.OPTIMIZER,
        signature_text="(learning_rate, l2_norm_clip, noise_multiplier, seed, momentum=None, nesterov=False)",
        note="It clips per example, averages and adds noise: its privacy accounting assumes this very optimizer.",
    ),
    _native(
        code="GO510",
        names=("optax.global_norm",),
        applied=Applied.NORM,
        tensors="updates",
        dialect_name="optax.clip_by_global_norm",
        status="deprecated",
        since="0.2.8, for optax.tree.norm",
        source="optax 0.2.8, optax/_src/linear_algebra.py",
        note="The norm over all leaves.",
        link=_NORM_DOCS,
    ),
    _native(
        code="GO511",
        names=("jax.example_libraries.optimizers.clip_grads", "jax.experimental.optimizers.clip_grads"),
        applied=Applied.TENSORS,
        tensors="grad_tree",
        dialect_name="optax.clip_by_global_norm",
        returned="a new pytree",
        source="jax 0.10, jax/example_libraries/optimizers.py",
        note="One norm over all leaves of a pytree, into new ones.",
        link="https://docs.jax.dev/en/latest/jax.example_libraries.optimizers.html",
    ),
)
