"""Every code of the codemod with its title, its reason and what to do about it: of ``docs/migrate-codes.md`` too.

``GM0xx`` is left alone, ``GM1xx`` are traps, ``GM2xx`` names and arguments that cannot be read, ``GM3xx`` other frameworks,
``GM4xx`` clips written by hand, ``GM5xx`` the configuration of trainers. A rewrite has the code of its function in the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gradclip.migrate.apis import APIS

__all__ = ["CODES", "Code", "link", "markdown"]

_PAGE = "docs/migrate-codes.md"


@dataclass(frozen=True, slots=True)
class Code:
    """What a code means."""

    code: str
    title: str
    reason: str  #: one sentence, for a place where nothing closer is known
    advice: str  #: what to do; empty where there is nothing to do


_CODES = (
    Code("GM001", "Current already", "It is the current form already.", ""),
    Code("GM002", "gradclip's own", "It is gradclip's already.", ""),
    Code("GM003", "Switched off", "The clip is switched off here.", ""),
    Code("GM004", "A type, not a clip", "It asks for a type, which gradclip's objects have too.", ""),
    Code("GM005", "A norm that is only measured", "It measures a norm and clips nothing; `--norms` rewrites it too.", ""),
    Code(
        "GM101",
        "An iterator",
        "An iterator is used up by the first walk over it.",
        "Make it a list where it is made: `params = list(...)`.",
    ),
    Code(
        "GM102",
        "One clip for each pass of a loop",
        "Each pass of the loop clips by a norm of its own, not by one over all gradients.",
        "Write the rule for each of them, or one for all if that is what was meant.",
    ),
    Code(
        "GM103",
        "Keras's clipnorm",
        "What `clipnorm` means depends on the version: one norm over all gradients in Keras up to 2.3.1, one for each since.",
        "Say which is meant: `gradclip.dialects.keras.global_clipnorm` for all, `clipnorm` for each.",
    ),
    Code(
        "GM104",
        "A clip by value is fed a norm",
        "It clips each element, but its limit is called a norm.",
        "Clip by the norm, or rename the limit if each element is meant.",
    ),
    Code(
        "GM105",
        "The result is ignored",
        "The call returns what it clips, and nothing takes it: nothing is clipped.",
        "Take the result, or remove the call.",
    ),
    Code(
        "GM106",
        "The norm before the clip",
        "The norm that is returned is the one before clipping.",
        "For the norm after it, take min(norm, limit).",
    ),
    Code(
        "GM107",
        "Scaled gradients",
        "The gradients still have the loss scale of mixed precision when they are clipped.",
        "Call `scaler.unscale_(optimizer)` before the clip.",
    ),
    Code(
        "GM108",
        "Out of order",
        "The clip comes at a moment at which it does nothing, or something else.",
        "Clip after the gradients are there and before the optimizer takes them.",
    ),
    Code(
        "GM109",
        "A wrapper with a clip of its own",
        "The library that wraps the model or the optimizer has a clip of its own, which knows of its shards and scales.",
        "Keep the wrapper's clip.",
    ),
    Code(
        "GM110",
        "Paddle before 2.0",
        "It changes what parameters or optimizers elsewhere do, in a way that today's Paddle has not.",
        "Hand the clip to `grad_clip=` of the optimizer.",
    ),
    Code(
        "GM111",
        "Sparse gradients and None",
        "Gradients can be sparse here, and the native counts the duplicate rows of one apart, where gradclip merges them.",
        "gradclip's norm is that of the gradient itself: change the call if that is what you want.",
    ),
    Code("GM112", "Looks alike", "It clips something that is no gradient of a parameter.", ""),
    Code(
        "GM113",
        "A copy is clipped, or a gradient scaled up",
        "What is clipped is not what the optimizer takes.",
        "Write the clipped gradients back, or hand them on.",
    ),
    Code(
        "GM114",
        "An argument or a limit without counterpart",
        "An argument, or the value of one, has no counterpart.",
        "Decide what is meant, and write it.",
    ),
    Code(
        "GM115",
        "The optimizer's state",
        "A replacement here could change the shape of the optimizer's state, which checkpoints have.",
        "Replace it by hand, and keep the names of the hyperparameters.",
    ),
    Code(
        "GM116",
        "A parameter listed twice",
        "A parameter is joined with itself: it counts twice natively, and once in gradclip.",
        "Pass one list without duplicates; if once is meant, `--allow-semantic-change` rewrites it.",
    ),
    Code(
        "GM117",
        "A framework that is no more",
        "The file is written for TensorFlow 1 or paddle.fluid, which cannot run beside gradclip.",
        "Migrate the file to the framework's current version first: `gradclip migrate --to tensorflow`, or `--to paddle`.",
    ),
    Code(
        "GM201",
        "A name with several meanings",
        "The name can stand for more than one thing here.",
        "Give the function a name that only one import binds.",
    ),
    Code("GM202", "A star import", "A star import may bind this name.", "Import the function by its name."),
    Code(
        "GM203",
        "Starred arguments",
        "It is called with * or **, so that its arguments cannot be read here.",
        "Write the arguments out.",
    ),
    Code(
        "GM204",
        "Arguments that do not fit",
        "Its arguments do not fit the function.",
        "Look at the call: it is an error, or of a version that the table does not know.",
    ),
    Code(
        "GM205",
        "A function as a value",
        "The function is handed on, so that the arguments of its calls cannot be read here.",
        "gradclip's takes the same arguments: hand that on instead.",
    ),
    Code(
        "GM206",
        "Called by another name",
        "It is called by a name that was assigned.",
        "Change the assignment.",
    ),
    Code("GM207", "The project's own", "It is a function of the project, which is migrated where it is defined.", ""),
    Code(
        "GM208",
        "A method",
        "It is a method of an object whose class cannot be seen here.",
        "If the method is the project's own, nothing is to be done here.",
    ),
    Code("GM209", "A name from nowhere", "Nothing in this source binds the name.", "Import the function by its name."),
    Code(
        "GM210",
        "A function named in a string",
        "The function is looked up by its name in a string.",
        "Name it in code, or change the string.",
    ),
    Code(
        "GM211",
        "An unknown function",
        "It is a clip of a library that the table does not know.",
        "Look at what it computes; `gradclip explain` says what gradclip's do.",
    ),
    Code(
        "GM212",
        "In a magic",
        "It stands in a notebook's magic, or in a cell of another language, which is not read.",
        "Look at it, or move it into a cell of Python.",
    ),
    Code(
        "GM301",
        "Gradients are values there",
        "It clips the gradients that parameters hold; the other framework hands gradients on as values.",
        "Clip them where they are computed.",
    ),
    Code(
        "GM302",
        "Another place to clip",
        "Its optimizers clip in another place.",
        "Write the clip in that place.",
    ),
    Code("GM303", "No counterpart", "It has no counterpart that could take its place call for call.", "Write it by hand."),
    Code(
        "GM401",
        "A clip by value, by hand",
        "Each element of a gradient is clipped with a general function.",
        "gradclip has it as a rule.",
    ),
    Code(
        "GM402",
        "A clip by norm, by hand",
        "A limit is divided by a norm: this is a clip by norm that is written out.",
        "gradclip has it, without its overflows and NaN.",
    ),
    Code(
        "GM501",
        "Lightning clips",
        "Lightning's trainer clips, by this value.",
        "Keep it, or override `configure_gradient_clipping` with gradclip.",
    ),
    Code(
        "GM502",
        "A trainer clips",
        "A trainer clips by one norm over all gradients, by this value.",
        "Keep it: the trainer calls the framework's own clip.",
    ),
    Code(
        "GM503",
        "DeepSpeed clips",
        "DeepSpeed's engine clips, by this value of its configuration.",
        "Keep it: the engine knows its partitions.",
    ),
    Code(
        "GM504",
        "A configuration clips",
        "A training configuration clips, by these values.",
        "Keep it: its runner calls the framework's own clip.",
    ),
    Code(
        "GM505",
        "Another library clips",
        "Another library clips, by a function, a class or a keyword of its own.",
        "Keep it, or clip with gradclip where the gradients are ready.",
    ),
)
CODES: Mapping[str, Code] = {code.code: code for code in _CODES}


def link(code: str) -> str:
    """Where the documentation says more."""
    return f"{_PAGE}#{code.lower()}"


def markdown() -> str:
    """The page of the codes."""
    lines = [
        "# The codes of `gradclip migrate`",
        "",
        "Every place that clips gradients, or looks like it, ends as rewritten, manual or unchanged, with one of these codes.",
        "`--select` and `--ignore` take codes and beginnings of codes. To ignore the code of a trap (`GM1xx`) is to accept it:",
        "the call is rewritten all the same.",
        "",
    ]
    for code in _CODES:
        lines += [f"## {code.code}", "", f"**{code.title}.** {code.reason}", ""]
        lines += [f"What to do: {code.advice}", ""] if code.advice else []
    lines += ["## Functions", "", "A rewrite has the code of the function that it was a call of.", ""]
    lines += ["| Code | Function | |", "| --- | --- | --- |"]
    lines += [f'| <a id="{api.code.lower()}"></a>{api.code} | `{api.names[0]}` | {api.note} |' for api in APIS]
    return "\n".join(lines) + "\n"
