"""The positions of nodes in a text: each name is where its letters are, in any block."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest

from gradclip.source.source import Source, once

PAIRS = Path(__file__).parents[1] / "migrate" / "pairs"


@pytest.mark.parametrize("path", sorted(PAIRS.glob("*/before.py")), ids=lambda path: path.parent.name)
def test_a_name_lies_where_its_text_is(path: Path) -> None:
    source = Source(path.read_bytes().decode())
    for name in source.all(cst.Name):
        start, end = source.span(name)
        assert source.data[start:end].decode() == name.value


NESTED = """\
class A(object):
    @decorated
    def f(self):
        if a: b = clip
        elif c:
            d = e; f = g
        else:
            h = i
        try:
            with j as k:
                for l in m:
                    while n:
                        o = p
                    else:
                        q = r
        except S as t:
            u = v
        finally:
            w = x

    async def g(self):
      async with y as z:
        return clip
"""


def test_a_name_in_any_block_lies_where_its_text_is() -> None:
    source = Source(NESTED)
    names = {name.value: source.data[slice(*source.span(name))].decode() for name in source.all(cst.Name)}
    assert len(names) > 25
    assert all(text == name for name, text in names.items())


EVERY_ORDER = """\
@first(lambda: clip)
async def f(a, /, b: int = 1, *c, d=2, **e) -> int:
    x = clip if z else w
    f(*a, b=c, **d)
    async with g as h, i:
        for j, k in l: pass
    try:
        x[1:2, ::3] += {m: n for m, n in o if p if q}
    except (r, s) as t:
        raise u from v
    match w:
        case {1: a, **rest} if b: c
        case D(e, f=g) | [h, *i] as j: k
    return not (l := m) < n <= o and [p, *q]

@second
class C(A, B, metaclass=M):
    from ..a.b import c as d
    def g(self): yield f"{clip!r:{b}}" "c"
"""


def test_the_nodes_of_a_type_are_in_the_order_of_the_text() -> None:
    source = Source(EVERY_ORDER)
    nodes = sorted(source.parents, key=source.order)
    starts = [source.start(node) for node in nodes if not isinstance(node, (cst.IndentedBlock, cst.SimpleStatementSuite))]
    assert starts == sorted(starts)
    names = source.all(cst.Name)
    assert names == sorted(names, key=source.start)
    assert len(names) > 60


def test_a_fact_is_computed_once_for_each_of_its_arguments() -> None:
    asked: list[int] = []

    @once
    def fact(source: Source, number: int, factor: int = 1) -> int:
        asked.append(number * factor)
        return number * factor

    source = Source("x = 1")
    assert [fact(source, 2), fact(source, 2), fact(source, 2, factor=3), fact(source, 2, factor=5)] == [2, 2, 6, 10]
    assert asked == [2, 6, 10]
