"""The mistakes that only a run shows: by numbers, or by what no source tells."""

from __future__ import annotations

from functools import partial

from gradclip.rounds.mistake import DOCTOR, Mistake

__all__ = ["SEEN_BY_A_RUN"]

#: the line that clips
_LINES = {
    "torch": (
        "Write `torch.nn.utils.clip_grad_norm_(model.parameters(), {limit})` between `loss.backward()` and `optimizer.step()`; "
        "with a GradScaler `scaler.unscale_(optimizer)` before it."
    ),
    "paddle": "Give the optimizer `grad_clip=paddle.nn.ClipGradByGlobalNorm({limit})`.",
    "tensorflow": (
        "Write `grads, _ = tf.clip_by_global_norm(grads, {limit})` before `apply_gradients`, "
        "or give the optimizer `global_clipnorm={limit}`."
    ),
    "keras": "Give the optimizer `global_clipnorm={limit}`.",
    "jax": "Write `optax.chain(optax.clip_by_global_norm({limit}), optimizer)`.",
}
_TAPE = "Clip the gradients that the tape returns, and give `apply_gradients` the clipped ones."
_FLOAT32 = "Use {name}: its squares neither overflow nor vanish."
_OWN = {
    "torch": "gradclip.clip_grad_norm_",
    "paddle": "gradclip.clip_grad_norm_",
    "tensorflow": "gradclip.clip_by_global_norm",
    "keras": "gradclip.clipped(optimizer, rule)",
    "jax": "gradclip.backends.jax.gradient_transformation(rule)",
}
_SAFE = {framework: _FLOAT32.format(name=name) for framework, name in _OWN.items()}

_seen = partial(Mistake, seen_by=frozenset({DOCTOR}))
SEEN_BY_A_RUN = (
    _seen(
        "GD101",
        "A step without a clip",
        "The optimizer took gradients that nothing clipped.",
        "Clip after the backward pass and before the optimizer's step.",
        like="GM108",
        ways=_LINES,
    ),
    _seen(
        "GD102",
        "A clip without gradients",
        "Nothing was clipped: no parameter of the call had a gradient.",
        "Clip after backward(), and pass a list: `params = list(model.parameters())`.",
        like="GM101",
        ways={"tensorflow": _TAPE, "keras": _TAPE, "jax": "Clip the gradients that `jax.grad` returns."},
    ),
    _seen(
        "GD104",
        "Gradients written after the clip",
        "Between the clip and the step something else wrote the gradients, so the limit does not hold.",
        "Clip last, just before the step.",
        ways={"jax": "Put the clip just before the optimizer in the chain, after what changes the gradients."},
        spoils_norms=True,
    ),
    _seen(
        "GD112",
        "A step that changes nothing",
        "No parameter of the optimizer had a gradient other than 0 in any step: the model never learns.",
        "Give the optimizer the parameters of the model that is trained, and remove the gradients after the step only.",
        ways={
            "torch": (
                "Give the optimizer the parameters of the model that is trained, and call `zero_grad()` before `backward()` or "
                "after the step, never between them."
            ),
            "paddle": (
                "Give the optimizer the parameters of the model that is trained, and call `clear_grad()` after the step, "
                "never between `backward()` and the step."
            ),
        },
        spoils_norms=True,
    ),
    _seen(
        "GD114",
        "A clip after steps in the backward pass",
        "Hooks stepped the parameters during the backward pass and removed their gradients: after it there is nothing to clip.",
        "Clip in the hook, just before its step. It has one parameter, so one norm over all is not possible there.",
    ),
    _seen(
        "GD201",
        "A norm that is not finite",
        "A gradient contains infinity or NaN. The step used it, or every step since has been skipped.",
        "Look for the cause in the forward pass: no limit helps.",
        ways={
            "torch": "Look for its cause in the forward pass; error_if_nonfinite=True stops at the first one. No limit helps.",
            "paddle": "Look for its cause in the forward pass; error_if_nonfinite=True stops at the first one. No limit helps.",
            "tensorflow": (
                "Look for its cause in the forward pass; `tf.debugging.enable_check_numerics()` stops there. No limit helps."
            ),
            "jax": (
                'Look for its cause in the forward pass; `jax.config.update("jax_debug_nans", True)` stops it. No limit helps.'
            ),
        },
    ),
    _seen(
        "GD202",
        "An infinite norm of finite gradients",
        "The gradients and their norm are finite; only their squares are infinite in their dtype, and the clip makes them 0.",
        "Use gradclip: its squares neither overflow nor vanish.",
        ways=_SAFE,
    ),
    _seen(
        "GD203",
        "A wrong norm",
        "The returned norm is far from the exact one, computed in float64: the squares vanish or lose digits in their dtype.",
        "Use gradclip: its squares neither overflow nor vanish.",
        ways=_SAFE,
    ),
    _seen(
        "GD204",
        "Equal rows counted one by one",
        "A sparse gradient has several rows with the same index. The step adds them up, and the norm counted each one.",
        "Add equal rows up before the clip.",
        ways={
            "tensorflow": "Use gradclip.clip_by_global_norm, which adds equal rows up, or `tf.convert_to_tensor(grad)` before.",
        },
    ),
    _seen(
        "GD205",
        "A run that diverges, without a clip",
        "The norms left their level and never came back, and nothing clipped them.",
        "Clip after the backward pass and before the optimizer's step.",
        told_on="explodes.md",
        ways=_LINES,
        needs_norms=True,
    ),
    _seen(
        "GD301",
        "A limit that never clips",
        "The limit is more than 50 times the largest norm: no step was near it.",
        "Choose the limit from the norms.",
        needs_norms=True,
    ),
    _seen(
        "GD302",
        "A limit that always clips",
        "Each step was shortened to less than a tenth. Except under Adam and its like, that acts as a smaller learning rate.",
        "Choose the limit from the norms, or lower the learning rate.",
        needs_norms=True,
    ),
    _seen(
        "GD303",
        "Processes that disagree",
        "In one step the processes had different norms or limits, so they scaled their gradients differently.",
        "Clip after the last exchange (outside no_sync). The norm of shards is that of their DTensors, or needs `shards=`; "
        "that of stages needs `reduce=`.",
        ways={
            "tensorflow": "Clip after the gradients were summed over the replicas, or sum the norm over them: `reduce=`.",
            "keras": "Clip after the gradients were summed over the replicas: `global_clipnorm=` of the optimizer does.",
            "jax": "Clip after `jax.lax.pmean` of the gradients, or sum the norm over the devices: `reduce=`.",
        },
        spoils_norms=True,
    ),
    _seen(
        "GD304",
        "A limit that is no limit",
        "A limit of 0 makes every gradient 0, a negative one flips their signs; None, NaN and True are not limits.",
        "Use a positive limit; infinity only measures. Where it is switched off, leave it out.",
    ),
    _seen(
        "GD305",
        "Replicas that drift apart",
        "These parameters were equal on all processes before the first step: some process scaled or stepped its own copy.",
        "Clip the same parameters on every process, by one norm and one limit, and step on all of them or on none.",
    ),
)
