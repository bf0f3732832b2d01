"""The findings of ``gradclip doctor`` as a pure function of events; the texts that it shares with the linter."""

from __future__ import annotations

import itertools
import json
import math
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gradclip.doctor.events import Backward, Clip, Event, Read, Skip, Step, Unscale, Unwatched, Write, Zero, these
from gradclip.doctor.findings import Finding, diagnosis, findings
from gradclip.doctor.guard import Guard
from gradclip.doctor.hints import hint
from gradclip.doctor.lines import Lines
from gradclip.doctor.of_ranks import Measured, compared, measured
from gradclip.doctor.places import Place
from gradclip.doctor.program import Ended
from gradclip.doctor.recorder import EnoughSteps, Recorder
from gradclip.doctor.replicas import Course, Replicas
from gradclip.doctor.report import Report
from gradclip.doctor.rounds import rounds
from gradclip.doctor.run import Run
from gradclip.doctor.timeline import timeline
from gradclip.rounds import DOCTOR, MISTAKES, mistake
from gradclip.rounds.params import NO_PARAMS

BOTH, ONE, TWO, OTHER, ALL = map(these, ((1, 2), (1,), (2,), (9,), (1, 2, 9)))


def at(line: int) -> Place:
    return Place("train.py", line)


BACKWARD = Backward(where=at(1), params=BOTH)
CLIP = Clip(where=at(2), params=BOTH, text="clip", limit=1.0, returned=2.0, before=2.0, after=1.0)
STEP = Step(where=at(3), params=BOTH, text="SGD", total=2)
ZERO = Zero(where=at(4), params=BOTH)
WRITE = Write(where=at(5), params=BOTH, text="g *= 2", before=1.0, after=2.0)
SCALED = replace(BACKWARD, scaler="the scaler")
UNSCALE = Unscale(where=at(6), params=BOTH)

RIGHT = [ZERO, BACKWARD, CLIP, STEP]
OTHERS = [replace(x, params=OTHER) for x in RIGHT]
UNCLIPPED = [x for x in OTHERS if not isinstance(x, (Clip, Step))] + [replace(STEP, params=OTHER, optimizer=9)]
NOTHING = replace(STEP, params=NO_PARAMS, owns=BOTH.known)
AGAIN = replace(BACKWARD, is_again=True)
BROKEN = replace(BACKWARD, broken=ONE)
BROKEN_CLIP = replace(CLIP, before=math.nan, culprits=("head",))


def stepped(norm: float) -> Step:
    return replace(STEP, norms=((1, norm), (2, 0.1)))


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
        ([BACKWARD, replace(CLIP, params=NO_PARAMS, without=BOTH.known), STEP], ["GD102"]),
        ([BACKWARD, replace(CLIP, params=NO_PARAMS), STEP], ["GD102"]),
        ([BACKWARD, replace(CLIP, params=ONE), STEP], ["GM118"]),
        ([BACKWARD, replace(CLIP, params=ALL), STEP], ["GM118"]),
        ([BACKWARD, replace(CLIP, params=ALL), STEP, replace(STEP, params=OTHER, optimizer=1)], []),
        ([BACKWARD, replace(CLIP, params=ALL), STEP, *OTHERS], ["GM118"]),
        ([BACKWARD, CLIP, WRITE, STEP], ["GD104"]),
        ([BACKWARD, CLIP, replace(WRITE, params=OTHER), STEP], []),
        # a measure, and a clip by hand; a measure after the write hides nothing
        ([BACKWARD, replace(CLIP, limit=math.inf, only_measures=True), WRITE, STEP], []),
        ([BACKWARD, CLIP, WRITE, replace(CLIP, limit=math.inf, only_measures=True), STEP], ["GD104"]),
        # each example is clipped, and their sum is written
        ([*[BACKWARD, CLIP, ZERO] * 3, BACKWARD, CLIP, WRITE, STEP], []),
        ([*[BACKWARD, CLIP, ZERO], BACKWARD, CLIP, WRITE, STEP], ["GD104"]),
        ([BACKWARD, replace(CLIP, params=OTHER), STEP], ["GM118"]),
        ([BACKWARD, replace(CLIP, params=ONE), replace(CLIP, params=TWO), STEP], ["GM135"]),
        ([BACKWARD, CLIP, CLIP, STEP], ["GM120"]),
        ([BACKWARD, replace(CLIP, limit=math.inf, only_measures=True), CLIP, STEP], []),
        ([BACKWARD, CLIP, BACKWARD, STEP], ["GM119"]),
        ([BACKWARD, CLIP, BACKWARD, CLIP, STEP], ["GM119"]),
        ([BACKWARD, CLIP, replace(BACKWARD, where=at(9)), STEP], ["GM108"]),
        ([BACKWARD, CLIP, ZERO, BACKWARD, STEP], ["GM108"]),
        ([BACKWARD, CLIP, *[ZERO, AGAIN] * 2, STEP], ["GM130"]),
        ([BACKWARD, CLIP, *[ZERO, AGAIN, CLIP] * 2, STEP], []),
        ([BACKWARD, replace(CLIP, params=ONE, kind="value"), replace(CLIP, params=TWO, kind="value"), STEP], []),
        ([BACKWARD, CLIP, ZERO, BACKWARD, CLIP, STEP], []),
        ([BACKWARD, STEP, CLIP, ZERO, BACKWARD, STEP], ["GM108"]),
        # gradients are removed after each pass; one pass may look ahead, one of another line may be of something else
        ([*[ZERO, *[BACKWARD, ZERO] * 2, BACKWARD, CLIP, STEP] * 2], ["GM108"]),
        ([*[ZERO, BACKWARD, ZERO, BACKWARD, CLIP, STEP] * 2], []),
        ([*[*[replace(BACKWARD, where=at(9)), ZERO] * 2, BACKWARD, CLIP, STEP] * 2], []),
        ([*[*[BACKWARD, ZERO] * 2, BACKWARD, CLIP, STEP], *RIGHT * 2], []),
        ([*[*[BACKWARD, ZERO] * 2, BACKWARD, CLIP, STEP, replace(STEP, params=OTHER, optimizer=9)] * 2], []),
        ([SCALED, CLIP, UNSCALE, STEP], ["GM107"]),
        ([SCALED, UNSCALE, CLIP, STEP], []),
        ([SCALED, UNSCALE, CLIP, Skip(params=BOTH, text="SGD"), *RIGHT], []),
        ([BACKWARD, replace(CLIP, params=NO_PARAMS, is_dropped=True), STEP], ["GM105"]),
        ([BACKWARD, replace(CLIP, before=math.inf, returned=math.inf), STEP], ["GD201"]),
        ([BACKWARD, replace(CLIP, before=math.nan, culprits=("w",)), STEP], ["GD201"]),
        ([BACKWARD, replace(CLIP, before=math.inf), Skip(params=BOTH, text="SGD")], []),
        # a script that leaves out such steps itself; a scaler may do so at first
        ([BACKWARD, BROKEN_CLIP, ZERO] * 3, ["GD201"]),
        ([BACKWARD, BROKEN_CLIP, ZERO] * 2, []),
        ([*[BACKWARD, BROKEN_CLIP, ZERO] * 2, BACKWARD, CLIP, ZERO], []),
        ([*RIGHT, *[BACKWARD, BROKEN_CLIP, ZERO] * 29], []),
        ([*RIGHT, *[BACKWARD, BROKEN_CLIP, ZERO] * 30], ["GD201"]),
        ([*[BACKWARD, BROKEN_CLIP, ZERO] * 30, *RIGHT], []),
        ([SCALED, UNSCALE, BROKEN_CLIP, Skip(params=BOTH, text="SGD"), ZERO] * 29, []),
        ([BACKWARD, replace(CLIP, returned=math.inf), STEP], ["GD202"]),
        ([BACKWARD, replace(CLIP, returned=2.1), STEP], ["GD203"]),
        ([BACKWARD, replace(CLIP, returned=2.005), STEP], []),
        ([BACKWARD, replace(CLIP, limit=100.0), STEP] * 10, ["GD301"]),
        ([BACKWARD, replace(CLIP, limit=100.0), STEP] * 9, []),
        ([BACKWARD, replace(CLIP, limit=99.0), STEP] * 10, []),
        ([BACKWARD, replace(CLIP, limit=0.19), STEP] * 10, ["GD302"]),
        ([BACKWARD, replace(CLIP, limit=0.19), STEP] * 9, []),
        ([BACKWARD, replace(CLIP, limit=0.21), STEP] * 3, []),
        ([*[BACKWARD, replace(CLIP, limit=0.19), STEP] * 2, BACKWARD, replace(CLIP, limit=0.3), STEP], []),
        # a limit is not judged by norms that another finding spoils
        ([SCALED, replace(CLIP, limit=0.19), STEP] * 3, ["GM107"]),
        ([SCALED, replace(CLIP, limit=100.0), STEP] * 3, ["GM107"]),
        ([BACKWARD, replace(CLIP, limit=0.19), WRITE, STEP] * 3, ["GD104"]),
        ([BACKWARD, replace(CLIP, limit=0.19, params=ALL), STEP] * 3, ["GM118"]),
        ([BACKWARD, *[replace(CLIP, limit=0.19, params=x) for x in (ONE, TWO)], STEP] * 3, ["GM135"]),
        (
            [BACKWARD, replace(CLIP, limit=0.19), STEP, *[replace(BACKWARD, added=BOTH), replace(CLIP, limit=0.19), STEP] * 2],
            ["GM132"],
        ),
        # limits of their own are meant
        ([BACKWARD, replace(CLIP, params=ONE), replace(CLIP, params=TWO, limit=0.5), STEP], []),
        ([BACKWARD, replace(CLIP, params=ONE), replace(STEP, exempt=TWO)], []),
        ([BACKWARD, replace(STEP, exempt=BOTH)], []),
        ([BACKWARD, Read(where=at(8)), STEP], []),
        ([BACKWARD, CLIP, STEP, BACKWARD, Read(where=at(8)), STEP], ["GD101"]),
        # another optimizer that is not clipped, with passes of its own, or of the same pass
        ([*RIGHT, *UNCLIPPED], []),
        ([replace(BACKWARD, params=ALL), CLIP, STEP, replace(STEP, params=OTHER, optimizer=9)], ["GD101"]),
        ([BACKWARD, CLIP, STEP, replace(BACKWARD, added=BOTH), CLIP, STEP], ["GM132"]),
        ([BACKWARD, CLIP, STEP, replace(BACKWARD, added=BOTH), ZERO, BACKWARD, CLIP, STEP], []),
        ([BACKWARD, CLIP, ZERO, NOTHING] * 3, ["GD112"]),
        ([BACKWARD, CLIP, ZERO, NOTHING] * 2, []),
        ([*RIGHT, replace(NOTHING, owns=OTHER.known, optimizer=9)] * 3, []),
        ([*RIGHT, BROKEN, replace(CLIP, before=math.nan), *[BROKEN] * 3], ["GM133"]),
        ([*RIGHT, BROKEN, replace(CLIP, before=math.nan), ZERO, *[BROKEN] * 3], []),
        ([*RIGHT, BROKEN, Skip(params=BOTH, text="SGD"), ZERO, BACKWARD, CLIP, STEP], []),
        (
            [BACKWARD, replace(STEP, is_within=True), replace(CLIP, params=NO_PARAMS, without=BOTH.known), *RIGHT],
            ["GD101", "GD114"],
        ),
        ([BACKWARD, replace(CLIP, returned=3.0, has_equal_rows=True), STEP], ["GD204"]),
        ([x for n in (1.0, 1.2, 50.0, 1e4, math.nan) for x in (BACKWARD, stepped(n))], ["GD205"]),
        ([x for n in (1.0, 1.2, 1.1, math.nan, math.nan) for x in (BACKWARD, stepped(n))], ["GD101", "GD201"]),
        ([x for n in (1.0, 1.2, 50.0, 1e4, math.inf) for x in (BACKWARD, CLIP, stepped(n))], []),
        ([x for n in (1.0, 1.2, 50.0, 1e4) for x in (replace(BACKWARD, added=BOTH), stepped(n))], ["GD101", "GM132"]),
        ([BACKWARD, replace(CLIP, limit=0.0), STEP], ["GD304"]),
        ([BACKWARD, replace(CLIP, limit=-1.0), STEP], ["GD304"]),
        ([BACKWARD, replace(CLIP, limit=None, is_failed=True), STEP], ["GD304"]),
    ],
)
def test_findings(events: list[Event], expected: list[str]) -> None:
    assert codes(*events) == expected


def test_each_finding_has_its_line_and_its_steps() -> None:
    (found,) = findings([*RIGHT, *[BACKWARD, CLIP, WRITE, STEP], *RIGHT, *[BACKWARD, CLIP, WRITE, STEP]])
    assert (found.code, found.where, found.steps) == ("GD104", at(5), (2, 4))
    assert found.text == "`g *= 2` changed the gradients of 2 parameters: their norm went from 1 to 2"


def test_a_run_that_diverges_is_drawn_and_gets_a_limit() -> None:
    norms = [2.0, 2.4, 2.2, 90.0, 1e5, 1e12, math.nan]
    steps = [replace(stepped(n), where=replace(at(3), framework="keras")) for n in norms]
    found = diagnosis([x for step in steps for x in (BACKWARD, step)], {1: "embedding", 2: "head"})
    (finding,) = found.findings
    assert finding.text == (
        "the norm left its level at step 4: it went from 2.202 to 1e+12, and was not finite from step 7 on; first in embedding"
    )
    assert finding.steps == (4, 5, 6, 7)
    assert finding.to_do == "Give the optimizer `global_clipnorm=0.21`."
    assert finding.advice.startswith("gradclip choose says of these 7 norms: 0.21. The run diverged at once: ")
    assert finding.first.picture[3] == "step 4     90  #######  <- it leaves its level"
    assert finding.first.picture[6] == "step 7    nan"
    assert found.notes == []


def test_what_is_no_mistake_is_a_line() -> None:
    (note,) = diagnosis([BACKWARD, Read(where=at(8)), STEP]).notes
    what, doubt = "the code at train.py:8 reads gradients and compares", "If it clips, no norm reached its limit in these steps"
    assert note == f"Not seen: {what}. {doubt}."
    assert diagnosis([*RIGHT, *UNCLIPPED]).notes == ["Not clipped: SGD (train.py:3), beside an optimizer that is clipped."]
    (note,) = diagnosis([SCALED, replace(CLIP, limit=0.19), STEP] * 3).notes
    assert note == "No limit is judged at train.py:2: the norms there change once GM107 is mended."
    small = [BACKWARD, replace(CLIP, limit=0.19), replace(STEP, text="AdamW")] * 3
    told = diagnosis(small)
    said = "the limit was 0.19, and the norms were from 2 to 2: no smaller learning rate with AdamW"
    assert (told.findings, told.notes) == ([], [f"At train.py:2 {said}, whose steps are as long at any scale."])
    (finding,) = diagnosis([*small * 3, BACKWARD, replace(CLIP, limit=0.19), STEP]).findings
    assert finding.code == "GD302", "another optimizer steps the same parameters"
    assert finding.advice == "10 norms are too few to choose a limit by: watch 20 steps or more, with --steps."
    (finding,) = findings([BACKWARD, replace(CLIP, limit=0.19), STEP] * 20)
    assert finding.advice.startswith("gradclip choose says of these 20 norms: 2.1. It is just above the 90th percentile, 2: ")


def test_gradients_that_are_0_are_not_called_removed() -> None:
    still = replace(STEP, norms=((1, 0.0), (2, 0.0)), owns=BOTH.known)
    (found,) = findings([ZERO, BACKWARD, CLIP, still] * 3)
    assert (found.code, found.text) == ("GD112", "the gradients that SGD took were 0, and nothing had removed them")
    assert "a clamp of an error" in found.advice
    (found,) = findings([ZERO, BACKWARD, ZERO, still] * 3)
    assert found.text.startswith("the gradients of SGD were removed (train.py:4)")


def test_each_framework_is_told_its_own_names() -> None:
    words = {
        "torch": ("zero_grad", "scaler", "torch.", "model.parameters"),
        "paddle": ("clear_grad", "paddle."),
        "tensorflow": ("tf.", "apply_gradients", "tape"),
        "keras": ("keras.", "LossScaleOptimizer"),
        "jax": ("optax", "jax."),
    }
    shared = {"paddle": {"scaler"}, "tensorflow": {"keras.", "LossScaleOptimizer"}, "keras": {"apply_gradients", "tape"}}
    only_there = {"GD102", "GD112", "GD114", "GM108", "GM132", "GM133"}  # in which frameworks a mistake can be made
    for kind in (one for one in MISTAKES.values() if DOCTOR in one.seen_by):
        assert kind.ways.keys() <= words.keys()
        for framework in () if kind.code in only_there else words:
            told = kind.advice_in(framework, 0.5)
            foreign = {x for other, names in words.items() for x in names if other != framework} - shared.get(framework, set())
            assert not {x for x in foreign if x in told}, (kind.code, framework, told)
            assert "{" not in told
    scaled = {framework: MISTAKES["GM107"].advice_in(framework) for framework in words}
    assert {framework for framework, told in scaled.items() if "scaler.unscale_" in told} == {"torch", "paddle"}
    assert "0.5" in MISTAKES["GD101"].advice_in("torch", 0.5)


def test_errors_of_a_scaler_have_a_hint() -> None:
    for said in (
        "RuntimeError: unscale_() has already been called on this optimizer since the last update().",
        "ValueError: Attempting to unscale FP16 gradients.",
    ):
        report = Report(Ended("failed", said), Recorder(20))
        assert str(report).splitlines()[1] == f"Hint: {hint(said)}"
        assert report.as_json()["hint"] == hint(said) != ""
    assert "Hint" not in str(Report(Ended("failed", "KeyError: 'x'"), Recorder(20)))


def on(*norms: float, **more: Any) -> Measured:
    """What a process tells the first one; through JSON, as it comes."""
    told = Measured([(norm, 1.0) for norm in norms], **more).told()
    return Measured.heard(json.loads(json.dumps(told)))


def test_processes() -> None:
    assert findings(RIGHT, ranks={0: on(2.0), 1: on(2.0), 2: on(2.001)}) == []
    (found,) = findings(RIGHT, ranks={0: on(2.0), 1: on(2.0), 2: on(2.5)})
    assert (found.code, found.text, found.steps) == ("GD303", "process 0 measured 2, process 2 measured 2.5", (1,))
    (found,) = findings(RIGHT, ranks={0: on(2.0), 1: on()})
    assert found.text == "process 0 clipped 1 times, process 1 0 times"
    assert findings(RIGHT * 2, ranks={0: on(2.0, 2.0, factors=[(1.0, 0)] * 2), 1: on(2.0, factors=[(1.0, 0)])}) == [], "cut off"
    assert measured(Run([*RIGHT, BACKWARD, CLIP], {}), {}).clips == [(2.0, 1.0)]
    (found,) = findings(RIGHT, ranks={0: on(2.0), 1: Measured([(2.0, 3.0)])})
    assert (found.code, found.text) == ("GD303", "process 0 had the limit 1, process 1 had the limit 3")


@pytest.mark.parametrize(
    ("factors", "others", "is_wrong"),
    [
        (((1, 0.5), (2, 0.5)), (0.25, 2), True),
        (((1, 0.5), (2, 0.5)), (1.0, 0), True),  # its norm was below the limit
        (((1, 0.5), (2, 0.5)), (0.5001, 2), False),
        (((1, 0.5), (2, 0.5)), (0.25, 1), False),  # one gradient may be clipped by value
        (((1, 0.5), (2, 0.5)), (math.nan, 2), False),
        (((1, 0.5), (2, 0.7)), (0.25, 2), False),  # each gradient by itself
        ((), (1.0, 0), False),
    ],
)
def test_gradients_scaled_by_hand(factors: Any, others: tuple[float, int], is_wrong: bool) -> None:
    events = [BACKWARD, replace(WRITE, before=1.0, after=0.5, factors=factors), STEP]
    mine = measured(Run(events, {}), {})
    found = findings(events, ranks={0: mine, 1: on(factors=[others])})
    assert [(x.code, x.where, x.steps) for x in found] == ([("GD303", WRITE.where, (1,))] if is_wrong else [])
    assert not is_wrong or found[0].text == f"process 0 scaled its gradients by 0.5, process 1 by {others[0]:g}"


def course(*sizes: float, slope: float = 0.1, is_replica: bool = False) -> Course:
    return Course([(size, size / 2) for size in sizes], slope, is_replica)


@pytest.mark.parametrize(
    ("mine", "theirs", "drifts"),
    [
        (course(1, 2, 3), course(1, 2, 3), False),
        (course(1, 2, 3), course(1, 2, 3 + 3e-8), False),
        (course(1, 2, 3), course(1, 2, 3.5), True),
        (course(1, 2, 3), course(1.1, 2, 3.5), False),  # never equal
        (course(0, 2, 3), course(0, 2, 3.5, slope=0.2), False),  # the biases of experts
        (course(0, 2, 3), course(0, 2, 3.5, slope=math.nan), False),
        (course(0, 2, 3, is_replica=True), course(0, 2, 3.5, slope=0.2, is_replica=True), True),
        (course(0, 2, 3), course(0, 2), False),  # a process that has come less far
    ],
)
def test_replicas_that_drift(mine: Course, theirs: Course, drifts: bool) -> None:
    events = [x for step in (1, 2) for x in (BACKWARD, CLIP, replace(STEP, where=at(step)))]
    ranks = {0: on(2.0, 2.0, params={"a": mine, "mine": mine}), 1: on(2.0, 2.0, params={"a": theirs})}
    found = findings(events, ranks=ranks)
    assert [(x.code, x.where.line, x.steps) for x in found] == ([("GD305", 2, (2,))] if drifts else [])
    said = "a differs from step 2 on, and was equal before; at the end process 1 is off by 0.1429 of the norm"
    assert not drifts or found[0].text == said
    cause = replace(ranks[1], clips=[(2.0, 3.0)] * 2)
    told = diagnosis(events, ranks={**ranks, 1: cause})
    assert [x.code for x in told.findings] == ["GD303"]
    assert (f"Because of GD303 {said}." in told.notes) == drifts


def test_parameters_of_one_name() -> None:
    replicas = Replicas(lambda x: (1.0, float(x[0])))
    for step in range(2):
        replicas.before({1: np.zeros(2), 2: np.ones(2)}, lambda x: x if x.all() else None)
        replicas.after({1: np.ones(2), 2: np.ones(2)})
        assert step or replicas.courses[2].slope == 1.0
    named = replicas.named({1: "w", 2: "w"})
    assert named == {"w": replicas.courses[1], "w (2)": replicas.courses[2]}
    assert [mark for _, mark in named["w"].marks] == [0.0, 1.0, 1.0]


def test_what_only_other_processes_do_wrong() -> None:
    wrong = findings([BACKWARD, CLIP, WRITE, STEP])
    told = json.loads(json.dumps([x.told() for x in wrong]))
    others = {rank: list(map(Finding.heard, told)) for rank in (1, 3)}
    (found,) = diagnosis(RIGHT, others=others).findings
    assert (found.code, found.where, found.steps, found.kind) == (wrong[0].code, wrong[0].where, (1,), wrong[0].kind)
    assert found.text == f"on processes 1, 3, and not on process 0: {wrong[0].text}"
    assert diagnosis([BACKWARD, CLIP, WRITE, STEP], others=others).findings == wrong, "it is said once"


def test_what_was_compared_is_said() -> None:
    same = {"a": course(1, 2, 3)}
    for theirs, said in (
        (on(2.0), "1 norm equal to 1e-8"),
        (on(2.0 + 3e-8), "1 norm equal to 1e-7"),
        (on(2.0, params={"a": course(1, 2, 3.5)}), "1 norm equal to 1e-8"),
        (on(2.0, params=same), "1 norm equal to 1e-8, 1 parameter equal to the last bit after 2 steps"),
        (on(2.0, params={"a": course(1, 2, 3 + 3e-8)}), "1 norm equal to 1e-8, 1 parameter equal to 1e-8 after 2 steps"),
        (on(2.5, params=same), "1 parameter equal to the last bit after 2 steps"),
        (on(math.nan), ""),
        (on(), ""),
    ):
        recorder = Recorder(1)
        recorder.events += RIGHT
        recorder.ranks |= {0: on(2.0, params=same), 1: on(2.0 + 1e-8, params=same), 2: theirs}
        text = str(Report(Ended("ended"), recorder))
        assert (f"\nOn 3 processes: {said}.\n" in f"{text}\n") if said else ("On 3 processes" not in text)
    by_hand = {0: Measured(factors=[(0.5, 2), (1.0, 0)]), 1: Measured(factors=[(0.5, 3), (1.0, 0)])}
    assert list(compared(by_hand)) == ["On 2 processes: gradients scaled by one factor in 1 step."]


def test_an_optimizer_takes_only_its_own_events() -> None:
    other = Backward(where=at(7), params=OTHER)
    found, _ = rounds([other, BACKWARD, CLIP, STEP, replace(STEP, params=OTHER, optimizer=7)])
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
    (found,), _ = rounds([ZERO, SCALED, SCALED, UNSCALE, CLIP, WRITE, STEP])
    words = "step 1    backward ×2 · unscale · clip 2.00 → 1.00 (train.py:2) · gradients written by g *= 2 (train.py:5)"
    assert timeline(found) == f"{words} · step SGD 2 of 2 parameters"
    (found,), _ = rounds([BACKWARD, replace(CLIP, before=math.nan, after=math.nan), STEP])
    assert timeline(found) == "step 1    backward · clip (train.py:2) · step SGD 2 of 2 parameters"
    (found,), _ = rounds([*[BACKWARD, CLIP, ZERO] * 3, BACKWARD, CLIP, STEP])
    words = "(backward · clip (train.py:2) · gradients removed (train.py:4)) ×3 · backward · clip 2.00 → 1.00 (train.py:2)"
    assert timeline(found) == f"step 1    {words} · step SGD 2 of 2 parameters"


def test_a_code_that_the_doctor_had_before_is_still_known() -> None:
    assert mistake("GD107") is mistake("GD110") is MISTAKES["GM108"]
    assert not {code for one in MISTAKES.values() for code in one.was} & MISTAKES.keys()


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


def test_steps_that_are_all_skipped_end_the_script() -> None:
    skip = Skip(params=BOTH)
    for before, tried in (
        ([*[ZERO, skip] * 40, *[skip] * 28, ZERO], [skip] * 30),  # a scaler's first steps, which it leaves out, are no end
        ([BROKEN_CLIP] * 29 + [CLIP], [ZERO, BROKEN_CLIP] * 30),  # a script that leaves out such steps itself
        ([BROKEN_CLIP] * 29 + [STEP], [BROKEN_CLIP] * 30),
    ):
        recorder = Recorder(3)
        for event in (STEP, *before, *tried[:-1]):
            recorder.add(event)
        assert not recorder.is_over()
        with pytest.raises(EnoughSteps):
            recorder.add(tried[-1])
        assert recorder.is_over()
        assert str(Report(Ended("stopped"), recorder)).startswith("Stopped, since each step is skipped: ")


def test_an_event_is_put_in_the_place_of_its_earlier_form_only() -> None:
    recorder = Recorder(1)
    for event in (CLIP, replace(CLIP)):
        recorder.add(event)
    recorder.put(recorder.events[1], replace(CLIP, limit=9.0))
    recorder.put(STEP, ZERO)
    assert recorder.events == [CLIP, replace(CLIP, limit=9.0)]
