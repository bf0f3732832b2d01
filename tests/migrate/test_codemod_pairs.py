"""Before and after: each folder of ``pairs/`` has a pattern and the outcome at each of its sites.

A pair is ``before.py``, ``after.py`` if anything changes, and ``pair.toml``: options by their names, and the sites as
``line:column code outcome``. To add a pair, write ``before.py`` and run this test: it prints the result.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from migrate.codemods import options

from gradclip.migrate.codemod import migrate_source
from gradclip.natives import BY_CODE
from gradclip.natives.targets import targets
from gradclip.source.codes import CODES
from gradclip.source.model import Verdict

PAIRS = Path(__file__).parent / "pairs"
NAMES = sorted(path.name for path in PAIRS.iterdir())


def read(name: str, file: str) -> str:
    return (PAIRS / name / file).read_bytes().decode()


@pytest.mark.parametrize("name", NAMES)
def test_a_pair(name: str) -> None:
    expected = tomllib.loads(read(name, "pair.toml"))
    sites = expected.pop("sites")
    wanted = options(**expected)
    before = read(name, "before.py")
    after = read(name, "after.py") if (PAIRS / name / "after.py").exists() else before

    migrated = migrate_source(before, wanted)

    assert migrated.source == after
    assert [f"{site.line}:{site.column} {site.code} {site.outcome.value}" for site in migrated.sites] == sites
    for source in (before, after):
        compile(source, name, "exec")
    again = migrate_source(after, wanted)
    assert again.source == after
    assert not [site for site in again.sites if site.outcome is Verdict.REWRITTEN]


def test_every_place_has_a_reason_and_what_is_left_to_a_person_an_advice() -> None:
    for name in NAMES:
        expected = tomllib.loads(read(name, "pair.toml"))
        del expected["sites"]
        for site in migrate_source(read(name, "before.py"), options(**expected)).sites:
            assert site.reason.endswith("."), site
            assert site.more == f"gradclip explain {site.code}"
            assert site.code in CODES or site.code in BY_CODE
            assert bool(site.advice) == (site.outcome is Verdict.MANUAL), site


def test_every_code_is_shown_by_a_pair() -> None:
    shown = {entry.split()[1] for name in NAMES for entry in tomllib.loads(read(name, "pair.toml"))["sites"]}
    of_notebooks = {"GM212"}
    assert sorted(CODES.keys() - shown) == sorted(of_notebooks)


def test_every_function_that_can_be_rewritten_is_rewritten_by_a_pair() -> None:
    entries = [entry.split() for name in NAMES for entry in tomllib.loads(read(name, "pair.toml"))["sites"]]
    rewritten = {code for _, code, outcome in entries if outcome == "rewritten"}
    with_a_target = {
        code for code, api in BY_CODE.items() if "gradclip" in targets(api) and not targets(api)["gradclip"].by_hand
    }
    assert sorted(with_a_target - rewritten) == []
