"""``python tools/equivalence.py``: write ``docs/equivalence.md``, the conventions compared, and the equivalents of each native.

With ``--check`` it writes nothing, and ends with 1 if the page is not current.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import written

from gradclip.explain import words
from gradclip.explain.call import find
from gradclip.explain.differences import TITLES
from gradclip.explain.equivalents import FRAMEWORKS
from gradclip.natives import DIALECTS, NATIVES, Kind, Native
from gradclip.natives.nearest import nearest
from gradclip.natives.targets import Target, placeholders, targets

PAGE = Path(__file__).parents[1] / "docs" / "equivalence.md"
_HEAD = """\
# Which clip is which

`gradclip explain "tf.clip_by_norm(g, 5.0, axes=[0])"` explains one call with its arguments, and writes it for each framework.
`gradclip explain torch.clip_grad_norm keras.clipnorm` compares two conventions on numbers.
`gradclip explain gradclip.clipped` says what a name of gradclip is.

## The conventions

The table shows what each dialect does with a gradient `g`: its formula, what shares a norm `n`, and the outcome where that norm
is infinite, where it is NaN, and for a limit of 0. *All NaN* means every element that the norm covers; *zeros, NaN*: finite
elements become 0 and infinite ones NaN. [Departures](departures.md) says where gradclip differs from the native."""
_CALLS = """\
## The calls and their equivalents

| mark | meaning |
| --- | --- |
| `=` | the same to the last bit |
| `≈` | the same within rounding |
| `≠` | the nearest: (3) or (4) says what differs |
| — | nothing in the framework comes near: use gradclip with the dialect's rule |
| (1) | for a limit above 0 and below infinity; at 0 and infinity the natives differ |
| (2) | if the lower bound is the negative of the upper one |
| (3) | one of the two adds 1e-6 to the norm, so a clipped norm is up to 1e-6 below the limit |
| (4) | an infinite norm makes every gradient NaN in one of the two; in the other finite elements become 0 |

To use a new name in the same framework, or most names under *gradclip*, you change only the call. Otherwise you also change the
code around it."""
_OLD = """\
### Old names

The last column has the current name in the same framework; its row above has the other frameworks."""
#: what `gradclip explain` says -> the same in a cell
_SHORT = {
    "one norm over all gradients together": "all gradients",
    "each gradient by its own norm": "each gradient",
    "each element separately; there is no norm": "none: each element",
    "finite elements become 0, infinite ones NaN": "zeros, NaN",
    "every element that the norm covers becomes NaN": "all NaN",
    "an infinite element becomes the bound": "the bound",
    "NaN stays NaN, the other elements are clipped": "stays NaN",
    "off: nothing is clipped": "off",
}
#: a field in which the nearest native differs -> the mark that says how
_DIFFERENCES = {"eps": "(3)", "nan_if_infinite": "(4)"}


def markdown() -> str:
    """The complete page."""
    return "\n\n".join([_HEAD, _conventions(), _CALLS, _calls(), ""]).rstrip("\n") + "\n"


def _conventions() -> str:
    """One row for all dialects that do the same."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for dialect in DIALECTS:
        call = find(dialect)
        rule = call.rule
        assert rule is not None
        edges = words.edges(call, rule)
        computed = "<br>".join(f"`{line}`" for line in words.formula(call, rule, "limit"))
        said = words.scope(call, rule), edges["infinity"], edges["NaN"], edges.get("limit 0", "")
        alike.setdefault((computed, *(_SHORT.get(text, text) for text in said)), []).append(f"`{dialect}`")
    rows = (("<br>".join(dialects), *row) for row, dialects in alike.items())
    return _table(("dialect", "computes", "norm", "infinite", "NaN", "limit 0"), rows)


def _calls() -> str:
    head = ("code", "native", "dialect", "gradclip", *TITLES.values())
    clips = [api for api in NATIVES if api.dialect]
    current = [_row(api) for api in clips if api.status == "current"]
    old = [_row(api, api.family) for api in clips if api.status != "current"]
    return f"{_table(head, current)}\n\n{_OLD}\n\n{_table((*head[:4], 'current'), old)}"


def _row(api: Native, *frameworks: str) -> tuple[str, ...]:
    name = f"Optimizer({api.keyword}=)" if api.framework == "keras" else api.names[0].replace("tensorflow.", "tf.", 1)
    native = f"`{name}`" + (" (deprecated)" if api.status == "deprecated" else "")
    cells = [cell(api, framework) for framework in frameworks or FRAMEWORKS]
    return (api.code, native, f"`{api.dialect}`", _in_gradclip(targets(api).get("gradclip")), *cells)


def cell(api: Native, framework: str) -> str:
    """The equivalent of a native in a framework, with its marks."""
    target = targets(api).get(framework)
    if target is not None:
        note = " (1)" * target.ordinary_limit + " (2)" * target.symmetric_bounds
        return f"{'=' if target.exact else '≈'} `{_short(target.name)}`{note}"
    if framework == api.family and api.stays:
        return ""
    match = None if api.does_more or api.kind is Kind.MEASURE else nearest(placeholders(api), framework)
    if match is None or not match.is_near:
        return "—"
    return " ".join([f"≠ `{_short(match.native.names[0])}`", *(_DIFFERENCES[field] for field in sorted(match.fields))])


def _in_gradclip(target: Target | None) -> str:
    if target is None:
        return "—"
    return f"`{(target.wrapper or target.name).removeprefix('gradclip.')}`"


def _short(name: str) -> str:
    """A name as its users write it."""
    bare = name.removeprefix("keras.optimizers.Optimizer(").removesuffix(")") if name.startswith("keras.") else name
    return bare.replace("tensorflow.", "tf.", 1).removeprefix("paddle.nn.").removeprefix("torch.nn.utils.")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


main = partial(written.main, tool="equivalence", make=markdown, path=PAGE)

if __name__ == "__main__":
    sys.exit(main())
