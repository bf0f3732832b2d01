"""The larger side of a comparison, against its value."""

from __future__ import annotations

import libcst as cst
import numpy as np
import pytest

from gradclip.migrate.byhand.called import larger_first
from gradclip.source.resolve import Resolver
from gradclip.source.source import Source, last_name

TESTS = [
    "a > b",
    "a >= b",
    "a < b",
    "b <= a",
    "not a > b",
    "not (not a < b)",
    "np.greater(a, b)",
    "np.less_equal(a, b)",
    "np.logical_not(np.less(a, b))",
    "np.all(a > b)",
    "not np.squeeze(a >= b)",
    "flag",
    "not flag",
]
OTHERS = ["a", "a == b", "a != b", "a < b < 1", "a > b and a > 1", "np.equal(a, b)", "np.less(a)", "np.any(a > b)", "copy"]
NAMES = {"flag": "a < b", "copy": "flag"}


def sides(test: str) -> tuple[str, str] | None:
    source = Source(f"import numpy as np\n{test}\n")
    (line,) = source.module.body[1:]
    assert isinstance(line, cst.SimpleStatementLine)
    assert isinstance(line.body[0], cst.Expr)
    values = {name: cst.parse_expression(value) for name, value in NAMES.items()}
    found = larger_first(line.body[0].value, Resolver(source, {}), lambda name: values.get(name.value))
    return None if found is None else (last_name(found[0]), last_name(found[1]))


@pytest.mark.parametrize("test", TESTS)
def test_where_it_holds_the_first_side_is_the_larger_one(test: str) -> None:
    found = sides(test)
    assert found is not None
    assert set(found) == {"a", "b"}
    held = set()
    for values in ({"a": 1, "b": 2}, {"a": 2, "b": 1}):
        holds = bool(eval(test, {"np": np, "flag": values["a"] < values["b"]}, values))
        assert holds == (values[found[0]] > values[found[1]])
        held.add(holds)
    assert held == {True, False}


@pytest.mark.parametrize("test", OTHERS)
def test_another_test_has_no_larger_side(test: str) -> None:
    assert sides(test) is None
