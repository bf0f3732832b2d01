"""``python tools/natives.py``: write ``docs/natives.md``, where the natives depart, from the recordings in the vectors.

With ``--check`` it writes nothing, and exits with 1 if the page is not current.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import written
from vectors import xfails
from vectors.operations import BY_NAME

from gradclip.conformance.checks import CHECKS
from gradclip.conformance.load import Flag, Vector, VectorFile, load_vectors
from gradclip.conformance.report import words

PAGE = Path(__file__).parents[1] / "docs" / "natives.md"
EXAMPLES = 2  #: calls shown for each native function and cause, the shortest first; the page counts the others
_AGREES = ("agrees", "unclaimed")

_OTHER = "Other"  #: the cause if no flag fits


@dataclass(frozen=True)
class Older:
    """What a native does in older versions, as ``gradclip conformance native:...`` found it there."""

    function: str
    versions: str
    does: str
    vectors: tuple[str, ...]
    is_exact: bool = False  #: whether the older versions are exact there, and the newest is not


_OPTAX = "optax.adaptive_grad_clip"
_UNCLIPPED = ("limit-int-above", "unclipped-float16", "unclipped-float32", "unclipped-float64")
_WITH_AXES = ("unit-axis", "unit-axis-both", "unit-axis-negative", "unit-rank-6-axis")
OLDER = (
    Older(_OPTAX, "optax before 0.2.6", "It has no `axis`.", _WITH_AXES),
    Older(_OPTAX, "optax before 0.2.7", "A parameter with five axes is an error.", ("unit-rank-5",)),
    Older(
        "keras.clipnorm on jax", "JAX before 0.10", "It returns gradients below the limit unchanged.", _UNCLIPPED, is_exact=True
    ),
    Older("keras.clipnorm on torch", "Keras before 3.14", "A limit beyond 32 bits (an int) is an error.", ("limit-int-large",)),
    Older("keras.clipnorm on torch", "Keras before 3.12", "It clips several dtypes at once.", ("four-dtypes",), is_exact=True),
    Older(
        "keras.global_clipnorm on torch",
        "Keras before 3.12",
        "It computes float64 in float64.",
        ("F1-float64", "four-dtypes"),
        is_exact=True,
    ),
    Older(
        "keras.global_clipnorm on tensorflow",
        "NumPy before 2",
        "A limit that is a NumPy float32 is an error.",
        ("limit-numpy-float32",),
    ),
)

_HEAD = """\
# Where the natives depart

The conformance suite runs each framework's own clipping functions on its vectors. This page shows the calls whose outcome is
not the exact one, and what the native gives there. The exact outcome is the documented formula's result, rounded to the dtype
(a norm to at least float32). If no formula covers the call, it is the outcome that the suite demands. gradclip gives the exact
outcome on every backend.

`python tools/natives.py` writes this page from the vector files, and a test keeps it current. To run a native again and see
every case: `gradclip conformance native:torch --html report.html`.

In the tables `limit` stands for the native's own name of the limit (`max_norm`, `clip_norm`, `clipnorm`, ...). Each table shows
at most two calls of a function. A Keras function without a backend departs on all three.
"""

_OLDER_HEAD = """\
## Older versions

The suite also ran on the natives of PyTorch 2.4.1, TensorFlow 2.16.2, Paddle 3.0.0, optax 0.2.4 with JAX 0.4.35, and Keras
3.4.1 on TensorFlow, PyTorch and JAX. They differ from the versions above in these vectors only. The column "exact" says whether
the older outcome is the exact one. gradclip's outcome is the exact one in each.
"""


@dataclass(frozen=True)
class Departure:
    """A vector on which some natives give another outcome."""

    vector: Vector
    natives: tuple[str, ...]  #: the natives with this outcome
    made: Mapping[str, Any]
    cause: str  #: a flag
    does: str  #: what the natives do, in words


def departures(files: Sequence[VectorFile]) -> Iterator[Departure]:
    """Every recorded outcome that is not expected; natives with the same outcome share one entry."""
    declared = {native: _declared(native) for file in files for native in file.recorded_with}
    for file in files:
        for vector in file.vectors:
            alike: dict[str, list[str]] = {}
            for native, made in vector.native.items():
                if made not in _AGREES:
                    alike.setdefault(words.outcome(made), []).append(native)
            for natives in alike.values():
                cause, _, does = declared[natives[0]][vector.id].partition(": ")
                about = (cause, does) if cause in file.flags else (_OTHER, "")
                yield Departure(vector, tuple(natives), vector.native[natives[0]], *about)


def _declared(native: str) -> dict[str, str]:
    """Case -> why the native fails it."""
    return xfails.stored(native).get(xfails.pattern_of(native), {})


def markdown(files: Sequence[VectorFile]) -> str:
    """The page."""
    found = list(departures(files))
    causes: dict[str, list[Departure]] = {}
    for departure in found:
        causes.setdefault(departure.cause, []).append(departure)
    parts = [_HEAD, _overview(files, found)]
    flags = {name: flag for file in files for name, flag in file.flags.items()}
    for cause in sorted(causes, key=lambda name: (name == _OTHER, -len(causes[name]), name)):
        parts.append(_section(cause, causes[cause], flags.get(cause)))
    parts += [_properties(files), _older()]
    return "\n".join(part for part in parts if part)


def _overview(files: Sequence[VectorFile], found: Sequence[Departure]) -> str:
    lines = ["## At a glance", "", "| function | versions | vectors | exact | departs | not claimed | where |"]
    lines.append("| --- | --- | ---: | ---: | ---: | ---: | --- |")
    for file in files:
        for native, versions in file.recorded_with.items():
            made = [vector.native.get(native, "unclaimed") for vector in file.vectors]
            agree, unclaimed = made.count("agrees"), made.count("unclaimed")
            about = [one.cause for one in found if one.vector.operation == file.operation and native in one.natives]
            where = ", ".join(f"[{cause}](#{cause.lower()}) {about.count(cause)}" for cause in sorted(set(about)))
            recorded = ", ".join(f"{name} {version}" for name, version in versions.items())
            counts = f"{len(made)} | {agree} | {len(made) - agree - unclaimed} | {unclaimed}"
            lines.append(f"| [`{file.operation}`]({file.documentation}) | {recorded} | {counts} | {where} |")
    return "\n".join([*lines, ""])


def _section(cause: str, found: Sequence[Departure], flag: Flag | None) -> str:
    """The flag's explanation, then calls of each native function."""
    lines = [f"## {cause}", ""]
    if flag is not None:
        does = [text for text in dict.fromkeys(one.does for one in found) if text != flag.explanation]
        lines += [f"- The natives: {text}" for text in does]
        lines += [f"- Expected: {flag.explanation}", f"- In training: {flag.training}"]
        lines += [f"- Upstream: {', '.join(f'<{link}>' for link in flag.links)}"] if flag.links else []
        lines.append("")
    lines += ["| gradients and arguments | exact | the natives give |", "| --- | --- | --- |"]
    shown = _examples(found)
    rows: dict[tuple[str, str], dict[str, list[str]]] = {}
    for one in shown:
        rows.setdefault((_arguments(one), _exact(one)), {}).setdefault(_shown(one.made), []).append(
            _function(one.vector.operation, one.natives)
        )
    for (arguments, exact), given in rows.items():
        outcomes = "; ".join(f"{outcome}: {', '.join(functions)}" for outcome, functions in given.items())
        lines.append(f"| {_code(arguments)} | {exact} | {outcomes} |")
    return "\n".join([*lines, "", *([f"And {len(found) - len(shown)} more.", ""] if len(found) > len(shown) else [])])


def _examples(found: Sequence[Departure]) -> list[Departure]:
    """The shortest calls of each function, each once, as stable as the files' own order."""
    groups: dict[tuple[str, tuple[str, ...]], dict[str, Departure]] = {}
    for one in found:
        groups.setdefault((one.vector.operation, one.natives), {}).setdefault(_arguments(one), one)
    return [one for group in groups.values() for one in sorted(group.values(), key=lambda one: len(_arguments(one)))[:EXAMPLES]]


def _arguments(one: Departure) -> str:
    """The call without the names of the function and of its limit, which differ between the natives."""
    text = words.call("", one.vector.json).removeprefix("(").removesuffix(")")
    name = BY_NAME[one.vector.operation].limit
    return text.replace(f", {name}=", ", limit=") if name else text


def _function(operation: str, natives: Sequence[str]) -> str:
    """The function, with Keras's backends if it does not depart on all three."""
    on = [backend for native in natives if (backend := native.partition("@")[2])]
    return f"`{operation}`" + (f" on {' and '.join(on)}" if 0 < len(on) < 3 else "")


def _exact(one: Departure) -> str:
    """The expected outcome, without the norm if the native reports none."""
    silent = "gradients" in one.made and one.made["norm"] is None
    outcomes = [{**outcome, "norm": None} if silent else outcome for outcome in one.vector.json["expected"]]
    return " or ".join(_shown(outcome) for outcome in outcomes)


def _shown(outcome: Mapping[str, Any]) -> str:
    text = words.outcome(outcome)
    return text if "error" in outcome else _code(text)


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _properties(files: Sequence[VectorFile]) -> str:
    """The properties that natives lack."""
    natives = dict.fromkeys(native for file in files for native in file.recorded_with)
    failing: dict[str, dict[str, list[str]]] = {}
    for native in natives:
        for case in _declared(native):
            operation, _, name = case.partition("/")
            if name in CHECKS:
                failing.setdefault(name, {}).setdefault(operation, []).append(native)
    if not failing:
        return ""
    lines = ["## Properties", "", "A property must hold for any numbers. These natives fail the suite's check of it.", ""]
    lines += ["| property | in training | natives that fail |", "| --- | --- | --- |"]
    for name, check in CHECKS.items():
        if name in failing:
            who = ", ".join(_function(operation, failed) for operation, failed in failing[name].items())
            lines.append(f"| `{name}`: {check.description} | {check.training} | {who} |")
    return "\n".join([*lines, ""])


def _older() -> str:
    """What older versions of the natives do."""
    lines = [_OLDER_HEAD, "| function | versions | what it does there | exact | vectors |", "| --- | --- | --- | --- | --- |"]
    for one in OLDER:
        operation, on, backend = one.function.partition(" on ")
        cells = f"{_code(operation)}{on}{backend}", one.versions, one.does, "yes" if one.is_exact else "no"
        lines.append(f"| {' | '.join(cells)} | {', '.join(map(_code, one.vectors))} |")
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or compare it; return the exit code."""
    return written.main("natives", lambda: markdown(load_vectors()), PAGE, arguments)


if __name__ == "__main__":
    sys.exit(main())
