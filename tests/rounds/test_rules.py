"""The rules over rounds that are written out: each mistake, its mend, and what is unknown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from gradclip.rounds import (
    MISTAKES,
    RULES,
    UNKNOWN,
    Backward,
    Clip,
    Condition,
    Event,
    Hook,
    Measure,
    Params,
    Reduce,
    Step,
    Unscale,
    Write,
    Zero,
    found,
    rounds,
)

A, B = Params.of(("a",)), Params.of(("b",))
EVERY, LOG = Condition("i", kind="every", text="`i % k == 0`"), Condition("finite", kind="finite", text="`isfinite(norm)`")
ZERO, BACK, CLIP = Zero(params=A, where=1), Backward(params=A, where=2), Clip(params=A, where=3)
STEP = Step(params=A, where=4, optimizer="o")
SOME = replace(CLIP, params=replace(A, is_all=False), where=5)
EXPERTS = replace(SOME, where=6, text="`clip(experts, 1.0)`")
ALSO = replace(STEP, params=Params.joined([A, B]))
SCALED, UNSCALE = replace(BACK, scaler="scaler"), Unscale(params=A)
SOME_LOCAL = replace(BACK, is_local=True, tests=frozenset({replace(EVERY, holds=False)}))
IN_LOOP = replace(CLIP, loops=(1,)), replace(BACK, loops=(1,))

CASES: dict[str, tuple[str, Sequence[Event], Sequence[Event]]] = {
    "after the step": ("GM108", [ZERO, BACK, STEP, CLIP, ZERO, BACK, STEP], [ZERO, BACK, CLIP, STEP, ZERO, BACK, CLIP, STEP]),
    "after the last step": ("GM108", [ZERO, BACK, STEP, CLIP], [ZERO, BACK, CLIP, STEP]),
    "before the backward pass": ("GM108", [ZERO, CLIP, BACK, STEP], [ZERO, BACK, CLIP, STEP]),
    "another backward pass": ("GM108", [BACK, CLIP, replace(BACK, where=9), STEP], [BACK, replace(BACK, where=9), CLIP, STEP]),
    "of another backward pass": (
        "GM128",
        [BACK, CLIP, ZERO, replace(BACK, where=9), STEP],
        [BACK, ZERO, replace(BACK, where=9), CLIP, STEP],
    ),
    "zeroed before the clip": ("GM108", [BACK, ZERO, CLIP, STEP], [ZERO, BACK, CLIP, STEP]),
    "zeroed before the step": ("GM108", [BACK, CLIP, ZERO, STEP], [BACK, CLIP, STEP, ZERO]),
    "scaled": ("GM107", [SCALED, CLIP, STEP], [SCALED, UNSCALE, CLIP, STEP]),
    "scaled, and so is the limit": ("GM107", [SCALED, CLIP, STEP], [SCALED, replace(CLIP, is_scaled=True), STEP]),
    "unscaled too late": (
        "GM107",
        [CLIP, UNSCALE, replace(STEP, scaler="scaler")],
        [UNSCALE, CLIP, replace(STEP, scaler="scaler")],
    ),
    "each micro-batch": (
        "GM119",
        [BACK, CLIP, BACK, CLIP, replace(STEP, tests=frozenset({EVERY}))],
        [BACK, BACK, replace(CLIP, tests=frozenset({EVERY})), replace(STEP, tests=frozenset({EVERY}))],
    ),
    "each pass of an inner loop": (
        "GM119",
        [IN_LOOP[1], IN_LOOP[0], IN_LOOP[1], IN_LOOP[0], STEP],
        [IN_LOOP[1], IN_LOOP[1], CLIP, STEP],
    ),
    "a NaN that stays": (
        "GM133",
        [BACK, CLIP, BACK, CLIP, replace(STEP, tests=frozenset({LOG})), ZERO],
        [BACK, CLIP, ZERO, BACK, CLIP, replace(STEP, tests=frozenset({LOG}))],
    ),
    "updates": ("GM108", [BACK, STEP, replace(CLIP, is_late=True)], [BACK, CLIP, STEP]),
    "a result that is dropped": ("GM105", [BACK, replace(CLIP, is_dropped=True), STEP], [BACK, CLIP, STEP]),
    "a hook that nothing calls": ("GM121", [replace(CLIP, is_unread=True)], [CLIP]),
    "an optimizer that nothing takes": ("GM121", [replace(CLIP, unread="It is not taken.")], [CLIP]),
    "copies": ("GM113", [BACK, replace(CLIP, is_copy=True), STEP], [BACK, replace(CLIP, is_copy=True), Write(params=A), STEP]),
    "an old norm": ("GM106", [BACK, replace(CLIP, is_stale=True), STEP], [BACK, CLIP, STEP]),
    "other variables": ("GM139", [BACK, CLIP, replace(STEP, is_shifted=True)], [BACK, CLIP, STEP]),
    "another network's variables": ("GM139", [BACK, CLIP, replace(STEP, paired=B)], [BACK, CLIP, STEP]),
    "no parameter that is clipped": (
        "GM118",
        [BACK, replace(STEP, clip="`Adam(...)`", exempt=A)],
        [BACK, replace(ALSO, clip="`Adam(...)`", exempt=A)],
    ),
    "each micro-batch, the last one summed": (
        "GM119",
        [SOME_LOCAL, CLIP, replace(BACK, where=9), CLIP, replace(STEP, tests=frozenset({EVERY}))],
        [SOME_LOCAL, replace(BACK, where=9), CLIP, replace(STEP, tests=frozenset({EVERY}))],
    ),
    "off": ("GM134", [BACK, replace(CLIP, is_off=True), STEP], [BACK, CLIP, STEP]),
    "a norm as a value": (
        "GM104",
        [BACK, replace(CLIP, kind="value", setting="max_norm"), STEP],
        [BACK, replace(CLIP, setting="max_norm"), STEP],
    ),
    "a value as a norm": (
        "GM104",
        [BACK, replace(CLIP, setting="grad_clip_value"), STEP],
        [BACK, replace(CLIP, kind="value", setting="grad_clip_value"), STEP],
    ),
    "the limit of one norm for each": (
        "GM126",
        [BACK, replace(CLIP, kind="each", setting="max_global_norm"), STEP],
        [BACK, replace(CLIP, kind="each", setting="per_tensor_norm"), STEP],
    ),
    "gradients of another step": (
        "GM118",
        [replace(STEP, params=B, optimizer="b"), BACK, replace(CLIP, params=ALSO.params), STEP],
        [replace(STEP, params=B, optimizer="b"), Zero(params=B), BACK, replace(CLIP, params=ALSO.params), STEP],
    ),
    "several norms": (
        "GM135",
        [BACK, replace(CLIP, returns=True, limit=1.0), replace(CLIP, returns=True, limit=1.0, params=B, where=7), ALSO],
        [BACK, replace(CLIP, returns=True, limit=1.0), replace(CLIP, returns=True, limit=2.0, params=B, where=7), ALSO],
    ),
    "twice": ("GM120", [BACK, CLIP, replace(CLIP, where=7), STEP], [BACK, CLIP, replace(CLIP, where=7, kind="value"), STEP]),
    "an optimizer that clips": ("GM120", [BACK, CLIP, replace(STEP, clip="`Adam`")], [BACK, CLIP, STEP]),
    "each parameter": ("GM126", [BACK, replace(CLIP, is_loop=True), STEP], [BACK, CLIP, STEP]),
    "a module without a clip": ("GM118", [BACK, CLIP, ALSO], [BACK, replace(CLIP, params=ALSO.params), ALSO]),
    "a module that is not stepped": ("GM118", [BACK, replace(CLIP, params=ALSO.params), STEP], [BACK, CLIP, STEP]),
    "another optimizer's": ("GM118", [replace(BACK, params=B), CLIP, replace(STEP, params=B)], [BACK, CLIP, STEP]),
    "one process": (
        "GM127",
        [BACK, replace(CLIP, tests=frozenset({Condition("r", kind="process", text="`rank == 0`")})), STEP],
        [BACK, CLIP, STEP],
    ),
    "before the sum": ("GM122", [BACK, CLIP, Reduce(params=A), STEP], [BACK, Reduce(params=A), CLIP, STEP]),
    "not yet exchanged": (
        "GM122",
        [replace(BACK, is_local=True), CLIP, STEP],
        [replace(BACK, is_local=True), BACK, CLIP, STEP],
    ),
    "steps between": (
        "GM128",
        [BACK, replace(CLIP, tests=frozenset({EVERY})), STEP],
        [BACK, replace(CLIP, tests=frozenset({EVERY})), replace(STEP, tests=frozenset({EVERY}))],
    ),
    "a closure": ("GM130", [BACK, CLIP, ZERO, replace(BACK, is_again=True), STEP], [ZERO, BACK, CLIP, STEP]),
    "experts apart": (
        "GM135",
        [BACK, replace(EXPERTS, limit=1.0), replace(SOME, limit=1.0), STEP],
        [BACK, replace(EXPERTS, limit=1.0), replace(SOME, limit=2.0), STEP],
    ),
    "local shards": ("GM124", [BACK, replace(CLIP, is_local=True), STEP], [BACK, CLIP, STEP]),
    "local shards, by hand": ("GM124", [BACK, Write(params=A, is_local=True), STEP], [BACK, Write(params=A), STEP]),
    "a square without its root": ("GM140", [BACK, Write(params=A, factor="square"), STEP], [BACK, Write(params=A), STEP]),
    "one bound": ("GM141", [BACK, replace(CLIP, kind="value", bound="max"), STEP], [BACK, replace(CLIP, kind="value"), STEP]),
    "zeroed in each micro-batch": (
        "GM108",
        [ZERO, BACK, ZERO, BACK, replace(CLIP, tests=frozenset({EVERY})), replace(STEP, tests=frozenset({EVERY}))],
        [ZERO, BACK, BACK, replace(CLIP, tests=frozenset({EVERY})), replace(STEP, tests=frozenset({EVERY}))],
    ),
    "a module of later": ("GM118", [BACK, CLIP, replace(STEP, late=B)], [BACK, CLIP, STEP]),
    "variables in another order": ("GM139", [BACK, CLIP, replace(STEP, is_reordered=True)], [BACK, CLIP, STEP]),
    "a pair for gradients": ("GM105", [BACK, replace(CLIP, is_pair=True), STEP], [BACK, CLIP, STEP]),
    "the range of a ratio": ("GM104", [BACK, replace(CLIP, is_range=True), STEP], [BACK, CLIP, STEP]),
    "a matrix norm": ("GM138", [BACK, Measure(use="matrix"), CLIP, STEP], [BACK, Measure(), CLIP, STEP]),
    "noise on the mean": (
        "GM142",
        [BACK, replace(CLIP, limit=1.0, setting="C"), Write(params=A, noise=frozenset({"C"})), STEP],
        [BACK, replace(CLIP, limit=1.0, setting="C"), Write(params=A, noise=frozenset({"eta"})), STEP],
    ),
    "divided after the clip": (
        "GM108",
        [BACK, CLIP, Write(params=A, divisor="n"), STEP],
        [BACK, Write(params=A, divisor="n"), CLIP, STEP],
    ),
    "zeros for NaN after the clip": (
        "GM108",
        [BACK, CLIP, Write(params=A, is_mend=True), STEP],
        [BACK, Write(params=A, is_mend=True), CLIP, STEP],
    ),
    "a root of inf": ("GM138", [BACK, Measure(use="root"), CLIP, STEP], [BACK, Measure(), CLIP, STEP]),
    "a truth value as order": ("GM138", [BACK, replace(CLIP, order=True), STEP], [BACK, replace(CLIP, order=1.0), STEP]),
    "an order below 1": ("GM138", [BACK, replace(CLIP, order=0.5), STEP], [BACK, replace(CLIP, order=math.inf), STEP]),
    "a hook": ("GM137", [Hook(), BACK, STEP], [BACK, STEP]),
    "a hook after the backward pass": ("GM108", [BACK, Hook(params=A, is_late=True), STEP], [Hook(is_late=True), BACK, STEP]),
    "a limit as the order": ("GM138", [BACK, replace(CLIP, exchanged="1"), STEP], [BACK, CLIP, STEP]),
    "a norm after it": (
        "GM131",
        [BACK, CLIP, Measure(params=A, use="log"), STEP],
        [BACK, Measure(params=A, use="log"), CLIP, STEP],
    ),
}


def codes(events: Sequence[Event], **known: bool) -> set[str]:
    return {one.code for one in found(rounds(events, **known))}


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_found_and_its_mend_is_not(name: str) -> None:
    code, wrong, right = CASES[name]
    assert codes(wrong) == {code}
    assert codes(right) == set()


@pytest.mark.parametrize(
    "name",
    sorted(
        set(CASES)
        - {
            "each parameter",
            "one process",
            "steps between",
            "a closure",
            "updates",
            "a hook that nothing calls",
            "a hook",
            "a root of inf",
            "a matrix norm",
            "a limit as the order",
            "local shards",
            "local shards, by hand",
            "an optimizer that nothing takes",
            "copies",
            "other variables",
            "variables in another order",
        }
    ),
)
def test_what_concerns_unknown_gradients_of_several_optimizers_is_no_alarm(name: str) -> None:
    events = [replace(x, params=UNKNOWN) for x in CASES[name][1]]
    assert codes([replace(STEP, params=UNKNOWN, optimizer="other"), *events]) == set()


def test_gradients_that_nothing_removes() -> None:
    assert codes([BACK, CLIP, STEP] * 2, zeroes=False) == {"GM132"}
    assert codes([BACK, CLIP, STEP] * 2) == set()
    assert codes([ZERO, BACK, CLIP, STEP] * 2, zeroes=False) == set()


def test_events_without_an_order_show_only_a_scale() -> None:
    events = [SCALED, CLIP, replace(STEP, scaler="scaler"), CLIP]
    assert codes(events, is_ordered=False) == {"GM107"}


def test_another_optimizer_between_takes_what_was_before() -> None:
    other = replace(STEP, params=B, optimizer="p")
    assert codes([BACK, CLIP, other, ZERO, BACK, CLIP, STEP, other]) == set()
    assert (
        codes([replace(x, params=UNKNOWN) for x in [BACK, CLIP, STEP]] + [replace(x, params=UNKNOWN) for x in [BACK, other]])
        == set()
    )


def test_sets_of_parameters() -> None:
    part = Params.of(("a", "head"))
    assert (A.meets(part), A.covers(part), part.covers(A), A.meets(B), A.covers(B)) == (True, True, None, False, False)
    assert (A.meets(UNKNOWN), A.covers(UNKNOWN), UNKNOWN.covers(A)) == (None, None, None)
    assert Params.joined([A, B]).without(part) == B
    assert A.without(UNKNOWN) == Params()
    numbers = Params.of(*range(5)), Params.of(3, 9)
    assert (numbers[0].meets(numbers[1]), numbers[1].without(numbers[0])) == (True, Params.of(9))


def test_every_rule_has_a_case() -> None:
    assert {case[0] for case in CASES.values()} | {"GM132"} <= MISTAKES.keys()
    fired = {rule for rule in RULES for _, wrong, _ in CASES.values() for one in rounds(wrong) if any(rule(one))}
    assert len(fired) == len(RULES) - 1, "never_zeroed has a test of its own"
