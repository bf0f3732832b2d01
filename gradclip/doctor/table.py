"""Every finding of the doctor: its title, its reason, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["KINDS", "Kind"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding."""

    code: str
    title: str
    reason: str
    advice: str
    lint: str = ""  #: the linter's code for the same mistake: its page shows a wrong and a right program


_KINDS = (
    Kind(
        "GD101",
        "A step without a clip",
        "The optimizer took gradients that nothing clipped.",
        "Clip after the backward pass and before the optimizer's step.",
        "GM108",
    ),
    Kind(
        "GD102",
        "A clip without gradients",
        "Nothing was clipped: no parameter of the call had a gradient.",
        "Clip after backward(), and pass a list: `params = list(model.parameters())`.",
        "GM101",
    ),
    Kind(
        "GD103",
        "Other parameters stepped than clipped",
        "The clip and the optimizer have different parameters.",
        "Clip the optimizer's own parameters: all of them, and no others.",
    ),
    Kind(
        "GD104",
        "Gradients written after the clip",
        "Between the clip and the step something else wrote the gradients, so the limit does not hold.",
        "Clip last, just before the step.",
    ),
    Kind(
        "GD105",
        "Several clips for one step",
        "Each clip has its own norm: it is not one norm over all gradients, and the direction of the step changes.",
        "Clip all parameters in one call, or write groups if you mean several: gradclip.Group.",
    ),
    Kind(
        "GD106",
        "Clipped twice",
        "The same gradients were clipped more than once before one step.",
        "Keep one clip: the smaller limit decides in any case, and a trainer may have a clip of its own.",
    ),
    Kind(
        "GD107",
        "A clip before the last backward()",
        "A later backward pass wrote the gradients again, so the step did not take clipped ones.",
        "Clip after the backward pass and before the optimizer's step; when gradients accumulate, after the last pass.",
        "GM108",
    ),
    Kind(
        "GD108",
        "Scaled gradients",
        "The gradients still have the loss scale of mixed precision when they are clipped.",
        "Call `scaler.unscale_(optimizer)` before the clip.",
        "GM107",
    ),
    Kind(
        "GD109",
        "The result is ignored",
        "The call returns the clipped gradients, and the code drops them: nothing is clipped.",
        "Take the result, or remove the call.",
        "GM105",
    ),
    Kind(
        "GD110",
        "A clip after the optimizer",
        "It clips the optimizer's update, not the gradients: these went into its moments as they were.",
        "Put the clip before the optimizer in the chain.",
        "GM108",
    ),
    Kind(
        "GD201",
        "A norm that is not finite",
        "A gradient has an infinity or a NaN, and the step took it.",
        "Look for its cause in the forward pass; error_if_nonfinite=True stops at the first one. No limit helps.",
    ),
    Kind(
        "GD202",
        "An infinite norm of finite gradients",
        "The gradients are finite, and so is their norm; it is infinite only in their narrow dtype, and the clip makes them 0.",
        "Compute the norm in float32 at least: gradclip.clip_grad_norm_ does.",
    ),
    Kind(
        "GD203",
        "A wrong norm",
        "The returned norm is far from the exact one, computed in float64.",
        "Compute the norm in float32 at least, over all parameters: gradclip.clip_grad_norm_ does.",
    ),
    Kind(
        "GD301",
        "A limit that never clips",
        "The limit is more than 50 times the largest norm: no step was near it.",
        "Choose the limit from the norms.",
    ),
    Kind(
        "GD302",
        "A limit that always clips",
        "Each step was shortened to less than a tenth: the limit acts as a smaller learning rate.",
        "Choose the limit from the norms, or lower the learning rate.",
    ),
    Kind(
        "GD303",
        "Processes that disagree",
        "In one step the processes measured different norms, so they scaled their gradients differently.",
        "Clip after the last exchange (outside of no_sync), or sum the norm over the processes: `reduce=`.",
    ),
    Kind(
        "GD304",
        "A limit that is no limit",
        "A limit of 0 makes every gradient 0, a negative one turns them round, None and NaN are no numbers.",
        "Use a positive limit; infinity only measures. Leave the clip out where it is switched off.",
    ),
)
KINDS: Mapping[str, Kind] = {kind.code: kind for kind in _KINDS}
