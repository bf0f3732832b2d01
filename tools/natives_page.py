"""``python tools/natives_page.py``: write ``docs/natives.md``, where the natives depart, from the recordings in the vectors.

With ``--check`` it writes nothing, and exits with 1 if the page is not current.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import written
from vectors import xfails
from vectors.flags import DEPARTURE_FLAGS
from vectors.operations import BY_NAME

from gradclip.conformance.checks import CHECKS
from gradclip.conformance.load import Flag, Vector, VectorFile, load_vectors
from gradclip.conformance.report import words
from gradclip.natives.departures import DEPARTURES

PAGE = Path(__file__).parents[1] / "docs" / "natives.md"
LONG = 90  #: characters of a call above which a shorter one is shown if there is one
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
# Where natives go wrong

To see every case of a framework's own functions, run them: `gradclip conformance native:torch --html report.html`. This page
has the counts, and the most telling call of each cause. gradclip gives the exact outcome in each. [Departures](departures.md)
says what the natives do, why gradclip does not, and where it was reported.

*Exact* is the documented formula's result, rounded to the dtype (a norm to at least float32). If no formula covers the call,
it is the outcome that the suite demands. The other vectors need a feature that the function lacks. `limit` stands for the
native's own name (`max_norm`, `clip_norm`, ...). A Keras function without a backend departs on all three.
"""

_OLDER_HEAD = """\
## Older versions

The suite also ran on the natives of PyTorch 2.4.1, TensorFlow 2.16.2, Paddle 3.0.0, optax 0.2.4 with JAX 0.4.35, and Keras
3.4.1 on TensorFlow, PyTorch and JAX. They differ from the versions above only here. The last column says whether the older
outcome is the exact one.
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
    failing = _failing(files)
    for cause in sorted(causes, key=lambda name: (name == _OTHER, -len(causes[name]), name)):
        checks = [name for name in failing if _cause(name) == cause]
        parts.append(_section(cause, causes[cause], flags.get(cause), checks))
    parts += [_properties({name: who for name, who in failing.items() if _cause(name) not in causes}), _older()]
    return "\n".join(part for part in parts if part)


def _overview(files: Sequence[VectorFile], found: Sequence[Departure]) -> str:
    versions = dict(item for file in files for made in file.recorded_with.values() for item in made.items())
    lines = ["## At a glance", "", f"With {', '.join(f'{name} {version}' for name, version in versions.items())}:", ""]
    lines += ["| function | vectors | exact | departs | where |", "| --- | ---: | ---: | ---: | --- |"]
    for file in files:
        for native in file.recorded_with:
            made = [vector.native.get(native, "unclaimed") for vector in file.vectors]
            agree, unclaimed = made.count("agrees"), made.count("unclaimed")
            about = {one.cause for one in found if one.vector.operation == file.operation and native in one.natives}
            where = ", ".join(f"[{cause}](#{cause.lower()})" for cause in sorted(about))
            backend = native.partition("@")[2]
            name = f"[`{file.operation}`]({file.documentation})" + (f" on {backend}" if backend else "")
            lines.append(f"| {name} | {len(made)} | {agree} | {len(made) - agree - unclaimed} | {where} |")
    return "\n".join([*lines, ""])


def _section(cause: str, found: Sequence[Departure], flag: Flag | None, checks: Sequence[str]) -> str:
    """What the flag demands, the checks that natives fail, then the most telling call.

    If it is a departure, the page of the departures says what the natives do, and what that does to a training.
    """
    lines = [f"## {cause}", ""]
    if flag is not None:
        known = {flag.explanation, *(text for departure in DEPARTURES for text in (departure.native, departure.link))}
        does = [text for text in dict.fromkeys(one.does for one in found) if text not in known]
        training = [] if DEPARTURE_FLAGS.get(cause) else [f"In training: {flag.training}"]
        lines += [" ".join([flag.explanation, *does, *training]), ""]
        lines += [f"Upstream: {', '.join(map('<{}>'.format, links))}", ""] if (links := sorted(set(flag.links) - known)) else []
    if checks:
        lines += [f"Checks that fail: {', '.join(map(_code, checks))}.", ""]
    (arguments, exact), shown = _example(found)
    given: dict[str, list[str]] = {}
    for one in shown:
        given.setdefault(_shown(one.made), []).append(_function(one.vector.operation, one.natives))
    lines += [f"For {_code(arguments)} the exact outcome is {exact}. The natives give:", ""]
    lines += [f"- {outcome}: {', '.join(functions)}" for outcome, functions in given.items()]
    return "\n".join([*lines, "", *([f"And {len(found) - len(shown)} more.", ""] if len(found) > len(shown) else [])])


def _example(found: Sequence[Departure]) -> tuple[tuple[str, str], list[Departure]]:
    """The plainest call that shows the most functions: its arguments, its exact outcome, and what each function gives."""
    calls: dict[tuple[str, str], dict[str, Departure]] = {}
    for one in found:
        calls.setdefault((_arguments(one), _exact(one)), {}).setdefault(_function(one.vector.operation, one.natives), one)
    call = min(calls, key=lambda call: (*_oddity(call[0]), -len(calls[call]), len(call[0])))
    return call, list(calls[call].values())


def _oddity(arguments: str) -> tuple[bool, bool]:
    """Whether a call is long; whether its gradients are zeros, infinities or NaN, which show less than ordinary numbers."""
    return len(arguments) > LONG, any(odd in arguments for odd in ("[0, 0]", "[inf", "[nan"))


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


def _failing(files: Sequence[VectorFile]) -> dict[str, dict[str, list[str]]]:
    """The checks that natives fail, in the suite's order -> the function -> the natives."""
    failing: dict[str, dict[str, list[str]]] = {}
    for native in dict.fromkeys(native for file in files for native in file.recorded_with):
        for case in _declared(native):
            operation, _, name = case.partition("/")
            if name in CHECKS:
                failing.setdefault(name, {}).setdefault(operation, []).append(native)
    return {name: failing[name] for name in CHECKS if name in failing}


def _cause(check: str) -> str:
    """The flag with the departure of a check; "" if there is none."""
    return next((flag for flag, departure in DEPARTURE_FLAGS.items() if departure.key == CHECKS[check].departure), "")


def _properties(failing: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """The checks without a section."""
    if not failing:
        return ""
    lines = ["## Other properties", "", "| property | natives that fail |", "| --- | --- |"]
    for name, natives in failing.items():
        who = ", ".join(_function(operation, failed) for operation, failed in natives.items())
        lines.append(f"| `{name}`: {CHECKS[name].description} | {who} |")
    return "\n".join([*lines, ""])


def _older() -> str:
    """What older versions of the natives do."""
    lines = [_OLDER_HEAD, "| function | versions | what it does there | exact |", "| --- | --- | --- | --- |"]
    for one in OLDER:
        operation, on, backend = one.function.partition(" on ")
        cells = f"{_code(operation)}{on}{backend}", one.versions, one.does, "yes" if one.is_exact else "no"
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


main = partial(written.main, tool="natives_page", make=lambda: markdown(load_vectors()), path=PAGE)

if __name__ == "__main__":
    sys.exit(main())
