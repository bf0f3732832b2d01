"""The findings of ``gradclip doctor`` as a pure function of events; the texts that it shares with the linter."""

from __future__ import annotations

import itertools
import math
import sys
from dataclasses import replace

import pytest

from gradclip.code.codes import CODES
from gradclip.doctor.events import Backward, Clip, Event, Skip, Step, Unscale, Unwatched, Write, Zero
from gradclip.doctor.findings import findings
from gradclip.doctor.guard import Guard
from gradclip.doctor.lines import Lines
from gradclip.doctor.places import Place
from gradclip.doctor.recorder import EnoughSteps, Recorder
from gradclip.doctor.rounds import rounds
from gradclip.doctor.table import KINDS
from gradclip.doctor.timeline import timeline

BOTH = frozenset({1, 2})
ONE, TWO = frozenset({1}), frozenset({2})


def at(line: int) -> Place:
    return Place("train.py", line)


BACKWARD = Backward(where=at(1), params=BOTH)
CLIP = Clip(where=at(2), params=BOTH, name="clip", limit=1.0, returned=2.0, before=2.0, after=1.0)
STEP = Step(where=at(3), params=BOTH, name="SGD", total=2)
ZERO = Zero(where=at(4), params=BOTH)
WRITE = Write(where=at(5), params=BOTH, text="g *= 2", before=1.0, after=2.0)
SCALED = replace(BACKWARD, scale=8.0)
UNSCALE = Unscale(where=at(6), params=BOTH)

RIGHT = [ZERO, BACKWARD, CLIP, STEP]
OTHERS = [replace(x, params=frozenset({9})) for x in RIGHT]


def codes(*events: Event) -> list[str]:
    return [x.code for x in findings(events)]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (RIGHT, []),
        ([BACKWARD, BACKWARD, CLIP, STEP], []),
        ([BACKWARD, WRITE, CLIP, STEP], []),
        ([BACKWARD, STEP], ["GD101"]),
        ([BACKWARD, replace(WRITE, after=0.5), STEP, BACKWARD, STEP], []),
        ([BACKWARD, replace(WRITE, after=0.5), STEP] * 3, ["GD101"]),
        ([Unwatched(what="", hides_clips=True), BACKWARD, STEP], []),
        ([BACKWARD, replace(CLIP, params=frozenset(), without=BOTH), STEP], ["GD102"]),
        ([BACKWARD, replace(CLIP, params=frozenset()), STEP], ["GD102"]),
        ([BACKWARD, replace(CLIP, params=ONE), STEP], ["GD103"]),
        ([BACKWARD, replace(CLIP, params=BOTH | {9}), STEP], ["GD103"]),
        ([BACKWARD, replace(CLIP, params=BOTH | {9}), STEP, replace(STEP, params=frozenset({9}), optimizer=1)], []),
        ([BACKWARD, replace(CLIP, params=BOTH | {9}), STEP, *OTHERS], ["GD103"]),
        ([BACKWARD, CLIP, WRITE, STEP], ["GD104"]),
        ([BACKWARD, CLIP, replace(WRITE, params=frozenset({9})), STEP], []),
        ([BACKWARD, replace(CLIP, params=ONE), replace(CLIP, params=TWO), STEP], ["GD105"]),
        ([BACKWARD, CLIP, CLIP, STEP], ["GD106"]),
        ([BACKWARD, replace(CLIP, limit=math.inf), CLIP, STEP], []),
        ([BACKWARD, CLIP, BACKWARD, STEP], ["GD107"]),
        ([BACKWARD, CLIP, BACKWARD, CLIP, STEP], ["GD107"]),
        ([BACKWARD, CLIP, ZERO, BACKWARD, CLIP, STEP], []),
        ([BACKWARD, STEP, CLIP, ZERO, BACKWARD, STEP], ["GD107"]),
        ([SCALED, CLIP, UNSCALE, STEP], ["GD108"]),
        ([SCALED, UNSCALE, CLIP, STEP], []),
        ([SCALED, UNSCALE, CLIP, Skip(params=BOTH, name="SGD"), *RIGHT], []),
        ([BACKWARD, replace(CLIP, params=frozenset(), without=BOTH, is_dropped=True), STEP], ["GD102"]),
        ([BACKWARD, replace(CLIP, params=frozenset(), is_dropped=True), STEP], ["GD109"]),
        ([BACKWARD, replace(CLIP, before=math.inf, returned=math.inf), STEP], ["GD201"]),
        ([BACKWARD, replace(CLIP, before=math.nan, culprits=("w",)), STEP], ["GD201"]),
        ([BACKWARD, replace(CLIP, before=math.inf), Skip(params=BOTH, name="SGD")], []),
        ([BACKWARD, replace(CLIP, returned=math.inf), STEP], ["GD202"]),
        ([BACKWARD, replace(CLIP, returned=2.1), STEP], ["GD203"]),
        ([BACKWARD, replace(CLIP, returned=2.005), STEP], []),
        ([BACKWARD, replace(CLIP, limit=100.0), STEP] * 3, ["GD301"]),
        ([BACKWARD, replace(CLIP, limit=99.0), STEP] * 3, []),
        ([BACKWARD, replace(CLIP, limit=100.0), STEP] * 2, []),
        ([BACKWARD, replace(CLIP, limit=0.19), STEP] * 3, ["GD302"]),
        ([BACKWARD, replace(CLIP, limit=0.21), STEP] * 3, []),
        ([*[BACKWARD, replace(CLIP, limit=0.19), STEP] * 2, BACKWARD, replace(CLIP, limit=0.3), STEP], []),
        ([BACKWARD, replace(CLIP, limit=0.0), STEP], ["GD304"]),
        ([BACKWARD, replace(CLIP, limit=-1.0), STEP], ["GD304"]),
        ([BACKWARD, replace(CLIP, limit=None, error="TypeError: no"), STEP], ["GD304"]),
    ],
)
def test_findings(events: list[Event], expected: list[str]) -> None:
    assert codes(*events) == expected


def test_each_finding_has_its_line_and_its_steps() -> None:
    (found,) = findings([*RIGHT, *[BACKWARD, CLIP, WRITE, STEP], *RIGHT, *[BACKWARD, CLIP, WRITE, STEP]])
    assert (found.code, found.where, found.steps) == ("GD104", at(5), (2, 4))
    assert found.text == "2 parameters got other gradients by `g *= 2`: their norm went from 1 to 2"


def test_processes() -> None:
    assert findings(RIGHT, ranks={1: [2.0], 2: [2.001]}) == []
    (found,) = findings(RIGHT, ranks={1: [2.0], 2: [2.5]})
    assert (found.code, found.text) == ("GD303", "process 0 measured 2, process 2 measured 2.5")
    (found,) = findings(RIGHT, ranks={1: []})
    assert found.text == "process 0 clipped 1 times, process 1 0 times"


def test_an_optimizer_takes_only_its_own_events() -> None:
    other = Backward(where=at(7), params=frozenset({9}))
    found = rounds([other, BACKWARD, CLIP, STEP, replace(STEP, params=frozenset({9}), optimizer=7)])
    assert [len(x.events) for x in found] == [2, 1]
    assert [x.number for x in found] == [1, 1]


def test_looking_at_lines_that_write_nothing_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "settrace", lambda _: None)
    monkeypatch.setattr(sys, "gettrace", lambda: None)
    seconds = itertools.count(0.0, 1 / 64)
    monkeypatch.setattr("gradclip.doctor.lines.time.perf_counter", lambda: next(seconds))
    writes, looks = [False], []
    lines = Lines(Guard(), lambda place: looks.append(place) or writes[0])

    def looked() -> int:
        looks.clear()
        lines.start()
        for _ in range(100):
            lines._line(sys._getframe(), "line", None)
        lines.stop()
        return len(looks)

    assert (looked(), looked(), looked()) == (17, 9, 5)
    writes[0] = True
    assert looked() == 100
    writes[0] = False
    assert looked() == 17


def test_the_timeline() -> None:
    (found,) = rounds([ZERO, SCALED, SCALED, UNSCALE, CLIP, WRITE, STEP])
    words = "step 1    backward ×2 · unscale · clip 2.00 → 1.00 (train.py:2) · gradients written by g *= 2 (train.py:5)"
    assert timeline(found) == f"{words} · step SGD 2 of 2 parameters"
    (found,) = rounds([BACKWARD, replace(CLIP, before=math.nan, after=math.nan), STEP])
    assert timeline(found) == "step 1    backward · clip (train.py:2) · step SGD 2 of 2 parameters"


def test_the_linter_has_the_same_texts() -> None:
    same = [kind for kind in KINDS.values() if kind.title == CODES.get(kind.lint, kind).title and kind.lint]
    assert {kind.code for kind in same} == {"GD108", "GD109"}
    for kind in same:
        assert (kind.reason, kind.advice) == (CODES[kind.lint].reason, CODES[kind.lint].advice)


def test_the_record_ends_the_script() -> None:
    recorder = Recorder(2)
    recorder.add(STEP)
    recorder.add(Skip(params=BOTH))
    recorder.add(replace(STEP, optimizer=5))
    with pytest.raises(EnoughSteps):
        recorder.add(STEP)
    with pytest.raises(EnoughSteps):
        recorder.add(CLIP)
    assert len(recorder.events) == 4
