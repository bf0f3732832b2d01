"""What gradients come in: Python's containers, iterators, parameters; the same container comes out."""

from __future__ import annotations

import itertools
from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework

import gradclip
from gradclip.dialects import optax, tensorflow, torch
from gradclip.errors import GradclipWarning

RULE = optax.clip_by_global_norm(1.0)
Layer = namedtuple("Layer", ["weight", "bias"])


def leaves(backend: Framework, tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [x for value in tree.values() for x in leaves(backend, value)]
    if isinstance(tree, (list, tuple)):
        return [x for value in tree for x in leaves(backend, value)]
    return [None if tree is None else backend.read(tree).tolist()]


@pytest.mark.parametrize(
    "container",
    [
        lambda a, b: [a, None, b],
        lambda a, b: (a, (b, None)),
        lambda a, b: {"a": a, "nested": {"b": [b], "none": None}},
        lambda a, b: OrderedDict(b=b, a=a),
        lambda a, b: [Layer(a, None), Layer(weight=None, bias=b)],
        lambda a, b: defaultdict(list, a=a, b=b),
        lambda a, b: [[], {}, (), a, b],
    ],
    ids=["list", "tuple", "dict", "ordered dict", "namedtuple", "default dict", "empty ones"],
)
def test_same_container(backend: Framework, container: Any) -> None:
    tree = container(backend.make([3.0]), backend.make([4.0]))
    result = gradclip.clip(tree, RULE)
    assert type(result.grads) is type(tree)
    if isinstance(tree, dict):
        assert list(result.grads) == list(tree)
    if isinstance(tree, list) and isinstance(tree[0], Layer):
        assert type(result.grads[0]) is Layer
    got = np.array([x[0] for x in leaves(backend, result.grads) if x])
    want = np.array([x[0] for x in leaves(backend, tree) if x]) / 5
    assert np.abs(got - want).max() <= 1e-7
    assert [x is None for x in leaves(backend, result.grads)] == [x is None for x in leaves(backend, tree)]
    assert result.norm == 5.0


@pytest.mark.parametrize("grads", [[], (), {}, [None, None], {"w": None}])
def test_nothing_inside(backend: Framework, grads: Any) -> None:
    for clip in (gradclip.clip, gradclip.clip_):
        result = clip(grads, RULE)
        assert result.grads == grads
        assert result.norm == 0.0
        assert result.coefficient == 1.0
    assert gradclip.clip(grads, optax.clip(1.0)) == gradclip.ClipResult(grads, None, None)


@pytest.mark.parametrize(
    "iterate",
    [
        iter,
        lambda grads: (g for g in grads),
        lambda grads: itertools.chain(grads[:1], grads[1:]),
        lambda grads: filter(lambda _: True, grads),
        lambda grads: dict(enumerate(grads)).values(),
    ],
    ids=["iterator", "generator", "chain", "filter", "view"],
)
def test_iterators_are_used_once(backend: Framework, iterate: Any) -> None:
    """https://github.com/pytorch/pytorch/issues/148259"""
    grads = [backend.make([3.0]), backend.make([4.0])]
    result = gradclip.clip(iterate(grads), RULE)
    assert isinstance(result.grads, list)
    assert len(result.grads) == 2
    assert result.norm == 5.0
    if backend.mutable:
        gradclip.clip_(iterate(grads), RULE)
        assert np.abs([backend.read(g)[0] for g in grads] - np.array([0.6, 0.8])).max() < 1e-7


def test_two_stages(backend: Framework) -> None:
    for rule in (torch.clip_grad_norm(1.0), tensorflow.clip_by_norm(1.0), tensorflow.clip_by_norm(1.0, axes=[0])):
        grads = [backend.make([3.0, 4.0]), None, backend.make([0.5])]
        norm = gradclip.norm(grads, rule)
        whole = gradclip.clip(grads, rule).grads
        halves = gradclip.scale_by_norm(grads, rule, norm).grads
        for a, b in zip(whole, halves, strict=True):
            assert (a is None and b is None) or np.array_equal(backend.read(a), backend.read(b))
        if backend.mutable:
            written = gradclip.scale_by_norm_(grads, rule, norm)
            assert np.array_equal(backend.read(written.grads[0]), backend.read(whole[0]))


def test_a_known_norm_is_believed(backend: Framework) -> None:
    result = gradclip.scale_by_norm(backend.make([3.0, 4.0]), RULE, backend.make(10.0))
    assert np.abs(backend.read(result.grads) - [0.3, 0.4]).max() < 1e-7
    clipped, norm = gradclip.clip_by_global_norm([backend.make([3.0, 4.0])], 1.0, use_norm=backend.make(10.0))
    assert np.abs(backend.read(clipped[0]) - [0.3, 0.4]).max() < 1e-7
    assert backend.read(norm) == 10.0


def test_a_tensor_as_limit(backend: Framework) -> None:
    for rule in (torch.clip_grad_norm(backend.make(1.0)), tensorflow.clip_by_norm(backend.make([1.0]))):
        got = gradclip.clip([backend.make([3.0, 4.0])], rule).grads[0]
        assert np.abs(backend.read(got) - [0.6, 0.8]).max() < 3e-7
    with pytest.raises(ValueError, match="max_norm must not be negative"):
        gradclip.clip([backend.make([3.0, 4.0])], torch.clip_grad_norm(backend.make(-1.0)))
    with pytest.raises(ValueError, match="max_norm must have one element"):
        torch.clip_grad_norm(backend.make([1.0, 2.0]))


def test_a_limit_a_row(backend: Framework) -> None:
    t = backend.make([[3.0, 4.0], [6.0, 8.0]])
    got = backend.read(gradclip.clip_by_norm(t, backend.make([[1.0], [2.0]]), axes=1))
    assert np.abs(got - [[0.6, 0.8], [1.2, 1.6]]).max() < 3e-7
    with pytest.raises(ValueError, match="does not fit"):
        gradclip.clip_by_norm(backend.make([[3.0], [4.0]]), backend.make([[1.0, 2.0]]))


class TestParameters:
    """Frameworks whose parameters hold their gradient; in the others the gradients themselves are passed."""

    def test_gradients_are_clipped_in_place(self, backend: Framework) -> None:
        grads = [backend.make([3.0, 4.0]), None, backend.make([1.0, 2.0])]
        if not backend.mutable:
            with pytest.raises(TypeError, match="cannot be written in place"):
                gradclip.clip_grad_norm_(grads, 5.0)
            return
        parameters = [backend.parameter(g) for g in grads] if backend.holds_gradients else grads
        norm = gradclip.clip_grad_norm_(iter(parameters), max_norm=5.0)
        assert round(float(backend.read(norm)), 4) == 5.4772
        after = [backend.gradient(p) for p in parameters] if backend.holds_gradients else grads
        assert after[1] is None
        assert backend.read(after[0]).round(4).tolist() == [2.7386, 3.6515]
        assert backend.read(after[2]).round(4).tolist() == [0.9129, 1.8257]
        gradclip.clip_grad_value_(parameters, 1.0)
        after = [backend.gradient(p) for p in parameters] if backend.holds_gradients else grads
        assert backend.read(after[0]).tolist() == [1.0, 1.0]

    @pytest.mark.needs("holds_gradients")
    def test_a_parameter_stands_for_its_gradient(self, backend: Framework) -> None:
        parameters = {"w": backend.parameter(backend.make([3.0, 4.0])), "b": backend.parameter(None)}
        result = gradclip.clip(parameters, RULE)
        assert np.abs(backend.read(result.grads["w"]) - [0.6, 0.8]).max() < 1e-7
        assert result.grads["b"] is None
        assert backend.read(backend.gradient(parameters["w"])).tolist() == [3.0, 4.0]
        gradclip.clip_(parameters, RULE)
        assert np.abs(backend.read(backend.gradient(parameters["w"])) - [0.6, 0.8]).max() < 1e-7

    @pytest.mark.needs("holds_gradients")
    def test_the_same_parameter_twice(self, backend: Framework) -> None:
        parameter = backend.parameter(backend.make([3.0, 4.0]))
        assert float(backend.read(gradclip.clip_grad_norm_([parameter, parameter], 1.0))) == 5.0
        assert np.abs(backend.read(backend.gradient(parameter)) - [0.6, 0.8]).max() < 3e-7

    @pytest.mark.needs("holds_gradients")
    def test_none_has_a_gradient(self, backend: Framework) -> None:
        with pytest.warns(GradclipWarning, match="None of the parameters has a gradient"):
            norm = gradclip.clip_grad_norm_([backend.parameter(None)], 1.0)
        assert float(backend.read(norm)) == 0.0
        with pytest.warns(GradclipWarning, match=r"Received: 1 parameters\nHint: clip after backward"):
            gradclip.clip_([backend.parameter(None)], RULE)

    @pytest.mark.needs("holds_gradients")
    def test_parameters_where_gradients_belong(self, backend: Framework) -> None:
        parameter = backend.parameter(backend.make([3.0, 4.0]))
        with pytest.raises(TypeError, match=r"clip_by_norm takes gradients, not parameters.*\n.*\nHint: pass \[p.grad"):
            gradclip.clip_by_norm(parameter, 1.0)
        with pytest.raises(TypeError, match="clip_by_global_norm takes gradients, not parameters"):
            gradclip.clip_by_global_norm([parameter], 1.0)

    @pytest.mark.needs("holds_gradients")
    def test_gradients_where_parameters_belong(self, backend: Framework) -> None:
        with pytest.warns(GradclipWarning, match="None of the parameters has a gradient"):
            gradclip.clip_grad_norm_([backend.make([3.0, 4.0])], 1.0)
        with pytest.raises(AttributeError, match="None is not a parameter"):
            gradclip.clip_grad_norm_([backend.parameter(None), None], 1.0)

    @pytest.mark.needs("holds_gradients")
    def test_relative_to_the_parameters_that_hold_the_gradients(self, backend: Framework) -> None:
        parameter = backend.parameter(backend.make([3.0, 4.0]))
        gradclip.clip_([parameter], optax.adaptive_grad_clip(1.0))  # a parameter of zeros counts as 1e-3
        assert np.abs(backend.read(backend.gradient(parameter)) - [0.0006, 0.0008]).max() < 1e-9
