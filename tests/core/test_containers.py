"""Containers of gradients: Python's containers, iterators, parameters; the result has the same container."""

from __future__ import annotations

import itertools
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from oracle import ulps

import gradclip
from gradclip.core.errors import GradclipWarning
from gradclip.dialects import optax, tensorflow, torch

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
    assert ulps(got, want, "float32") <= 4
    assert [x is None for x in leaves(backend, result.grads)] == [x is None for x in leaves(backend, tree)]
    assert result.norm == 5.0

    clipped, norm = gradclip.clip_by_global_norm(tree, 1.0)
    assert type(clipped) is (list if isinstance(tree, tuple) else type(tree))  # a list replaces a tuple, as in TensorFlow
    assert leaves(backend, clipped) == leaves(backend, result.grads)
    assert float(norm) == float(gradclip.global_norm(tree)) == 5.0


def test_the_functions_of_tensorflow_take_iterators(backend: Framework) -> None:
    by_name = {"a": backend.make([3.0]), "b": backend.make([4.0])}
    for iterate in (lambda: iter(by_name.values()), by_name.values, lambda: (x for x in by_name.values())):
        clipped, norm = gradclip.clip_by_global_norm(iterate(), 1.0)
        assert leaves(backend, clipped) == leaves(backend, list(gradclip.clip(by_name, RULE).grads.values()))
        assert float(norm) == float(gradclip.global_norm(iterate())) == 5.0


@pytest.mark.parametrize("grads", [[], (), {}, [None, None], {"w": None}])
def test_nothing_inside(backend: Framework, grads: Any) -> None:
    for clip in (gradclip.clip, gradclip.clip_):
        result = clip(grads, RULE)
        assert result.grads == grads
        assert result.norm == 0.0
        assert result.coefficient == 1.0
    by_value = gradclip.clip(grads, optax.clip(1.0))
    assert (by_value.grads, by_value.norm, by_value.coefficient) == (grads, None, None)


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
        assert ulps([backend.read(g)[0] for g in grads], [0.6, 0.8], "float32") <= 4


@pytest.mark.parametrize(
    "iterate",
    [
        lambda grads: grads.items(),
        lambda grads: iter(grads.items()),
        lambda grads: ((name, x) for name, x in grads.items()),
        lambda grads: zip(grads, grads.values(), strict=True),
        lambda grads: itertools.chain(grads.items()),
    ],
    ids=["view", "iterator", "generator", "zip", "chain"],
)
def test_names_beside_their_gradients_are_a_dict(backend: Framework, iterate: Any) -> None:
    grads = {"a.w": backend.make([3.0]), "none": None, "b.w": backend.make([4.0])}
    groups = [gradclip.Group(RULE, "a.*"), gradclip.Group(torch.clip_grad_norm(2.0), "b.*")]
    for rule in (RULE, groups):
        got, want = gradclip.clip(iterate(grads), rule), gradclip.clip(grads, rule)
        assert leaves(backend, got.grads) == leaves(backend, want.grads)
        assert list(got.grads) == list(want.grads)  # JAX sorts the names
        assert got.norm == want.norm
    assert list(gradclip.norms_by_name(iterate(grads))) == ["a.w", "b.w"]
    if backend.mutable:
        gradclip.clip_(iterate(grads), groups)
        assert ulps([backend.read(grads[name])[0] for name in ("a.w", "b.w")], [1.0, 2.0 * 4.0 / (4.0 + 1e-6)], "float32") <= 4


def test_one_name_for_two_gradients_is_an_error(backend: Framework) -> None:
    pairs = [("w", backend.make([3.0])), ("w", backend.make([4.0]))]
    with pytest.raises(TypeError, match="Two gradients have one name") as error:
        gradclip.clip(iter(pairs), RULE)
    assert "name='w'" in str(error.value)
    assert [backend.read(x).tolist() for _, x in pairs] == [[3.0], [4.0]]


def test_two_stages(backend: Framework) -> None:
    for rule in (torch.clip_grad_norm(1.0), tensorflow.clip_by_norm(1.0), tensorflow.clip_by_norm(1.0, axes=[0])):
        grads = [backend.make([3.0, 4.0]), None, backend.make([0.5])]
        norm = gradclip.norm(grads, rule)
        whole = gradclip.clip(grads, rule).grads
        halves = gradclip.scale_by_norm(grads, rule, norm).grads
        for a, b in zip(whole, halves, strict=True):  # the norm between the stages is rounded to float32
            assert (a is None and b is None) or ulps(backend.read(a), backend.read(b), "float32") <= 1
        if backend.mutable:
            written = gradclip.scale_by_norm_(grads, rule, norm)
            assert np.array_equal(backend.read(written.grads[0]), backend.read(halves[0]))


def test_a_known_norm_is_believed(backend: Framework) -> None:
    result = gradclip.scale_by_norm(backend.make([3.0, 4.0]), RULE, backend.make(10.0))
    assert ulps(backend.read(result.grads), [0.3, 0.4], "float32") <= 4
    clipped, norm = gradclip.clip_by_global_norm([backend.make([3.0, 4.0])], 1.0, use_norm=backend.make(10.0))
    assert ulps(backend.read(clipped[0]), [0.3, 0.4], "float32") <= 4
    assert backend.read(norm) == 10.0


def test_a_tensor_as_limit(backend: Framework) -> None:
    for rule in (torch.clip_grad_norm(backend.make(1.0)), tensorflow.clip_by_norm(backend.make([1.0]))):
        got = gradclip.clip([backend.make([3.0, 4.0])], rule).grads[0]
        assert ulps(backend.read(got), [0.6, 0.8], "float32") <= 4
    with pytest.raises(ValueError, match="max_norm must not be negative"):
        gradclip.clip([backend.make([3.0, 4.0])], torch.clip_grad_norm(backend.make(-1.0)))
    with pytest.raises(ValueError, match="max_norm must have one element"):
        torch.clip_grad_norm(backend.make([1.0, 2.0]))


def test_a_limit_a_row(backend: Framework) -> None:
    t = backend.make([[3.0, 4.0], [6.0, 8.0]])
    got = backend.read(gradclip.clip_by_norm(t, backend.make([[1.0], [2.0]]), axes=1))
    assert ulps(got, [[0.6, 0.8], [1.2, 1.6]], "float32") <= 4
    for axes, limit in ((None, [[1.0, 2.0]]), (1, [[1.0], [2.0], [3.0]]), (1, [[[1.0]], [[2.0]]])):
        with pytest.raises(ValueError, match=r"The limit does not fit the gradient\.\nReceived: shapes"):
            gradclip.clip_by_norm(backend.make([[3.0], [4.0]]), backend.make(limit), axes=axes)
    if backend.mutable:
        grads = [backend.make([[5.0, 5.0]]), backend.make([[5.0]])]
        for rule in (
            tensorflow.clip_by_norm(backend.make([[1.0, 2.0]]), axes=1),
            tensorflow.clip_by_value(backend.make([0, 0]), 1.0),
        ):
            with pytest.raises(ValueError, match="does not fit"):
                gradclip.clip_(grads, rule)
        assert backend.read(grads[0]).tolist() == [[5.0, 5.0]]


class Named:
    """Has a mapping's methods without being one, like ``torch.nn.ParameterDict``."""

    def __init__(self, tensors: dict[str, Any]) -> None:
        self.tensors = tensors

    def __iter__(self) -> Any:
        return iter(self.tensors)

    def keys(self) -> Any:
        return self.tensors.keys()

    def items(self) -> Any:
        return self.tensors.items()


def test_mappings_that_are_no_dicts(backend: Framework) -> None:
    tensors = {"a": backend.make([3.0]), "b": backend.make([4.0])}
    assert gradclip.norm(Named(tensors), RULE) == 5.0
    if backend.name == "jax":  # JAX treats it as a leaf until it is registered as a pytree
        with pytest.raises(TypeError, match=r"jax does not take this as a container.\nReceived: .*UserDict\nHint: pass a dict"):
            gradclip.clip(UserDict(tensors), RULE)
        return
    result = gradclip.clip(UserDict(tensors), RULE)
    assert type(result.grads) is UserDict
    assert ulps(backend.read(result.grads["b"]), [0.8], "float32") <= 4
    assert gradclip.norm([UserDict(tensors)], RULE) == 5.0


def test_parameters_are_found_by_their_place(backend: Framework) -> None:
    """gradclip matches parameters by key, not by order: a dict of parameters may have another order."""
    rule = optax.adaptive_grad_clip(1.0)
    grads = {"a": backend.make([30.0]), "b": [backend.make([40.0])]}
    for params in (
        {"b": [backend.make([2.0])], "a": backend.make([1.0])},
        OrderedDict(b=[backend.make([2.0])], a=backend.make([1.0])),
    ):
        got = gradclip.clip(grads, rule, params=params).grads
        assert backend.read(got["a"]).tolist() == [1.0]
        assert backend.read(got["b"][0]).tolist() == [2.0]
    listed = gradclip.clip([grads["a"]], rule, params=iter([backend.make([1.0])])).grads
    assert backend.read(listed[0]).tolist() == [1.0]


def test_the_same_gradient_twice(backend: Framework) -> None:
    """It counts once, and an in-place clip scales it once."""
    gradient, other = backend.make([3.0, 0.0]), backend.make([3.0, 0.0])
    assert gradclip.norm([gradient, {"again": gradient}], RULE) == 3.0
    assert ulps(np.float64(gradclip.norm([gradient, other], RULE)), 18**0.5, "float32") <= 1
    flat = backend.make([3.0, 4.0])  # views of one buffer are not the same gradient; nor are tensors without memory
    assert gradclip.norm([flat[:1], flat[1:], backend.make([]), backend.make([])], RULE) == 5.0
    clipped = gradclip.ClipGradByGlobalNorm(1.0)([("w", gradient), ("w", gradient), ("w", None)])
    assert [name for name, _ in clipped] == ["w", "w"]
    assert [ulps(backend.read(g), [1.0, 0.0], "float32") for _, g in clipped] == [0.0, 0.0]
    if backend.mutable:
        for rule, want in ((tensorflow.clip_by_norm(0.5), 0.5), (tensorflow.clip_by_value(-1.0, 0.25), 0.25)):
            gradclip.clip_([other, other], rule)
            assert backend.read(other).tolist() == [want, 0.0]


def test_a_scalar_of_numpy_is_an_array_among_others() -> None:
    (scalar, array), norm = gradclip.clip_by_global_norm([np.float64(3.0), np.array([4.0])], 1.0)
    assert (type(scalar), array.dtype, norm.dtype) == (np.float64, np.float64, np.float64)
    assert ulps(np.array([scalar, *array]), [0.6, 0.8], "float64") <= 1


def test_arrays_that_cannot_be_written_are_clipped_into_new_ones() -> None:
    fixed = np.array([3.0, 4.0])
    fixed.flags.writeable = False
    [(_, clipped)] = gradclip.ClipGradByGlobalNorm(1.0)([("w", fixed)])
    assert ulps(clipped, [0.6, 0.8], "float64") <= 1
    assert fixed.tolist() == [3.0, 4.0]


class TestParameters:
    """Frameworks whose parameters hold their gradient; others get the gradients themselves."""

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
        assert ulps(backend.read(result.grads["w"]), [0.6, 0.8], "float32") <= 4
        assert result.grads["b"] is None
        assert backend.read(backend.gradient(parameters["w"])).tolist() == [3.0, 4.0]
        gradclip.clip_(parameters, RULE)
        assert ulps(backend.read(backend.gradient(parameters["w"])), [0.6, 0.8], "float32") <= 4

    @pytest.mark.needs("holds_gradients")
    def test_the_same_parameter_twice(self, backend: Framework) -> None:
        parameter = backend.parameter(backend.make([3.0, 4.0]))
        assert float(backend.read(gradclip.clip_grad_norm_([parameter, parameter], 1.0))) == 5.0
        assert ulps(backend.read(backend.gradient(parameter)), [0.6, 0.8], "float32") <= 4

    @pytest.mark.needs("holds_gradients")
    @pytest.mark.parametrize(
        "listed",
        [
            lambda backend, p: [backend.gradient(p), backend.gradient(p)],
            lambda backend, p: [p, backend.gradient(p)],
            lambda backend, p: {"w": p, "tied": [p, p]},
        ],
        ids=["gradients", "both", "parameters"],
    )
    @pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
    def test_a_parameter_and_its_gradient_are_the_same(self, backend: Framework, listed: Any, sparse: bool) -> None:
        """It holds even if each access to ``.grad`` makes a new object, as in Paddle."""
        gradient = backend.sparse([1, 1], [[1.0, 4.0], [2.0, 0.0]], 2) if sparse else backend.make([[0.0, 0.0], [3.0, 4.0]])
        parameter = backend.parameter(gradient)
        assert gradclip.norm(listed(backend, parameter), RULE) == 5.0
        gradclip.clip_(listed(backend, parameter), RULE)
        after = backend.gradient(parameter)
        assert ulps(backend.densify(after) if sparse else backend.read(after), [[0.0, 0.0], [0.6, 0.8]], "float32") <= 4

    @pytest.mark.needs("holds_gradients")
    def test_pairs_of_the_same_parameter(self, backend: Framework) -> None:
        for clip, in_place in ((gradclip.ClipGradByGlobalNorm(1.0), True), (gradclip.ClipGradByNorm(1.0), False)):
            parameter = backend.parameter(backend.make([3.0, 4.0]))
            pairs = clip([(parameter, backend.gradient(parameter)), (parameter, backend.gradient(parameter))])
            for _, gradient in pairs:
                assert ulps(backend.read(gradient), [0.6, 0.8], "float32") <= 4
            assert (backend.read(backend.gradient(parameter))[0] != 3.0) == in_place

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
        with pytest.warns(GradclipWarning, match=r"None of these tensors has a gradient(?s:.)*Hint: gradients themselves"):
            gradclip.clip_grad_norm_([backend.make([3.0, 4.0])], 1.0)
        with pytest.raises(AttributeError, match="None is not a parameter"):
            gradclip.clip_grad_norm_([backend.parameter(None), None], 1.0)

    @pytest.mark.needs("holds_gradients")
    def test_relative_to_the_parameters_that_hold_the_gradients(self, backend: Framework) -> None:
        parameter = backend.parameter(backend.make([3.0, 4.0]))
        gradclip.clip_([parameter], optax.adaptive_grad_clip(1.0))  # optax counts a parameter of zeros as 1e-3
        assert ulps(backend.read(backend.gradient(parameter)), [0.0006, 0.0008], "float32") <= 4
