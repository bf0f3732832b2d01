"""What lint says of training programs that were written before its rules: half of them have one mistake."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from training_programs import FALSE, FOLDER, NOT_FOUND, PROGRAMS, Program, alarms

WRONG = [program for program in PROGRAMS if program.wrong and program.of_source]
RIGHT = [program for program in PROGRAMS if not program.wrong]


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    return alarms()


@pytest.mark.parametrize("program", WRONG, ids=lambda program: program.name)
def test_the_mistake_is_found(program: Program, found: dict[str, list[str]]) -> None:
    missing = program.name in NOT_FOUND
    assert bool(found[program.name]) is not missing, f"{program.why} {'Take it from not_found.' if missing else ''}"


@pytest.mark.parametrize("program", RIGHT, ids=lambda program: program.name)
def test_a_right_program_is_silent(program: Program, found: dict[str, list[str]]) -> None:
    false = program.name in FALSE
    assert bool(found[program.name]) is false, f"{program.why} {'Take it from false_alarms.' if false else found[program.name]}"


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_the_record_speaks_of_one_line(program: Program) -> None:
    lines = [line for path in program.files for line in path.read_text().splitlines() if program.record["line"] in line]
    assert len(lines) == 1
    assert f"/{'wrong' if program.wrong else 'right'}/" in program.name
    assert program.main is None or program.main in program.files


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_gives_no_hint(program: Program) -> None:
    text = "\n".join(path.read_text() for path in program.files)
    assert not re.search(
        r"\b(wrong|mistake|bug|broken|fixme|unclipped|on purpose|correct(ly)?|gradclip)\b", text, re.IGNORECASE
    )


def test_every_file_has_a_record() -> None:
    assert {path for program in PROGRAMS for path in program.files} == set(FOLDER.rglob("*.py"))
    assert {program.name for program in PROGRAMS} >= NOT_FOUND | FALSE


def test_half_of_the_programs_are_right() -> None:
    kinds = Counter(program.wrong for program in PROGRAMS)
    assert kinds.total() >= 80
    assert 0.4 < kinds[False] / kinds.total() < 0.6
