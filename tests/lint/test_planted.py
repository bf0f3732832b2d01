"""Planted mistakes: the linter reports each once, the migration names it, and a right program close to it is silent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from read import linted, migrated

from gradclip.source.codes import RULES
from gradclip.source.model import Verdict

TEXT = Path(__file__).with_name("planted.txt").read_text(encoding="utf-8")
PLANTED = dict(re.findall(r"^## (GM\d+ .*)\n((?:[-+ ] .*\n|\n)+)", TEXT, re.MULTILINE))


def program(name: str, kind: str) -> str:
    """The wrong ("-") or the right ("+") program of a case."""
    return "".join(line[2:] for line in PLANTED[name].splitlines(keepends=True) if line[:1] in (" ", kind))


def mistakes(source: str) -> list[str]:
    return [site.code for site in linted(source) if site.code in RULES]


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_reported_once_and_a_right_program_is_silent(name: str) -> None:
    assert mistakes(program(name, "-")) == [name.split()[0]]
    assert mistakes(program(name, "+")) == []


@pytest.mark.parametrize("name", PLANTED)
def test_the_migration_names_what_the_linter_reports(name: str) -> None:
    sites = migrated(program(name, "-")).sites
    assert [site.outcome for site in sites if site.code == name.split()[0]] == [Verdict.MANUAL]


@pytest.mark.parametrize("name", PLANTED)
def test_a_migration_hides_no_mistake(name: str) -> None:
    after = migrated(program(name, "-")).source
    assert mistakes(after) == [name.split()[0]]
    assert migrated(after).source == after


def test_every_case_is_read() -> None:
    assert len(PLANTED) == TEXT.count("\n## ") > 30
