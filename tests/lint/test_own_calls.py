"""The linter knows gradclip: each page's mistake, written with gradclip's functions, has the same code."""

from __future__ import annotations

from pathlib import Path

import pytest
from lint.lint_pages import programs
from lint.own_calls import as_own, replaced
from lint.own_programs import PROGRAMS
from read import linted, migrated

from gradclip.source.codes import RULES
from gradclip.source.model import Verdict

#: pages without a form in gradclip: their programs call no native
NO_FORM = {
    "GM113": "a clip by hand",
    "GM121": "a keyword of Lightning's trainer",
    "GM137": "a clip by hand, in a hook",
    "GM138": "a norm by hand",
    "GM140": "a clip by hand",
    "GM141": "a clip by hand",
}
#: a mistake -> the departure by which gradclip's functions do not make it
HARMLESS = {"GM116": "twice"}

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").rglob("*.py"))


def said(program: str) -> list[str]:
    return [site.code for site in linted(program) if site.code in RULES]


@pytest.mark.parametrize("code", sorted(RULES.keys() - NO_FORM))
def test_a_page_with_gradclips_functions_says_the_same(code: str) -> None:
    wrong, right = programs(code)
    assert as_own(wrong) != wrong
    assert said(as_own(wrong)) == ([code] if code not in HARMLESS else [])
    assert said(as_own(right)) == []


def test_other_pages_call_no_native() -> None:
    assert {code for code in RULES if as_own(programs(code)[0]) == programs(code)[0]} == NO_FORM.keys()


@pytest.mark.parametrize("code", HARMLESS)
def test_gradclip_departs_where_it_makes_no_mistake(code: str) -> None:
    assert all(HARMLESS[code] in native.departs for native in replaced(programs(code)[0]))


@pytest.mark.parametrize("code", RULES)
def test_the_linter_says_the_same_after_a_migration(code: str) -> None:
    wrong, right = programs(code)
    assert said(migrated(wrong).source) == [code]
    assert said(migrated(right).source) == []


@pytest.mark.parametrize("code", sorted(RULES.keys() - NO_FORM))
def test_a_migration_leaves_gradclips_calls(code: str) -> None:
    for program in map(as_own, programs(code)):
        again = migrated(program)
        assert again.source == program
        assert not [x.text for x in again.sites if "gradclip" in x.text and x.outcome is not Verdict.UNCHANGED]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_gradclips_examples_have_no_mistake(path: Path) -> None:
    assert said(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_gradclips_calls(name: str) -> None:
    source, code = PROGRAMS[name]
    assert said(source) == ([code] if code else [])
