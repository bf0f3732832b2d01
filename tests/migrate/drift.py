"""Compares the table with an installed framework: names, signatures, and the natives' behaviour in edge cases."""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

from gradclip.explain import explain
from gradclip.natives import BY_CODE, NATIVES

Gradients = list[Any]  # lists of numbers, or None
Run = Callable[[Gradients, float], Gradients]

INF = math.inf
#: behaviour that gradclip and the native share, in the words of ``natively``
SAME = {
    "off: nothing is clipped": "nothing is clipped",
    "a ValueError": "an error",
    "only measures, whatever the gradients hold": "nothing is clipped",
    "nothing changes": "nothing is clipped",
}
NONES = {
    "a parameter without a gradient is left out": "stays",  # the parameter keeps its None
    "a variable without a gradient is left out": "stays",  # the native clip never receives the None
    "a pair without a gradient is left out": "left out",
    "it stays None": "stays",
    "an error: it takes one tensor": "error",
}


def names(*roots: str) -> Iterator[tuple[str, str]]:
    """Return the codes and names of the table in these packages; a name with a keyword loses the keyword."""
    seen = {(api.code, name.partition("(")[0]) for api in NATIVES for name in api.names}
    return (pair for pair in sorted(seen) if pair[1].partition(".")[0] in roots)


def resolved(name: str) -> Any:
    """Return the object with this name; raise AttributeError if the installed framework lacks it."""
    parts = name.split(".")
    found, path = importlib.import_module(parts[0]), parts[0]
    for part in parts[1:]:
        path += f".{part}"
        if hasattr(found, part):
            found = getattr(found, part)
            continue
        try:
            found = importlib.import_module(path)  # a submodule that is not imported yet, or that another name hides
        except ImportError:
            raise AttributeError(path) from None
    return found


def missing(*roots: str) -> set[str]:
    """Return the names that the installed framework lacks."""
    found = set()
    for _, name in names(*roots):
        try:
            resolved(name)
        except AttributeError:
            found.add(name)
    return found


def drifted(*roots: str) -> dict[str, str]:
    """Return the names whose signature differs from the table's."""
    found = {}
    gone = missing(*roots)
    for code, name in names(*roots):
        if name not in gone:
            installed, known = inspect.signature(resolved(name)), BY_CODE[code].signature
            keyword = BY_CODE[code].keyword
            same = _bare(installed, keyword) == _bare(known, keyword) if keyword else _bare(installed) == _bare(known)
            if not same:
                found[name] = f"{installed}, not {known}"
    return found


def _bare(signature: inspect.Signature, only: str = "") -> list[tuple[Any, ...]]:
    """Return names, kinds and defaults; a keyword has no kind here, because it may be positional too."""
    if only:
        parameters = signature.parameters
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        if only not in parameters and takes_any:
            return [(only, None)]
        return [(only, parameters[only].default)]
    return [(p.name, p.kind, p.default) for p in signature.parameters.values()]


# ---- the edges ----------------------------------------------------------------------------------------------------------


def said(code: str) -> dict[str, str]:
    """Return what ``gradclip explain`` says about the native: limits in edge cases, and None."""
    edges = {edge.case: edge.native or SAME.get(edge.does, edge.does) for edge in explain(code).edges}
    edges["None"] = NONES[edges["None"]]
    return {case: does for case, does in edges.items() if case.startswith("limit") or case == "None"}


def done(run: Run, cases: Any) -> dict[str, str]:
    """Run a native in these cases, and describe the results in the same words."""
    does = {"limit 0": zero, "limit inf": infinite, "limit < 0": negative, "None": none}
    return {case: does[case](run) for case in cases}


def zero(run: Run) -> str:
    clipped = tried(run, [[0.0, 0.0], [0.0, 0.0]], 0.0)
    if clipped is None:
        return "an error"
    if is_nan(clipped[0]):
        beside_another = run([[0.0, 0.0], [0.5, 0.0]], 0.0)[0]
        return "zero gradients become NaN" if is_nan(beside_another) else "gradients become NaN if all are zero"
    return {(0.0, 0.0): "zeros", (3.0, 4.0): "nothing is clipped"}[tuple(run([[3.0, 4.0]], 0.0)[0])]


def infinite(run: Run) -> str:
    if is_nan(run([[3.0, 4.0]], INF)[0]):
        return "every gradient becomes NaN"
    clipped = run([[INF, 1.0], [0.5, 0.0]], INF)
    if is_nan(clipped[0]):
        return (
            "every gradient becomes NaN if one is infinite"
            if is_nan(clipped[1])
            else "a gradient that is not finite becomes NaN"
        )
    assert clipped == [[INF, 1.0], [0.5, 0.0]]
    return "nothing is clipped"


def negative(run: Run) -> str:
    clipped = tried(run, [[3.0, 4.0], [0.0, 0.5]], -1.0)
    if clipped is None:
        return "an error"
    if clipped == [[3.0, 4.0], [0.0, 0.5]]:
        return "nothing is clipped"
    if clipped == [[-1.0, -1.0], [-1.0, -1.0]]:
        return "every element becomes the bound"
    if clipped == [[0.0, 0.0], [0.0, 0.0]]:
        return "zero gradients become NaN" if is_nan(run([[0.0, 0.0]], -1.0)[0]) else "counts as 0"
    assert clipped[0][0] < 0 and clipped[0][1] < 0, clipped  # noqa: PT018
    return "the gradients change their sign"


def none(run: Run) -> str:
    clipped = tried(run, [[3.0, 4.0], None], 1.0)
    if clipped is None:
        return "error"
    assert clipped[0] is not None
    assert clipped[0] != [3.0, 4.0]
    return "left out" if len(clipped) == 1 else "stays" if clipped[1] is None else "?"


def tried(run: Run, gradients: Gradients, limit: float) -> Gradients | None:
    """Return the native's result; None for an error."""
    try:
        return run(gradients, limit)
    except Exception:
        return None


def is_nan(gradient: list[float]) -> bool:
    return all(math.isnan(x) for x in gradient)
