"""Every mistake of a training step, once: for the linter and for the doctor."""

from __future__ import annotations

from collections.abc import Mapping

from gradclip.rounds.mistake import DOCTOR, LINT, Mistake
from gradclip.rounds.seen_by_a_run import SEEN_BY_A_RUN

__all__ = ["DOCTOR", "LINT", "MISTAKES", "Mistake", "mistake"]

_BOTH = frozenset({LINT, DOCTOR})
_INNER = (
    "Let the inner optimizer clip, which runs after the division: "
    "`LossScaleOptimizer(keras.optimizers.Adam(global_clipnorm={limit}))`."
)

_MISTAKES = (
    Mistake(
        "GM101",
        "An exhausted iterator",
        "The first loop over an iterator consumes it.",
        "Make it a list where it is created: `params = list(...)`.",
        seen_by=_BOTH,
    ),
    Mistake(
        "GM104",
        "A limit meant for something else",
        "Its limit is named after something else: a norm in a clip by value, or the range of a ratio.",
        "Clip by the norm, or rename the limit if you mean each element.",
        "warning",
    ),
    Mistake(
        "GM105",
        "The result is ignored",
        "The call returns the clipped gradients, and the code drops them: nothing is clipped.",
        "Take the result, or remove the call.",
        seen_by=_BOTH,
        ways={
            "torch": "Take the result, or clip in place: `gradclip.clip_`.",
            "paddle": "Take the result, or clip in place: `gradclip.clip_`.",
            "tensorflow": "Take the result, and give it to `apply_gradients`.",
            "keras": "Take the result, and give it to the optimizer.",
            "jax": "Take the result, and give it to `optimizer.update`.",
        },
        was=("GD109",),
    ),
    Mistake(
        "GM106",
        "The norm before the clip",
        "The returned norm is the norm before clipping.",
        "For the norm after it, take min(norm, limit).",
        "warning",
    ),
    Mistake(
        "GM107",
        "Scaled gradients",
        "The gradients still have the loss scale of mixed precision when they are clipped.",
        "Call `scaler.unscale_(optimizer)` before the clip.",
        seen_by=_BOTH,
        ways={"tensorflow": _INNER, "keras": _INNER, "jax": "Divide the gradients by the loss scale before the clip."},
        was=("GD108",),
        spoils_norms=True,
    ),
    Mistake(
        "GM108",
        "Out of order",
        "At this point the clip does nothing, or not what it should.",
        "Clip after the backward pass and before the optimizer's step.",
        seen_by=_BOTH,
        ways={"jax": "Clip the gradients, before the optimizer's update; in a chain, put the clip first."},
        was=("GD107", "GD110"),
        spoils_norms=True,
    ),
    Mistake(
        "GM110",
        "Paddle before 2.0",
        "It changes parameters or optimizers elsewhere in the program; Paddle no longer has anything like it.",
        "Pass the clip to `grad_clip=` of the optimizer.",
    ),
    Mistake(
        "GM113",
        "A copy is clipped, or a gradient scaled up",
        "The optimizer does not take the clipped gradients.",
        "Write the clipped gradients back, or pass them to the optimizer.",
    ),
    Mistake(
        "GM116",
        "A parameter listed twice",
        "A parameter is listed twice: the native counts it twice, gradclip once.",
        "Pass a list without duplicates; `gradclip migrate --allow-semantic-change` writes a clip that counts once.",
    ),
    Mistake(
        "GM118",
        "The wrong parameters",
        "The clip and the optimizer work on different parameters.",
        "Clip exactly the parameters that the optimizer has.",
        seen_by=_BOTH,
        ways={
            "tensorflow": "Clip the gradients of exactly the variables that `apply_gradients` gets.",
            "keras": "Clip the gradients of exactly the variables that the optimizer gets.",
            "jax": "Put the clip before `optax.partition` or `optax.masked`, where it has all gradients.",
        },
        was=("GD103",),
        spoils_norms=True,
    ),
    Mistake(
        "GM119",
        "A clip in each micro-batch",
        "The clip runs in every pass, but the step only after several: it clips partial sums.",
        "Clip once per step, right before it.",
        seen_by=_BOTH,
        ways={"jax": "Put the chain with the clip into `optax.MultiSteps`: it clips the mean of the passes."},
        spoils_norms=True,
    ),
    Mistake(
        "GM120",
        "Clipped twice",
        "The gradients are clipped twice for one step.",
        "Keep one of the two.",
        seen_by=_BOTH,
        ways={
            "paddle": "Keep one clip: that of the loop, or `grad_clip=` of the optimizer.",
            "tensorflow": "Keep one clip: that of the loop, or `clipnorm`, `global_clipnorm`, `clipvalue` of the optimizer.",
            "keras": "Keep one clip: `clipnorm`, `global_clipnorm`, `clipvalue` of the optimizer, or that of the loop.",
            "jax": "Keep one clip in the chain.",
        },
        was=("GD106",),
        spoils_norms=True,
    ),
    Mistake(
        "GM121",
        "A limit that nothing reads",
        "The trainer or the library ignores this limit, or refuses it: nothing is clipped by it.",
        "Set the limit where it is read.",
        seen_by=_BOTH,
    ),
    Mistake(
        "GM122",
        "Before the sum over replicas",
        "Each replica clips its own part of the gradients before they are summed over the replicas.",
        "Reduce first, then clip; if you mean a bound for each replica's part, ignore this.",
        "warning",
    ),
    Mistake(
        "GM123",
        "A gradient that may be None",
        "The function takes one tensor and fails on None, the gradient of a variable that the loss does not use.",
        "Leave None as it is, or clip with tf.clip_by_global_norm, which does.",
        "warning",
    ),
    Mistake(
        "GM124",
        "A norm of one process's shards",
        "The norm is that of the shards that one process holds, so each process scales its shards by a different coefficient.",
        "Clip the DTensors, `clip_grad_norm_(params, limit)`, or sum the squares over the processes before the root.",
    ),
    Mistake(
        "GM125",
        "A limit that clips nothing",
        "Only a limit above 0 clips here; any other counts as no limit.",
        "Write a limit above 0; to clip nothing, leave it out or write None.",
        "warning",
    ),
    Mistake(
        "GM126",
        "A norm for each parameter",
        "Each pass of the loop clips one parameter by its own norm, not all of them by one: the direction changes.",
        "Clip all parameters in one call; if you mean a norm for each, ignore this.",
        "warning",
    ),
    Mistake(
        "GM127",
        "Some processes clip",
        "Only some processes clip before a step that all of them make: their parameters drift apart.",
        "Clip in every process.",
    ),
    Mistake(
        "GM128",
        "Steps without the clip",
        "The clip runs before some steps only: the others, between two clips or after the loop, take unclipped gradients.",
        "Clip right before each step.",
    ),
    Mistake(
        "GM130",
        "A clip outside the closure",
        "The optimizer's step calls the closure, which computes new gradients: the clipped ones are lost.",
        "Clip in the closure, after its backward().",
        seen_by=_BOTH,
        spoils_norms=True,
    ),
    Mistake(
        "GM131",
        "A norm after the clip",
        "It measures the norm after the clip, which is never more than the limit.",
        "Take the norm that the clip returns: it is the norm before clipping.",
        "warning",
    ),
    Mistake(
        "GM132",
        "Gradients that are never zeroed",
        "A backward pass adds to the gradients already there, so each step also takes those of all earlier steps.",
        "Call `optimizer.zero_grad()` once per step, before its first backward pass.",
        seen_by=_BOTH,
        ways={"paddle": "Call `optimizer.clear_grad()` after each step."},
        was=("GD111",),
        spoils_norms=True,
    ),
    Mistake(
        "GM133",
        "Gradients that stay NaN",
        "The step is skipped because a gradient is not finite, and that gradient stays: every later pass adds to a NaN.",
        "Call `optimizer.zero_grad()` before each backward pass, even after a skipped step.",
        seen_by=_BOTH,
        ways={"paddle": "Call `optimizer.clear_grad()` before each backward pass, even after a skipped step."},
        was=("GD113",),
        spoils_norms=True,
    ),
    Mistake(
        "GM134",
        "A limit of 0 for no clip",
        "The setting defaults to 0, and a limit of 0 makes every gradient 0: nothing is learned.",
        "Clip only if the limit is above 0, or make None the default.",
        "warning",
    ),
    Mistake(
        "GM135",
        "Several norms under one limit",
        "Each part of the parameters is clipped by its own norm: it is not one norm over all gradients.",
        "Clip all of them in one call; if you mean one norm per part, write groups: gradclip.Group.",
        "warning",
        seen_by=_BOTH,
        ways={
            "tensorflow": "Give `tf.clip_by_global_norm` all gradients in one list, or write groups: gradclip.Group.",
            "keras": "Use `global_clipnorm=` of the optimizer, or write groups: gradclip.Group.",
            "jax": "Put one `optax.clip_by_global_norm` before the parts (`optax.multi_transform`), or write gradclip.Group.",
        },
        was=("GD105",),
        spoils_norms=True,
    ),
    Mistake(
        "GM136",
        "Only some of the steps clip",
        "Two branches, two stages, or two optimizers of one loss make steps, and only one of them clips.",
        "Clip in both; with a scaler, call `scaler.unscale_(optimizer)` first.",
        "warning",
    ),
    Mistake(
        "GM137",
        "A hook that returns nothing",
        "The hook clips a gradient but returns nothing, so the gradient stays as it is.",
        "Return the clipped gradient.",
    ),
    Mistake(
        "GM138",
        "A norm of the wrong order",
        "The norm is not of the order that it seems: it is always 1, not the norm of all elements, or no norm at all.",
        "For the order inf take the largest of the norms; for the order 2 take the norm of the flat gradient.",
        seen_by=_BOTH,
        ways=dict.fromkeys(
            ("torch", "paddle"), "Name the arguments, `norm_type=2.0`; by hand, take the norm of the flat gradient."
        ),
    ),
    Mistake(
        "GM139",
        "Gradients for the wrong variables",
        "Gradients that are None are left out, but their variables are not: each later gradient goes to the wrong variable.",
        "Leave out the pairs: `[(g, v) for g, v in zip(grads, variables) if g is not None]`.",
    ),
    Mistake(
        "GM140",
        "A wrong factor",
        "The gradients are multiplied by something other than the limit divided by their norm.",
        "Multiply by `min(1, limit / norm)`, where the norm is the root of the sum of squares.",
    ),
    Mistake(
        "GM141",
        "A bound on one side",
        "The gradients are bounded on one side only.",
        "Give both bounds: `clamp_(-limit, limit)`.",
    ),
    Mistake(
        "GM142",
        "Noise on a clipped mean",
        "Noise in proportion to the limit is for private training, but the clip bounds the mean of a batch, not each example.",
        "Clip the gradient of each example before the mean; if privacy is not the goal, ignore this.",
        "warning",
    ),
)
#: by code, in the order of the codes
MISTAKES: Mapping[str, Mistake] = {one.code: one for one in (*_MISTAKES, *SEEN_BY_A_RUN)}
_BEFORE = {code: one for one in MISTAKES.values() for code in one.was}


def mistake(code: str) -> Mistake | None:
    """The mistake with a code, or with one that it had before; None if there is none.

    >>> mistake("GD108") is mistake("GM107")
    True
    """
    return MISTAKES.get(code) or _BEFORE.get(code)
