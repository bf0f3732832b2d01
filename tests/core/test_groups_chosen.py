"""Rules for some of the gradients: which gradients, how often they are read, when they are written, and errors."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from grouped import ALL, ARRAYS, ENCODER, gradients, length, near, reads_of
from oracle import norm, ratio, ulps

import gradclip
from gradclip import Group
from gradclip.core.registry import find
from gradclip.dialects import optax, tensorflow, torch

# ---- reads and writes ----------------------------------------------------------------------------------------------------


def test_overlapping_groups_read_each_gradient_once(backend: Framework) -> None:
    rule, given = torch.clip_grad_norm(0.5), gradients(backend)
    groups = [
        Group(rule, "encoder.*", counted="*"),
        Group(rule, "decoder.weight", counted=lambda name, x: len(x.shape) > 0),
        Group(tensorflow.clip_by_norm(0.5), ["decoder.bias", "head"]),
    ]
    with reads_of(backend) as reads:
        norms = gradclip.norm(given, groups)
    assert [reads[id(x)] for x in given.values()] == [1] * 5
    with reads_of(backend) as reads:
        gradclip.norm(given, [*groups[:2], Group(torch.clip_grad_norm(0.5, 1.0), "head", counted=["head", "encoder.*"])])
    assert [reads[id(given[name])] for name in ALL] == [1, 1, 2, 2, 2], "once for each order"
    with reads_of(backend) as reads:
        for group, n in zip(groups, norms, strict=True):
            apart = gradclip.norm(given, group)
            assert isinstance(n, dict) or ulps(float(n), float(apart), "float32") <= 1
    assert sum(reads.values()) == 5 + 4 + 2, "the counter sees repeated reads"


def test_tensors_select_themselves(backend: Framework) -> None:
    given = gradients(backend)
    rule, rest = optax.clip_by_global_norm(0.5), optax.clip_by_global_norm(0.25)
    for chosen in ([given[name] for name in ENCODER], {"params": [given[name] for name in ENCODER], "lr": 0.1}):
        groups = [Group(rule, chosen), Group(rest)]
        named = gradclip.clip(given, [Group(rule, "encoder.*"), Group(rest)])
        result = gradclip.clip(given, groups)
        for name in given:
            assert np.array_equal(backend.read(result.grads[name]), backend.read(named.grads[name]))
        assert isinstance(hash(groups[0]), int)
        assert groups[0] == groups[0]
        assert groups[0] != Group(rule, given["head"])
    alone = gradclip.clip(given, Group(rule, given["head"], counted=["*", given["head"]]))
    assert float(alone.norm) == float(gradclip.norm(given, rule))
    with pytest.raises(ValueError, match="None of the selected tensors is in this call"):
        gradclip.clip(given, Group(rule, [backend.make([1.0])]))


def test_what_no_group_selects_is_left_alone(backend: Framework) -> None:
    """gradclip does not read it, whatever its values: integers would raise."""
    odd = backend.make(np.array([7, 8]), "int32")
    given = gradients(backend) | {"steps": odd, "spoilt": backend.make([np.nan])}
    group = Group(optax.clip_by_global_norm(1.0), "encoder.*")
    with reads_of(backend) as reads:
        result = gradclip.clip(given, group)
    assert set(reads) == {id(given[name]) for name in ENCODER}
    assert np.array_equal(backend.read(result.grads["steps"]), [7, 8])
    assert np.isnan(backend.read(result.grads["spoilt"])).all()
    if backend.mutable:
        assert all(result.grads[name] is not given[name] for name in given), "new tensors, as everywhere"
        assert gradclip.clip_(given, group).grads["steps"] is odd
    with pytest.raises(TypeError, match="must be of a floating point or complex dtype"):
        gradclip.clip(given, Group(optax.clip_by_global_norm(1.0), "encoder.*", counted="*"))


@pytest.mark.needs("mutable")
def test_nothing_is_written_before_all_is_checked(backend: Framework) -> None:
    given = gradients(backend) | {"spoilt": backend.make([1.0, np.nan])}
    first = Group(optax.clip_by_global_norm(0.5), "encoder.*")
    for error, second in (
        (RuntimeError, Group(torch.clip_grad_norm(1.0, error_if_nonfinite=True), "spoilt", counted=["head", "spoilt"])),
        (ValueError, Group(tensorflow.clip_by_norm(1.0, axes=[3]), "decoder.*")),
        (TypeError, Group(optax.adaptive_grad_clip(0.1), "head")),
    ):
        with pytest.raises(error) as raised:
            gradclip.clip_(given, [first, second])
        near(backend, {name: given[name] for name in ALL}, {}, "float32")
        if error is RuntimeError:
            assert "spoilt" in str(raised.value)
            assert "1 of 2 elements" in str(raised.value)
            assert "head" not in str(raised.value)
    with pytest.raises(RuntimeError, match="non-finite"):
        gradclip.norm(given, [first, Group(torch.clip_grad_norm(1.0, error_if_nonfinite=True), "spoilt")])
    gradclip.clip_(given, [first, Group(torch.clip_grad_norm(1.0, error_if_nonfinite=True), "head")])


# ---- which gradients -----------------------------------------------------------------------------------------------------


def chosen(backend: Framework, tree: Any, selection: Any) -> list[float]:
    """Return the values that a selection zeroes, in gradients with one element each."""
    owner = find(backend.make([1.0]))
    assert owner is not None
    before = [backend.read(x).item() for _, x in owner.containers.walk(tree)]
    after = gradclip.clip(tree, Group(optax.clip(0.0), selection)).grads
    left = [backend.read(x).item() for _, x in owner.containers.walk(after)]
    return [b for b, a in zip(before, left, strict=True) if a != b]


def test_names(backend: Framework) -> None:
    one, two, three = (backend.make([float(i)]) for i in (1, 2, 3))
    tree = {"dense": {"kernel": one, "bias": two}, "Head.x's": [three]}
    for selection, want in (
        ("dense.kernel", [1.0]),
        ("dense.*", [1.0, 2.0]),
        ("*.0", [3.0]),
        ("Head.x's.0", [3.0]),
        (["*kernel", "*.0"], [1.0, 3.0]),
        (re.compile(r"dense\.(bias|other)"), [2.0]),
        (re.compile(r"DENSE.*s", re.IGNORECASE), [2.0]),
        (lambda name, x: name.startswith("Head"), [3.0]),
        (lambda name, x: False, []),
        ([], []),
    ):
        assert sorted(chosen(backend, tree, selection)) == want, selection
    assert chosen(backend, [one, two, three], "1") == [2.0]
    assert chosen(backend, one, "*") == [1.0]


def test_a_predicate_is_given_the_gradient(backend: Framework) -> None:
    given, seen = gradients(backend), {}
    gradclip.norm(
        [*given.values(), None], Group(optax.clip_by_global_norm(1.0), lambda name, x: seen.setdefault(name, x) is None)
    )
    assert list(seen) == ["0", "1", "2", "3", "4"], "the predicate is not called for None"
    assert all(x is y for x, y in zip(seen.values(), given.values(), strict=True))


@pytest.mark.needs("holds_gradients")
def test_a_predicate_is_given_the_parameter(backend: Framework) -> None:
    params = {name: backend.parameter(x) for name, x in gradients(backend).items()} | {"frozen": backend.parameter(None)}
    seen: dict[str, Any] = {}
    group = Group(optax.clip_by_global_norm(1.0), lambda name, p: bool(seen.setdefault(name, p) is p and name in ENCODER))
    result = gradclip.clip_(params, group)
    assert all(seen[name] is params[name] for name in params)
    near(
        backend,
        {name: backend.gradient(params[name]) for name in ALL},
        dict.fromkeys(ENCODER, ratio(length(ENCODER, 2.0), 1.0)),
        "float32",
    )
    assert ulps(float(result.norm), length(ENCODER, 2.0), "float32") <= 4
    assert gradclip.norm(params, Group(optax.clip_by_global_norm(1.0), "frozen")) == 0.0


def test_gaps_and_iterators(backend: Framework) -> None:
    values = [*gradients(backend).values(), None]
    result = gradclip.clip(
        iter(values), [Group(optax.clip_by_global_norm(1.0), ["3", "5"]), Group(tensorflow.clip_by_norm(9.0))]
    )
    assert result.grads[5] is None
    assert ulps(backend.read(result.grads[3]), ARRAYS["encoder.weight"] / length(["encoder.weight"], 2.0), "float32") <= 4
    assert [n is None for n in result.norm[1]] == [False, False, False, True, False, True]
    rule = optax.clip_by_global_norm(1.0)
    empty = gradclip.clip(values, [Group(rule, "5"), Group(tensorflow.clip_by_norm(1.0), []), Group(rule, "0")])
    assert empty.norm[:2] == [0.0, [None] * 6]
    assert empty.coefficient[:2] == [1.0, [None] * 6]
    assert gradclip.clip([None], Group(optax.clip_by_global_norm(1.0), "0")).norm == 0.0


def test_counts_of_gradients_that_several_groups_count(backend: Framework) -> None:
    """Order 0 is the number of gradients that are not zero, and such numbers add up."""
    given = {name: backend.make([1.0]) for name in "abcde"}
    groups = [
        Group(torch.clip_grad_norm(1.0, 0.0), "a", counted=["a", "b", "c"]),
        Group(torch.clip_grad_norm(1.0, 0.0), "b", counted=["b", "c", "d", "e"]),
    ]
    assert [float(n) for n in gradclip.norm(given, groups)] == [3.0, 4.0]


def test_a_name_that_is_infinite_is_a_culprit(backend: Framework) -> None:
    given = {"head": backend.make([np.inf]), "other": backend.make([1.0])}
    assert list(gradclip.clip(given, optax.clip_by_global_norm(1.0)).culprits) == ["head"]


def test_a_pattern_without_a_match_among_four_names(backend: Framework) -> None:
    given = {name: backend.make([1.0]) for name in ("aa", "bb", "cc", "dd")}
    with pytest.raises(ValueError, match=r"there are 4 names: 'aa', 'bb', 'cc', \.\.\.$"):
        gradclip.clip(given, Group(optax.clip_by_global_norm(1.0), "nothing"))


@pytest.mark.parametrize("order", [2.0, -1.0, -math.inf])
def test_what_a_group_counts_is_missing(backend: Framework, order: float) -> None:
    tree = {"head": backend.make([3.0, 4.0]), "other": None}
    group = Group(torch.clip_grad_norm(1.0, order), "head", counted="other")
    for groups in (group, [group]):
        result = gradclip.clip(tree, groups)
        assert result.norm == (0.0 if groups is group else [0.0])
        assert backend.read(result.grads["head"]).tolist() == [3.0, 4.0]


def test_a_gradient_listed_twice(backend: Framework) -> None:
    """Either name selects it, it counts once, and it is scaled once."""
    tied = backend.make([3.0, 4.0])
    tree = {"embedding": tied, "head": tied, "other": backend.make([12.0])}
    for selection in ("embedding", "head"):
        result = gradclip.clip(tree, [Group(optax.clip_by_global_norm(1.0), selection), Group(optax.clip_by_global_norm(6.0))])
        assert result.norm == [5.0, 12.0]
        for name in ("embedding", "head"):
            assert ulps(backend.read(result.grads[name]), [0.6, 0.8], "float32") <= 4
        assert backend.read(result.grads["other"]) == 6.0
    assert gradclip.norm(tree, Group(optax.clip_by_global_norm(1.0), "other", counted="*")) == 13.0
    with pytest.raises(ValueError, match="A gradient is scaled by one group only"):
        gradclip.norm(tree, [Group(optax.clip_by_global_norm(1.0), "embedding"), Group(optax.clip_by_global_norm(1.0), "head")])
    if backend.mutable:
        gradclip.clip_(tree, Group(optax.clip_by_global_norm(1.0), "head"))
        assert ulps(backend.read(tied), [0.6, 0.8], "float32") <= 4


@pytest.mark.needs("has_sparse")
def test_sparse(backend: Framework) -> None:
    """Duplicate rows are merged before the norm, in a group too."""
    sparse = backend.sparse([1, 1, 3], [[1.0, 2.0], [2.0, 2.0], [0.0, 12.0]], 5)
    tree = {"embedding": sparse, "head": backend.make([84.0])}
    groups = [Group(torch.clip_grad_norm(1.3), "embedding"), Group(torch.clip_grad_norm(8.5), "head", counted="*")]
    result = gradclip.clip(tree, groups)
    assert [round(float(n), 4) for n in result.norm] == [13.0, 85.0]
    assert backend.is_sparse(result.grads["embedding"])
    dense = backend.densify(sparse)
    assert ulps(backend.densify(result.grads["embedding"]), dense * (1.3 / (13 + 1e-6)), "float32") <= 4
    assert ulps(backend.read(result.grads["head"]), [84 * 8.5 / (85 + 1e-6)], "float32") <= 4


def test_per_example(backend: Framework) -> None:
    """A rule that sums over examples drops the first axis; other gradients keep it."""
    x = np.array([[3.0, 4.0], [0.0, 0.5]])
    tree = {"a": backend.make(x), "b": backend.make(x)}
    result = gradclip.clip(tree, Group(optax.per_example_global_norm_clip(1.0), "a"))
    want = (x * ratio(norm(x, 2.0, (1,)), 1.0)).sum(0)
    assert ulps(backend.read(result.grads["a"]), want, "float32") <= 4
    assert np.array_equal(backend.read(result.grads["b"]), x)


# ---- errors --------------------------------------------------------------------------------------------------------------


def test_what_is_no_group() -> None:
    rule = torch.clip_grad_norm(1.0)
    with pytest.raises(TypeError, match=r"rule must be a gradclip\.Rule"):
        Group("encoder.*")  # type: ignore[arg-type]
    for selection in (3, ["encoder.*", 3]):
        with pytest.raises(TypeError, match=r"scaled must select gradients\.(.|\n)*Hint: a pattern for names, an re\.compile"):
            Group(rule, selection)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="None cannot be part of a selection"):
        Group(rule, counted=["*", None])
    with pytest.raises(ValueError, match=r"counted= is only for a rule(.|\n)*counted='\*'(.|\n)*leave counted= out"):
        Group(tensorflow.clip_by_norm(1.0), counted="*")
    assert Group(rule, "a") == Group(rule, "a") != Group(rule, "b")
    for selection in (re.compile(b"a"), int):
        with pytest.raises(TypeError, match=r"counted must select gradients"):
            Group(rule, counted=selection)  # type: ignore[arg-type]


class Module:
    """A module of torch or Paddle; a layer of Keras has ``trainable_variables``."""

    def parameters(self) -> Iterator[Any]:
        yield np.ones(2)

    def __call__(self, inputs: Any) -> Any:
        raise AssertionError


def test_a_module_and_a_generator_are_no_selections() -> None:
    rule = torch.clip_grad_norm(1.0)
    for selection in (Module(), Module().parameters(), [Module()], iter("ab")):
        with pytest.raises(TypeError, match=r"scaled must select gradients(.|\n)*Hint: list\(module\.parameters\(\)\) selects"):
            Group(rule, selection)  # type: ignore[arg-type]
    Group(rule, list(Module().parameters()))


def test_a_group_is_a_key() -> None:
    rule = torch.clip_grad_norm(1.0)
    group = Group(rule, ["a", ["b", re.compile("c")]], counted=["*"])
    assert {group: 1}[Group(rule, ("a", ("b", re.compile("c"))), ("*",))] == 1


def test_hints_for_a_pattern_that_matches_nothing(backend: Framework) -> None:
    rule, x = torch.clip_grad_norm(1.0), backend.make([1.0])
    for tree, pattern, hint in (
        ({"w[0]": x, "w[1]": x}, "w[0]", r"\[ begins a set of characters in a pattern; write \[\[\] for the character itself"),
        ([x, backend.make([2.0])], "encoder.*", r"'0' to '1', for names; pass a dict: dict\(model\.named_parameters\(\)\)"),
        ({"weight": x}, "wieght", r"there is 1 name: 'weight'\.$"),
    ):
        with pytest.raises(ValueError, match=f"pattern=.*\nHint: .*{hint}"):
            gradclip.clip(tree, Group(rule, pattern))
    assert gradclip.norm({"w[0]": x}, Group(rule, "w[[]0]")) == 1.0


class Key(str, enum.Enum):  # noqa: UP042 (str() of a StrEnum's member is its value already)
    ENCODER = "encoder"


def test_keys_that_are_more_than_strings(backend: Framework) -> None:
    one, two = backend.make([1.0]), backend.make([2.0])
    assert gradclip.norm({np.str_("encoder.w"): one, "b": two}, Group(torch.clip_grad_norm(1.0), "encoder.w")) == 1.0
    assert gradclip.norm({Key.ENCODER: [one, two]}, Group(torch.clip_grad_norm(1.0), "encoder.1")) == 2.0


def test_what_is_no_choice(backend: Framework) -> None:
    rule, given = torch.clip_grad_norm(1.0), gradients(backend)
    cases: list[tuple[type[Exception], Any, str]] = [
        (ValueError, [], r"There must be a group\.\nReceived: rule=\[\]"),
        (TypeError, [rule, rule], r"Several rules in one call need groups\.(.|\n)*Group\(rule, 'encoder\.\*'\)"),
        (TypeError, [Group(rule), 3], r"rule must be a gradclip\.Rule"),
        (
            TypeError,
            {"encoder.*": rule},
            r"rule must be a gradclip\.Rule, a gradclip\.Group or a list of groups\.\nReceived: rule=a dict of 1",
        ),
        (TypeError, (Group(rule) for _ in "a"), r"a list of groups\.\nReceived: rule=an object of type builtins.generator"),
        (TypeError, [[Group(rule)]], r"a list of groups\.\nReceived: rule=a list of 1"),
        (
            ValueError,
            [Group(rule, "enc*"), Group(rule, "*.bias")],
            r"by one group only\.\nReceived: 'encoder\.bias' in groups 0 and 1",
        ),
        (ValueError, [Group(rule), Group(rule)], r"'decoder\.bias' in groups 0 and 1\nHint: .*counted=\) may overlap"),
        (ValueError, Group(rule, "decodr.weight"), r"pattern='decodr\.weight'\nHint: there are 5 names: 'decoder\.weight'"),
        (
            ValueError,
            Group(rule, ["head", re.compile("head.")]),
            r"name of no gradient\.\nReceived: pattern='head\.'",
        ),
        (ValueError, Group(rule, counted="Head"), r"pattern='Head'"),
        (ValueError, Group(rule, "nothing like it"), r"Hint: there are 5 names: 'decoder.bias', .*'encoder.bias', \.\.\.$"),
    ]
    for error, groups, text in cases:
        for function in (gradclip.clip, gradclip.norm):
            with pytest.raises(error, match=text):
                function(given, groups)
    near(backend, given, {}, "float32")
