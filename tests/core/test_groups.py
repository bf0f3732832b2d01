"""Rules for some of the gradients, several in one call: their clips, their reads, and their errors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from grouped import ALL, ARRAYS, DECODER, ENCODER, gradients, length, near
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracle import ratio, total, ulps
from rules import is_dense, kinds

import gradclip
from gradclip import Group
from gradclip.dialects import optax, tensorflow, torch

# ---- against the formulas ------------------------------------------------------------------------------------------------


@pytest.mark.drawn(5, jax=2)
@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, 0.0, float("inf")])
def test_what_counts_and_what_is_scaled(backend: Framework, order: float) -> None:
    for dtype in backend.dtypes:
        group = Group(torch.clip_grad_norm(0.5, order), "decoder.*", counted="*")
        result = gradclip.clip(gradients(backend, dtype), group)
        want = length(ALL, order, dtype)
        assert ulps(float(result.norm), want, "float32") <= 4
        near(backend, result.grads, dict.fromkeys(DECODER, ratio(want, 0.5, 1e-6)), dtype)


def test_several_groups(backend: Framework) -> None:
    """One group counts all gradients, one its own, one has a norm for each gradient, and one counts gradients of others."""
    for dtype in backend.dtypes:
        groups = [
            Group(optax.clip_by_global_norm(1.0), "encoder.*", counted=["*"]),
            Group(tensorflow.clip_by_norm(0.5), "decoder.*"),
            Group(torch.clip_grad_norm(0.125, 1.0), counted=["encoder.bias", "head"]),
        ]
        result = gradclip.clip(gradients(backend, dtype), groups)
        every, own = length(ALL, 2.0), [length([name], 2.0) for name in DECODER]
        last = length(["encoder.bias", "head"], 1.0)
        assert ulps(float(result.norm[0]), every, "float32") <= 4
        assert [name for name, n in result.norm[1].items() if n is not None] == DECODER
        assert all(ulps(float(result.norm[1][name]), want, "float32") <= 4 for name, want in zip(DECODER, own, strict=True))
        assert ulps(float(result.norm[2]), last, "float32") <= 4
        factors = dict.fromkeys(ENCODER, ratio(every, 1.0)) | {"head": ratio(last, 0.125, 1e-6)}
        factors |= {name: ratio(n, 0.5) for name, n in zip(DECODER, own, strict=True)}
        near(backend, result.grads, factors, dtype)
        assert ulps(float(result.coefficient[0]), factors["encoder.bias"], "float32") <= 4
        assert [name for name, c in result.coefficient[1].items() if c is not None] == DECODER


def test_bounds_beside_a_norm(backend: Framework) -> None:
    groups = [Group(optax.clip(0.25), "head"), Group(optax.clip_by_global_norm(1.0), "encoder.*")]
    result = gradclip.clip(gradients(backend), groups)
    assert (result.norm[0], result.coefficient[0]) == (None, None)
    assert backend.read(result.grads["head"]) == -0.25
    rest = {**dict.fromkeys(ENCODER, ratio(length(ENCODER, 2.0), 1.0)), "head": 0.2}
    near(backend, result.grads, rest, "float32")


def test_in_place(backend: Framework) -> None:
    given = gradients(backend)
    groups = [Group(optax.clip_by_global_norm(1.0), "encoder.*", counted="*"), Group(optax.clip(0.25), "head")]
    if not backend.mutable:
        with pytest.raises(TypeError, match="cannot be written in place"):
            gradclip.clip_(given, groups)
        return
    before = dict(given)
    result = gradclip.clip_(given, groups)
    assert all(result.grads[name] is before[name] for name in ALL)
    near(backend, given, {**dict.fromkeys(ENCODER, ratio(length(ALL, 2.0), 1.0)), "head": 0.2}, "float32")


KINDS = ("bias", "weight")


def test_in_two_stages(backend: Framework) -> None:
    groups = [
        Group(torch.clip_grad_norm(0.5), "encoder.*", counted="*"),
        Group(tensorflow.clip_by_norm(0.5), "decoder.bias"),
        Group(tensorflow.clip_by_norm(0.5, axes=[0]), "decoder.weight"),
    ]
    want = gradclip.clip(gradients(backend), groups)
    norms = gradclip.norm(gradients(backend), groups)
    assert [[k for k, n in each.items() if n is not None] for each in norms[1:]] == [["decoder." + kind] for kind in KINDS]
    assert ulps(backend.read(norms[2]["decoder.weight"]), [[1.5, 0.0, 2.5]], "float32") <= 4
    assert ulps(backend.read(want.grads["decoder.weight"]), [[0.5, 0.0, -0.5]], "float32") <= 4
    given = gradients(backend)
    two = gradclip.scale_by_norm_(given, groups, norms) if backend.mutable else gradclip.scale_by_norm(given, groups, norms)
    for name in ALL:
        assert ulps(backend.read(two.grads[name]), backend.read(want.grads[name]), "float32") <= 1
    one = gradclip.scale_by_norm(gradients(backend), Group(optax.clip_by_global_norm(1.0), "head"), 2.5)
    assert backend.read(one.grads["head"]) == -0.5
    for wrong in (norms[:2], 1.0):
        with pytest.raises(TypeError, match=r"There must be a norm for each group(.|\n)*3 groups"):
            gradclip.scale_by_norm(gradients(backend), groups, wrong)


def test_a_limit_relative_to_the_parameters(backend: Framework) -> None:
    params = {name: backend.make(np.full(x.shape, 0.5)) for name, x in ARRAYS.items()}
    groups = [Group(optax.adaptive_grad_clip(0.1), "encoder.*"), Group(optax.clip_by_global_norm(1.0))]
    result = gradclip.clip(gradients(backend), groups, params=params)
    rule = optax.adaptive_grad_clip(0.1)
    apart = gradclip.clip([gradients(backend)[n] for n in ENCODER], rule, params=[params[n] for n in ENCODER]).grads
    for name, want in zip(ENCODER, apart, strict=True):
        assert np.array_equal(backend.read(result.grads[name]), backend.read(want))
    assert ulps(float(result.norm[1]), length([*DECODER, "head"], 2.0), "float32") <= 4
    with pytest.raises(TypeError, match=r"adaptive_grad_clip needs the parameters"):
        gradclip.clip(gradients(backend), groups)
    by_place = [Group(rule, "0"), Group(optax.adaptive_grad_clip(0.2), "1")]
    listed, of_list = ([tree[n] for n in ENCODER[:2]] for tree in (gradients(backend), params))
    want = gradclip.clip(listed, by_place, params=of_list).grads
    got = gradclip.clip(listed, by_place, params=iter(of_list)).grads  # the iterator is read once, for both groups
    assert [backend.read(x).tolist() for x in got] == [backend.read(x).tolist() for x in want]


def test_dtypes_together(backend: Framework) -> None:
    """A norm over wide dtypes keeps their accuracy, even if another group counts the gradients too."""
    given = gradients(backend) | {
        "head": backend.make(np.array(0.1), "float64"),
        "decoder.bias": backend.make([0.3], "float32"),
    }
    groups = [Group(torch.clip_grad_norm(1.0), "encoder.*"), Group(torch.clip_grad_norm(1.0), "decoder.*", counted="*")]
    known = {name: backend.read(x) for name, x in given.items()}
    for found, names in zip(gradclip.norm(given, groups), (ENCODER, ALL), strict=True):
        want = total([known[name] for name in names], 2.0)
        assert ulps(float(found), want, "float64" if names is ALL else "float32") <= 4


# ---- the same as alone ---------------------------------------------------------------------------------------------------

settings.register_profile(
    "groups",
    settings.get_profile("gradclip"),
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("groups")

RULES = {name: make(1.0) for name, make in kinds(lambda rule: is_dense(rule) and 1 <= rule.order <= 3).items()}
rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
numbers = st.floats(2.0**-40, 2.0**40, width=32) | st.floats(-(2.0**40), -(2.0**-40), width=32) | st.just(0.0)
shapes = st.sampled_from([(), (0,), (1,), (5,), (2, 3)])
some = st.lists(
    shapes.flatmap(lambda shape: hnp.arrays(np.float32, shape, elements=numbers)) | st.none(), min_size=1, max_size=4
)


def make(backend: Framework, grads: list[np.ndarray | None]) -> list[Any]:
    return [None if g is None else backend.make(g) for g in grads]


def equal(backend: Framework, got: list[Any], want: list[Any]) -> None:
    """Assert equality, bit for bit."""
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert (g is None) == (w is None)
        assert g is None or np.array_equal(backend.read(g), backend.read(w), equal_nan=True)


@rules
@given(grads=some.filter(lambda grads: any(g is not None for g in grads)))
def test_one_group_of_everything_is_the_rule(backend: Framework, rule: gradclip.Rule, grads: list[Any]) -> None:
    want = gradclip.clip(make(backend, grads), rule)
    for group in (Group(rule), Group(rule, "*")):
        result = gradclip.clip(make(backend, grads), group)
        equal(backend, result.grads, want.grads)
        assert repr(result.norm) == repr(want.norm)
        assert repr(result.coefficient) == repr(want.coefficient)
    if backend.mutable:
        given = make(backend, grads)
        gradclip.clip_(given, [Group(rule)])
        equal(backend, given, gradclip.clip_(make(backend, grads), rule).grads)


@rules
@given(parts=st.lists(some, min_size=1, max_size=3), other=st.sampled_from(list(RULES.values())))
def test_disjoint_groups_are_as_many_calls(
    backend: Framework, rule: gradclip.Rule, other: gradclip.Rule, parts: list[Any]
) -> None:
    used = [rule, other, rule][: len(parts)]
    given = {str(k): make(backend, part) for k, part in enumerate(parts)}
    groups = [Group(r, f"{k}.*") for k, r in enumerate(used)]
    result = gradclip.clip(given, groups).grads
    for k, (part, r) in enumerate(zip(parts, used, strict=True)):
        equal(backend, result[str(k)], gradclip.clip(make(backend, part), r).grads)


# ---- traced, differentiated, reduced -------------------------------------------------------------------------------------


@pytest.mark.accuracy
@pytest.mark.needs("jits")
def test_traced(backend: Framework) -> None:
    groups = [
        Group(torch.clip_grad_norm(0.5), ["2", re.compile("3")], counted="*"),
        Group(tensorflow.clip_by_norm(0.5), lambda name, x: name == "1"),
        Group(optax.clip(0.25), "4"),
    ]
    every, second = length(ALL, 2.0), length([ALL[1]], 2.0)
    factors = [1.0, ratio(second, 0.5), *[ratio(every, 0.5, 1e-6)] * 2, 0.2]
    for how in backend.jits:

        def clipped(tensors: list[Any]) -> list[Any]:
            return list(gradclip.clip(tensors, groups).grads)

        got = backend.jit(how, clipped)(list(gradients(backend).values()))
        for g, x, factor in zip(got, ARRAYS.values(), factors, strict=True):
            assert ulps(backend.read(g), x * factor, "float32") <= 4


@pytest.mark.needs("trains")
def test_derivatives(backend: Framework) -> None:
    """The derivatives of overlapping groups match central differences in NumPy."""
    points = [np.array([1.0, 2.0, -3.0]), np.array([2.0, -1.0, 0.5]), np.array([0.1, 0.2, 0.3])]
    weights = [np.array([0.3, -1.1, 0.7]), np.array([0.5, 0.25, -2.0]), np.array([1.0, 2.0, 3.0])]
    groups = [Group(optax.clip_by_global_norm(1.0), "0", counted=["0", "1"]), Group(tensorflow.clip_by_norm(0.5), "1")]

    def loss(grads: list[Any]) -> Any:
        made = [backend.make(w, "float64") for w in weights]
        terms = [backend.sum(g * w) for g, w in zip(gradclip.clip(grads, groups).grads, made, strict=True)]
        return terms[0] + terms[1] + terms[2]

    def value(given: list[np.ndarray]) -> float:
        return sum(float((g * w).sum()) for g, w in zip(gradclip.clip(given, groups).grads, weights, strict=True))

    got = backend.derivative(loss, [backend.make(p, "float64") for p in points])
    for i, j in np.ndindex(3, 3):
        ends = []
        for sign in (1, -1):
            moved = [p.copy() for p in points]
            moved[i][j] += sign * 1e-5
            ends.append(value(moved))
        assert abs(got[i][j] - (ends[0] - ends[1]) / 2e-5) <= 1e-8


def test_a_function_reduces_all_groups_at_once(backend: Framework) -> None:
    """The function gets a vector with each group's sum of powers; 2.5 is no multiple, as the sum over equal processes is."""
    seen = []

    def reduce(powers: Any) -> Any:
        seen.append(backend.read(powers).tolist())
        return powers * 2.5

    rule = torch.clip_grad_norm(0.5)
    groups = [Group(rule, "encoder.*"), Group(rule, "decoder.*", counted="*"), Group(rule, "no such name", counted="head")]
    norms = gradclip.norm(gradients(backend), groups, reduce=reduce)
    want = [length(names, 2.0) for names in (ENCODER, ALL, ["head"])]
    assert len(seen) == 1
    assert all(ulps(power, n**2, "float32") <= 8 for power, n in zip(seen[0], want, strict=True))
    assert all(ulps(float(n), w * 2.5**0.5, "float32") <= 4 for n, w in zip(norms, want, strict=True))
    seen.clear()
    gradclip.norm(gradients(backend), [*groups[:2], Group(torch.clip_grad_norm(1.0, 1.0), "head")], reduce=reduce)
    assert list(map(len, seen)) == [2, 1], "once for each order"
    seen.clear()
    assert gradclip.norm(gradients(backend), groups[0], reduce=reduce) > 0
    assert isinstance(seen[0], float), "one group: a number, as for a rule alone"
    with pytest.raises(TypeError, match=r"reduce must return a tensor of 3 elements(.|\n)*for several groups a vector"):
        gradclip.norm(gradients(backend), groups, reduce=lambda powers: 1.0)


def test_rules_that_need_no_reduction_beside_one_that_does(backend: Framework) -> None:
    """The function gets the same value as for that group alone, once."""
    seen = []

    def reduce(power: Any) -> Any:
        seen.append(backend.read(power).item())
        return power * 2.5

    own, bounds = Group(tensorflow.clip_by_norm(0.5), "decoder.*"), Group(optax.clip(0.25), "head")
    groups = [bounds, own, Group(optax.clip_by_global_norm(1.0), "encoder.*")]
    result = gradclip.clip(gradients(backend), groups, reduce=reduce)
    every, each = length(ENCODER, 2.0) * 2.5**0.5, {name: length([name], 2.0) for name in DECODER}
    assert len(seen) == 1
    assert ulps(seen[0], length(ENCODER, 2.0) ** 2, "float32") <= 8
    assert result.norm[0] is None
    assert all(ulps(float(result.norm[1][name]), want, "float32") <= 4 for name, want in each.items())
    assert ulps(float(result.norm[2]), every, "float32") <= 4
    factors = {name: ratio(n, 0.5) for name, n in each.items()} | dict.fromkeys(ENCODER, ratio(every, 1.0)) | {"head": 0.2}
    near(backend, result.grads, factors, "float32")
    with pytest.raises(ValueError, match="reduce= is for a rule with one norm over all gradients"):
        gradclip.norm(gradients(backend), [own, bounds], reduce=reduce)


def test_known_norms_are_checked(backend: Framework) -> None:
    """The norms of each group are checked, even if it scales nothing here."""
    whole, each = optax.clip_by_global_norm(1.0), tensorflow.clip_by_norm(0.5)
    cases: list[tuple[list[Group], list[Any], type[Exception], str]] = [
        ([Group(each, "decoder.*")], [[6.0, 3.0]], ValueError, "one norm for each gradient(.|\n)*2 norms and 5 gradients"),
        ([Group(each, "decoder.*")], [6.0], TypeError, "one norm for each gradient"),
        ([Group(each, "decoder.*")], [[6.0, None, None, None, None]], TypeError, "A norm must be a number or a tensor"),
        ([Group(each, [])], [3.0], TypeError, "one norm for each gradient"),
    ]
    for wrong, error, text in (
        (None, TypeError, "A norm must be a number or a tensor"),
        ("x", TypeError, "A norm must be a number or a tensor"),
        (-5.0, ValueError, "A norm must not be negative"),
        ([5.0], TypeError, "A norm must be a number or a tensor"),
    ):
        cases.append(([Group(whole, [], counted="*"), Group(whole, "head")], [wrong, 5.0], error, text))
    for groups, known, error, text in cases:
        with pytest.raises(error, match=text):
            gradclip.scale_by_norm(gradients(backend), groups, known)
    with pytest.raises(TypeError, match="A norm must be a number or a tensor"):
        gradclip.scale_by_norm([None, backend.make([1.0])], Group(whole, "0"), "x")


@pytest.mark.parametrize("grads", [[None], [None, None]])
def test_the_norm_of_no_gradients_has_the_form_of_its_rule(backend: Framework, grads: list[Any]) -> None:
    """Alone, in a group, and in a group beside another with a gradient."""
    there = backend.make([3.0])
    forms = (
        (optax.clip_by_global_norm(1.0), 0.0, 1.0),
        (tensorflow.clip_by_norm(1.0), [None], [None]),
        (tensorflow.clip_by_norm(1.0, axes=[0]), [None], [None]),
        (optax.clip(1.0), None, None),
    )
    for rule, norm, factor in forms:
        beside = [Group(rule, lambda name, x: False), Group(rule)]
        result = gradclip.clip([there, *grads], beside)
        count = len(grads) + 1
        norm, factor = (x * count if isinstance(x, list) else x for x in (norm, factor))
        assert (result.norm[0], result.coefficient[0]) == (norm, factor)
        known = gradclip.norm([there, *grads], beside)
        assert gradclip.scale_by_norm([there, *grads], beside, known).norm[0] == norm
        alone = gradclip.clip([there, *grads], Group(rule, []))
        assert (alone.norm, alone.coefficient) == (norm, factor)


@pytest.mark.parametrize("key", ["a.b", "it's", "both ' and \"", "back\\slash", "\\n", "tab\tline\n", "é\x00\u200b\U000e0001"])
def test_a_name_is_the_key_itself(backend: Framework, key: str) -> None:
    assert list(gradclip.norms_by_name({key: backend.make([3.0])})) == [key]
