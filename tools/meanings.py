"""``python tools/meanings.py``: draw ``docs/pictures/meanings.svg``, two gradients under four clips with the same limit.

The clips are gradclip's own; the names are those of the natives with such a rule. With ``--check`` it writes nothing, and ends
with 1 if the drawing is not current.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import written

import gradclip
from gradclip.core.rule import Scope
from gradclip.natives import NATIVES

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "meanings.svg"
GRADS = {"a": (2.4, 1.0), "b": (-0.3, 0.9)}
LIMIT = 1.0
#: the scope of a rule, and whether its norm is a mean -> the title of its panel
TITLES = {
    (Scope.GLOBAL, False): "one norm over all",
    (Scope.TENSOR, False): "a norm for each",
    (Scope.VALUE, False): "each element",
    (Scope.TENSOR, True): "a root mean square for each",
}
_WIDTH, _HEIGHT, _UNIT = 300, 250, 72  #: of a panel, and of the number 1, in pixels
_STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #1f2328 } .title { font-weight: 600; font-size: 15px } .note { fill: #59636e }
.page { fill: #ffffff } .axis { stroke: #d1d9e0 } .limit { fill: none; stroke: #818b98; stroke-dasharray: 4 4 }
.was { stroke: #b7bfc8; stroke-width: 2 } .a { stroke: #0969da; stroke-width: 4 } .b { stroke: #bc4c00; stroke-width: 4 }
line { stroke-linecap: round } .a-text { fill: #0969da } .b-text { fill: #bc4c00 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .note { fill: #9198a1 } .page { fill: #0d1117 } .axis { stroke: #2f3742 }
  .limit { stroke: #656c76 } .was { stroke: #4b535d } .a { stroke: #4493f8 } .b { stroke: #f0883e }
  .a-text { fill: #4493f8 } .b-text { fill: #f0883e }
}"""


def drawing() -> str:
    """The whole picture."""
    clips = [(title, *_clip(*meaning)) for meaning, title in TITLES.items()]
    panels = [line for k, clip in enumerate(clips) for line in _panel(*clip, k % 2, k // 2)]
    width, height = 2 * _WIDTH, 2 * _HEIGHT
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    title = f"<title>Two gradients under four clips with the limit {LIMIT:g}</title>"
    page = f'<rect class="page" width="{width}" height="{height}"/>'
    return "\n".join([head, title, f"<style>\n{_STYLE}\n</style>", page, *panels, "</svg>", ""])


def _clip(scope: Scope, mean: bool) -> tuple[gradclip.Rule, list[str]]:
    """The rule, and the names of the natives that have such a one, in lines."""
    rules = [(native, native.rule(LIMIT)) for native in NATIVES if native.is_own]
    alike = [(native, rule) for native, rule in rules if (rule.scope, rule.mean, rule.order) == (scope, mean, 2)]
    names = dict.fromkeys(native.last + "=" * bool(native.keyword) for native, _ in alike)
    return alike[0][1], textwrap.wrap(", ".join(names), 38, max_lines=2)


def _panel(title: str, rule: gradclip.Rule, names: Sequence[str], column: int, row: int) -> Iterator[str]:
    """One clip: the gradients before it, the limit, and the gradients after it."""
    left, top = column * _WIDTH, row * _HEIGHT
    x0, y0 = left + 100, top + 190
    yield f'<text class="title" x="{left + 16}" y="{top + 26}">{title}</text>'
    for k, line in enumerate(names):
        yield f'<text class="note" x="{left + 16}" y="{top + 46 + 18 * k}">{line}</text>'
    yield f'<line class="axis" x1="{left + 16}" y1="{y0}" x2="{left + _WIDTH - 16}" y2="{y0}"/>'
    yield f'<line class="axis" x1="{x0}" y1="{y0 + 16}" x2="{x0}" y2="{top + 78}"/>'
    inside = f'<rect x="{left + 10}" y="{top + 76}" width="{_WIDTH - 20}" height="{y0 - top - 60}"/>'
    yield f'<clipPath id="panel-{column}-{row}">{inside}</clipPath>'
    yield f'<g clip-path="url(#panel-{column}-{row})">{_limit(title, x0, y0)}</g>'
    clipped = gradclip.clip({name: np.array(x) for name, x in GRADS.items()}, rule).grads
    for name, was in GRADS.items():
        for kind, (x, y) in (("was", was), (name, clipped[name])):
            yield f'<line class="{kind}" x1="{x0}" y1="{y0}" x2="{x0 + _UNIT * x:.1f}" y2="{y0 - _UNIT * y:.1f}"/>'
    for k, (name, (x, y)) in enumerate(clipped.items()):
        told = f"{name} = ({x:.2f}, {y:.2f})"
        yield f'<text class="{name}-text" x="{left + 16 + 140 * k}" y="{top + _HEIGHT - 22}">{told}</text>'


def _limit(title: str, x0: int, y0: int) -> str:
    """The line on which a single gradient reaches the limit."""
    if title == "each element":
        return f'<rect class="limit" x="{x0 - _UNIT}" y="{y0 - _UNIT}" width="{2 * _UNIT}" height="{2 * _UNIT}"/>'
    radius = _UNIT * LIMIT * (2**0.5 if "square" in title else 1.0)  # the norm of two elements is root two of their mean square
    return f'<circle class="limit" cx="{x0}" cy="{y0}" r="{radius:.1f}"/>'


main = partial(written.main, tool="meanings", make=drawing, path=PICTURE)

if __name__ == "__main__":
    sys.exit(main())
