"""Every code with its title, reason and advice: those of a migration, and the mistakes of ``gradclip.rounds``.

``tools/migrate_codes.py`` writes ``docs/migrate-codes.md`` from it.

``GM0xx`` needs no change, ``GM1xx`` are traps, ``GM2xx`` unreadable names and arguments, ``GM3xx`` other frameworks, ``GM4xx``
handwritten clips, ``GM5xx`` trainers' configurations. A rewritten call has the code of its function in the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gradclip.natives import NATIVES
from gradclip.rounds.table import LINT, MISTAKES
from gradclip.source.model import Options

__all__ = ["CODES", "RULES", "Code", "listed", "wanted"]

_PAGES = Path(__file__).with_name("pages")  #: docs/lint: a link in a clone, mapped by pyproject.toml in a wheel


@dataclass(frozen=True, slots=True)
class Code:
    """The meaning of a code."""

    code: str
    title: str
    reason: str  #: one sentence; a place may have a more specific one
    advice: str  #: what the user should do; empty if nothing
    severity: str = ""  #: a rule of the linter: "error" (training goes wrong) or "warning" (it probably does); else ""

    def page(self) -> str:
        """The text of the linter's page of a mistake, with a wrong program and its change; "" if there is none."""
        file = _PAGES / f"{self.code}.md"
        return file.read_text(encoding="utf-8") if self.severity and file.is_file() else ""


_CODES = (
    Code("GM001", "Current already", "It is the current form already.", ""),
    Code("GM002", "gradclip's own", "It is gradclip's already.", ""),
    Code("GM003", "Switched off", "The clip is switched off here.", ""),
    Code("GM004", "A type, not a clip", "It tests a type that gradclip's objects have too.", ""),
    Code("GM005", "A norm that is only measured", "It measures a norm and clips nothing; `--norms` rewrites it too.", ""),
    Code(
        "GM102",
        "One clip for each pass of a loop",
        "Each pass of the loop clips by its own norm, not by one norm over all gradients.",
        "Write a rule with a norm for each gradient, or with one norm over all if you mean that.",
    ),
    Code(
        "GM103",
        "Keras's clipnorm",
        "`clipnorm` depends on the version: it meant one norm over all gradients up to Keras 2.3.1, and one for each since.",
        "Choose one: `gradclip.dialects.keras.global_clipnorm` for all, `clipnorm` for each.",
    ),
    Code(
        "GM109",
        "A wrapper with a clip of its own",
        "The library that wraps the model or the optimizer has a clip of its own, which knows its shards and scales.",
        "Keep the wrapper's clip.",
    ),
    Code(
        "GM111",
        "Sparse gradients and None",
        "Gradients can be sparse here. The native counts duplicate rows separately; gradclip merges them.",
        "gradclip takes the norm of the merged gradient: change the call if you want that.",
    ),
    Code("GM112", "Looks alike", "It clips something other than a parameter's gradient.", ""),
    Code(
        "GM114",
        "An argument or a limit without counterpart",
        "An argument or its value has no counterpart.",
        "Decide what you mean, and write it.",
    ),
    Code(
        "GM115",
        "The optimizer's state",
        "A replacement could change the shape of the optimizer's state, and checkpoints would not load.",
        "Replace it by hand, and keep the names of the hyperparameters.",
    ),
    Code(
        "GM117",
        "A removed framework",
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
        "It is called with * or **, so its arguments cannot be read here.",
        "Write the arguments out.",
    ),
    Code(
        "GM204",
        "Arguments that do not fit",
        "Its arguments do not fit the function.",
        "Look at the call: it is an error, or it needs a version that the table does not know.",
    ),
    Code(
        "GM205",
        "A function as a value",
        "The function is passed as a value, so the arguments of its calls cannot be read here.",
        "gradclip's function takes the same arguments: pass that instead.",
    ),
    Code(
        "GM206",
        "Called by another name",
        "An assignment gave the function this name.",
        "Change the assignment.",
    ),
    Code("GM207", "The project's own", "It is a function of the project; the command migrates its definition.", ""),
    Code(
        "GM208",
        "A method",
        "It is a method of an object whose class cannot be seen here.",
        "If the method is the project's own, you need do nothing.",
    ),
    Code("GM209", "An unbound name", "Nothing in this source binds the name.", "Import the function by its name."),
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
        "It is in a notebook's magic or in a cell of another language, which the command does not read.",
        "Look at it, or move it into a cell of Python.",
    ),
    Code(
        "GM301",
        "Gradients are values there",
        "It clips the gradients that parameters hold; the other framework passes gradients as values.",
        "Clip them where they are computed.",
    ),
    Code(
        "GM302",
        "Another place to clip",
        "Its optimizers clip in another place.",
        "Write the clip in that place.",
    ),
    Code("GM303", "No counterpart", "No single call can replace it.", "Write it by hand."),
    Code(
        "GM304",
        "No native equivalent",
        "The framework of `--to` has no function of this meaning, and `--strict` leaves such a call.",
        "Without `--strict` the call becomes gradclip's, which means the same on that framework's tensors.",
    ),
    Code(
        "GM401",
        "A clip by value, by hand",
        "Each element of a gradient is clipped with a general function.",
        "gradclip has a rule for it.",
    ),
    Code(
        "GM402",
        "A clip by norm, by hand",
        "A limit is divided by a norm: this is a clip by norm, written out.",
        "gradclip has this clip, without the overflows and NaN of a handwritten one.",
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
#: the mistakes that the linter reports
RULES: Mapping[str, Code] = {
    one.code: Code(one.code, one.title, one.reason, one.advice, one.severity)
    for one in MISTAKES.values()
    if LINT in one.seen_by
}
CODES: Mapping[str, Code] = {**{code.code: code for code in _CODES}, **RULES}


def listed(prefix: str) -> Mapping[str, str]:
    """The codes that begin with a prefix, with their titles: those of places and those of functions."""
    titles = {**{code.code: code.title for code in CODES.values()}, **{api.code: api.names[0] for api in NATIVES}}
    return {code: title for code, title in sorted(titles.items()) if code.startswith(prefix)}


def wanted(options: Options, *codes: str) -> bool:
    """Whether the user selected a place with these codes: any of them, and ignored none."""
    chosen = not options.select or any(code.startswith(tuple(options.select)) for code in codes)
    return chosen and not any(code.startswith(tuple(options.ignore)) for code in codes)
