"""The vectors for several ranks: complete, valid, and right by NumPy's own arithmetic."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import oracle
import pytest
import topologies
from vectors import ranks, xfails
from vectors.flags import RANK_FLAGS

from gradclip.conformance.array import Array
from gradclip.conformance.check_vectors import validators, wrong_with_vector
from gradclip.conformance.load import SHIPPED, Vector, load_vectors
from gradclip.conformance.ranks.shards import coordinates, local, places

(FILE,) = load_vectors(SHIPPED / "ranks")
every_vector = pytest.mark.parametrize("vector", [pytest.param(vector, id=vector.id) for vector in FILE.vectors])


def test_the_file_matches_the_schema() -> None:
    assert load_vectors(SHIPPED / "ranks", validate=True) == (FILE,)


def test_there_are_enough() -> None:
    assert 60 <= len(FILE.vectors) <= 200
    assert {tuple(vector.json["mesh"]) for vector in FILE.vectors} == {(2,), (4,), (2, 2), (8,), (2, 4), (2, 2, 2)}
    shardings = [one for vector in FILE.vectors for one in vector.json["shardings"]]
    assert {one["how"] for one in shardings} == {"type", "plain", "group"}
    assert {kind for one in shardings for kind in one["placements"]} == {"R", "S0", "S1", "Z0", "P"}
    assert {"shards", "group"} <= {need for vector in FILE.vectors for need in vector.needs}


def test_every_subject_of_ranks_has_vectors() -> None:
    assert set(FILE.flags) == {flag for vector in FILE.vectors for flag in vector.flags}
    assert set(FILE.flags) >= RANK_FLAGS.keys()


def test_torch_was_recorded_on_every_vector_and_its_failures_are_declared() -> None:
    assert list(FILE.recorded_with) == [ranks.NATIVE]
    assert [vector.id for vector in FILE.vectors if list(vector.native) != [ranks.NATIVE]] == []
    made = {vector.id: vector.native[ranks.NATIVE] for vector in FILE.vectors}
    declared = xfails.stored(ranks.NATIVE)[xfails.pattern_of(ranks.NATIVE)]
    assert {case for case, outcome in made.items() if outcome not in ("agrees", "unclaimed")} == set(declared)
    hung = {case for case, outcome in made.items() if outcome == {"error": "hung"}}
    assert hung
    assert {declared[case].partition(":")[0] for case in hung} == {"MissingShard"}


def values(array: Array) -> np.ndarray:
    return np.array(array.values).reshape(array.shape)


@every_vector
def test_the_outcome_is_numpy_s(vector: Vector) -> None:
    arrays = [array for array in vector.gradients if isinstance(array, Array)]
    flat = np.concatenate([values(array).ravel() for array in arrays])
    limit, order = vector.arguments["max_norm"], vector.arguments.get("norm_type", 2.0)
    n = np.linalg.norm(flat, order)
    (outcome,) = vector.expected
    if isinstance(outcome.norm, Array):
        assert oracle.ulps(values(outcome.norm), n, outcome.norm.dtype) <= 1
    coefficient = min(1.0, limit / (n + 1e-6)) if not math.isnan(n) else math.nan
    with np.errstate(invalid="ignore"):
        want = [values(array) * (1.0 if limit == math.inf else coefficient) for array in arrays]
    got = [array for array in outcome.gradients if array is not None]
    for mine, theirs in zip(got, want, strict=True):
        assert oracle.ulps(values(mine), theirs, mine.dtype) <= 1


@every_vector
def test_the_shards_are_the_gathered_gradient(vector: Vector) -> None:
    mesh = vector.json["mesh"]
    for array, sharding in zip(vector.gradients, vector.json["shardings"], strict=True):
        if not isinstance(array, Array):
            assert len(sharding["missing"]) == math.prod(mesh)
            continue
        seen = np.zeros(math.prod(array.shape))
        for rank in range(math.prod(mesh)):
            at, kinds = coordinates(mesh, rank), sharding["placements"]
            want = topologies.local(values(array), mesh, at, kinds)
            got = local(array, mesh, rank, kinds)
            share = math.prod(n for n, kind in zip(mesh, kinds, strict=True) if kind == "P")
            np.testing.assert_array_equal(values(got) * share, want)
            seen[places(array.shape, mesh, rank, kinds)] += 1
            if rank in sharding.get("missing", ()):
                assert not want.any(), "a missing shard counts 0"
        assert (seen > 0).all()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "gradients": ({"gradients": []}, "shardings: there must be one for each gradient"),
    "mesh": ({"mesh": [2, 2]}, "one placement for each axis"),
    "null": ({"gradients": [None, None]}, "null is a gradient that all ranks lack"),
    "rank": ({"shardings": [{"how": "plain", "placements": ["R"], "missing": [4]}] * 2}, "1 axes and 4 ranks"),
    "axis": ({"shardings": [{"how": "type", "placements": ["S2"]}] * 2}, "an axis that it does not have"),
    "how": ({"shardings": [{"how": "sharded", "placements": ["S0"]}] * 2}, "'sharded' is not one of"),
    "alone": ({"shardings": None}, "shardings"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_one_is_told(change: dict[str, Any], message: str) -> None:
    vector = next(dict(vector.json) for vector in FILE.vectors if vector.json["id"] == "4-S0-even")
    content = {"operation": FILE.operation, "flags": dict.fromkeys(FILE.flags)}
    assert not list(wrong_with_vector(copy.deepcopy(vector), content, validators()))
    vector |= change
    if vector["shardings"] is None:
        del vector["shardings"]
    assert message in "; ".join(wrong_with_vector(vector, content, validators()))
