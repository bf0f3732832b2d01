"""Every finding of the doctor: its title, its reason, and what to do, in each framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["KINDS", "Kind"]

_LIMIT = "{limit}"  #: where the line to write has the limit


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding."""

    code: str
    title: str
    reason: str
    advice: str  #: in a framework without an entry of its own
    lint: str = ""  #: the linter's code for the same mistake: its page shows a wrong and a right program
    ways: Mapping[str, str] = field(default_factory=dict)  #: what to do in a framework, by its name
    spoils_norms: bool = False  #: the clip's norms are not those of the gradients that a mended program steps
    needs_norms: bool = False  #: it is computed from these norms

    def advice_in(self, framework: str, limit: float | None = None) -> str:
        """What to do in a framework, with this limit."""
        return self.ways.get(framework, self.advice).replace(_LIMIT, "max_norm" if limit is None else f"{limit:g}")


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
_LOSS_SCALE = (
    "Let the inner optimizer clip, which runs after the division: "
    "`LossScaleOptimizer(keras.optimizers.Adam(global_clipnorm={limit}))`."
)
_FLOAT32 = "Use {name}: its squares neither overflow nor vanish."
_OWN = {
    "torch": "gradclip.clip_grad_norm_",
    "paddle": "gradclip.clip_grad_norm_",
    "tensorflow": "gradclip.clip_by_global_norm",
    "keras": "gradclip.clipped(optimizer, rule)",
    "jax": "gradclip.backends.jax.gradient_transformation(rule)",
}
_SAFE = {framework: _FLOAT32.format(name=name) for framework, name in _OWN.items()}

_KINDS = (
    Kind(
        "GD101",
        "A step without a clip",
        "The optimizer took gradients that nothing clipped.",
        "Clip after the backward pass and before the optimizer's step.",
        "GM108",
        _LINES,
    ),
    Kind(
        "GD102",
        "A clip without gradients",
        "Nothing was clipped: no parameter of the call had a gradient.",
        "Clip after backward(), and pass a list: `params = list(model.parameters())`.",
        "GM101",
        {"tensorflow": _TAPE, "keras": _TAPE, "jax": "Clip the gradients that `jax.grad` returns."},
    ),
    Kind(
        "GD103",
        "Other parameters stepped than clipped",
        "The clip and the optimizer have different parameters.",
        "Clip exactly the parameters that the optimizer has.",
        "",
        {
            "tensorflow": "Clip the gradients of exactly the variables that `apply_gradients` gets.",
            "keras": "Clip the gradients of exactly the variables that the optimizer gets.",
            "jax": "Put the clip before `optax.partition` or `optax.masked`, where it has all gradients.",
        },
        spoils_norms=True,
    ),
    Kind(
        "GD104",
        "Gradients written after the clip",
        "Between the clip and the step something else wrote the gradients, so the limit does not hold.",
        "Clip last, just before the step.",
        "",
        {"jax": "Put the clip just before the optimizer in the chain, after what changes the gradients."},
        spoils_norms=True,
    ),
    Kind(
        "GD105",
        "Several clips for one step",
        "Each clip has its own norm: it is not one norm over all gradients, and the direction of the step changes.",
        "Clip all parameters in one call, or write groups if you mean several: gradclip.Group.",
        "",
        {
            "tensorflow": "Give `tf.clip_by_global_norm` all gradients in one list, or write groups: gradclip.Group.",
            "keras": "Use `global_clipnorm=` of the optimizer, or write groups: gradclip.Group.",
            "jax": "Put one `optax.clip_by_global_norm` before the parts, or write groups: gradclip.Group.",
        },
        spoils_norms=True,
    ),
    Kind(
        "GD106",
        "Clipped twice",
        "The same gradients were clipped more than once before one step.",
        "Keep one clip: the smaller limit decides in any case, and a trainer may have a clip of its own.",
        "",
        {
            "paddle": "Keep one clip: that of the loop, or `grad_clip=` of the optimizer.",
            "tensorflow": "Keep one clip: that of the loop, or `clipnorm`, `global_clipnorm`, `clipvalue` of the optimizer.",
            "keras": "Keep one clip: `clipnorm`, `global_clipnorm`, `clipvalue` of the optimizer, or that of the loop.",
            "jax": "Keep one clip in the chain.",
        },
        spoils_norms=True,
    ),
    Kind(
        "GD107",
        "A clip before the last backward()",
        "A later backward pass wrote the gradients again, so the step did not take clipped ones.",
        "Clip after the backward pass and before the optimizer's step; when gradients accumulate, after the last pass.",
        "GM108",
        {"jax": "Clip the sum of the gradients, after the last pass: `optax.MultiSteps` around the chain with the clip does."},
        spoils_norms=True,
    ),
    Kind(
        "GD108",
        "Scaled gradients",
        "The gradients still have the loss scale of mixed precision when they are clipped.",
        "Call `scaler.unscale_(optimizer)` before the clip.",
        "GM107",
        {
            "tensorflow": _LOSS_SCALE,
            "keras": _LOSS_SCALE,
            "jax": "Divide the gradients by the loss scale before the clip.",
        },
        spoils_norms=True,
    ),
    Kind(
        "GD109",
        "The result is ignored",
        "The call returns the clipped gradients, and the code drops them: nothing is clipped.",
        "Take the result, or remove the call.",
        "GM105",
        {
            "torch": "Take the result, or clip in place: `gradclip.clip_`.",
            "paddle": "Take the result, or clip in place: `gradclip.clip_`.",
            "tensorflow": "Take the result, and give it to `apply_gradients`.",
            "keras": "Take the result, and give it to the optimizer.",
            "jax": "Take the result, and give it to `optimizer.update`.",
        },
    ),
    Kind(
        "GD110",
        "A clip after the optimizer",
        "It clips the optimizer's update, not the gradients: those went into its moments unclipped.",
        "Put the clip before the optimizer in the chain.",
        "GM108",
        spoils_norms=True,
    ),
    Kind(
        "GD111",
        "Gradients that are never zeroed",
        "A backward pass adds to the gradients already there, so each step also takes those of all earlier steps.",
        "Remove the gradients once for each step, before its first backward pass.",
        "",
        {
            "torch": "Call `optimizer.zero_grad()` once for each step, before its first backward pass.",
            "paddle": "Call `optimizer.clear_grad()` after each step.",
        },
        spoils_norms=True,
    ),
    Kind(
        "GD112",
        "A step that changes nothing",
        "No parameter of the optimizer had a gradient other than 0 in any step: the model never learns.",
        "Give the optimizer the parameters of the model that is trained, and remove the gradients after the step only.",
        "",
        {
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
    Kind(
        "GD113",
        "Gradients that stay NaN",
        "The step was skipped because a gradient was not finite, and that gradient stayed: every later pass adds to a NaN.",
        "Remove the gradients before each backward pass, also where the step was skipped.",
        "",
        {
            "torch": "Call `optimizer.zero_grad()` before each backward pass, also where the step was skipped.",
            "paddle": "Call `optimizer.clear_grad()` before each backward pass, also where the step was skipped.",
        },
        spoils_norms=True,
    ),
    Kind(
        "GD114",
        "A clip after steps in the backward pass",
        "Hooks stepped the parameters during the backward pass and removed their gradients: after it there is nothing to clip.",
        "Clip in the hook, just before its step. It has one parameter, so one norm over all is not possible there.",
    ),
    Kind(
        "GD201",
        "A norm that is not finite",
        "A gradient has an infinity or a NaN, and the step took it.",
        "Look for the cause in the forward pass: no limit helps.",
        "",
        {
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
    Kind(
        "GD202",
        "An infinite norm of finite gradients",
        "The gradients and their norm are finite; only their squares are infinite in their dtype, and the clip makes them 0.",
        "Use gradclip: its squares neither overflow nor vanish.",
        "",
        _SAFE,
    ),
    Kind(
        "GD203",
        "A wrong norm",
        "The returned norm is far from the exact one, computed in float64: the squares vanish or lose digits in their dtype.",
        "Use gradclip: its squares neither overflow nor vanish.",
        "",
        _SAFE,
    ),
    Kind(
        "GD204",
        "Equal rows counted one by one",
        "A sparse gradient has several rows of one index. The step adds them up, and the norm counted each one.",
        "Add equal rows up before the clip.",
        "",
        {
            "tensorflow": "Use gradclip.clip_by_global_norm, which adds equal rows up, or `tf.convert_to_tensor(grad)` before.",
        },
    ),
    Kind(
        "GD205",
        "A run that diverges, without a clip",
        "The norms left their level and never came back, and nothing clipped them.",
        "Clip after the backward pass and before the optimizer's step.",
        "GM108",
        _LINES,
        needs_norms=True,
    ),
    Kind(
        "GD301",
        "A limit that never clips",
        "The limit is more than 50 times the largest norm: no step was near it.",
        "Choose the limit from the norms.",
        needs_norms=True,
    ),
    Kind(
        "GD302",
        "A limit that always clips",
        "Each step was shortened to less than a tenth: the limit acts as a smaller learning rate, as it does not under Adam.",
        "Choose the limit from the norms, or lower the learning rate.",
        needs_norms=True,
    ),
    Kind(
        "GD303",
        "Processes that disagree",
        "In one step the processes measured different norms, so they scaled their gradients differently.",
        "Clip after the last exchange (outside of no_sync), or sum the norm over the processes: `reduce=`.",
        "",
        {
            "tensorflow": "Clip after the gradients were summed over the replicas, or sum the norm over them: `reduce=`.",
            "keras": "Clip after the gradients were summed over the replicas: `global_clipnorm=` of the optimizer does.",
            "jax": "Clip after `jax.lax.pmean` of the gradients, or sum the norm over the devices: `reduce=`.",
        },
        spoils_norms=True,
    ),
    Kind(
        "GD304",
        "A limit that is no limit",
        "A limit of 0 makes every gradient 0, a negative one flips their signs, and None and NaN are not numbers.",
        "Use a positive limit; infinity only measures. Leave the clip out where it is switched off.",
    ),
)
KINDS: Mapping[str, Kind] = {kind.code: kind for kind in _KINDS}
