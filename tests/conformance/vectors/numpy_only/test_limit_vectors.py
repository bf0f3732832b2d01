"""The vectors of limits that follow the run: gradclip's own limits hold them, and wrong rules do not."""

from __future__ import annotations

import json
import math
from typing import Any

import jsonschema
import numpy as np
import pytest
from vectors.limits import CLIPPED, FOLDER, percentile, texts

import gradclip
from gradclip import limits
from gradclip.dialects import tensorflow

Json = dict[str, Any]
FILES = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json")) if path.stem != "schema"}
VECTORS = {(rule, vector["id"]): vector for rule, file in FILES.items() for vector in file["vectors"]}


def floats(written: list[str]) -> list[float]:
    return [float.fromhex(one) for one in written]


def run(limit: Any, norms: list[float]) -> list[float]:
    """The norm of each step after a clip by this limit."""
    rule = tensorflow.clip_by_global_norm(gradclip.Adaptive(limit))
    return [float(abs(gradclip.clip([np.array([norm])], rule).grads[0][0])) for norm in norms]


def test_the_files_are_what_the_tool_writes_and_match_the_schema() -> None:
    schema = json.loads((FOLDER / "schema.json").read_text("utf-8"))
    written = list(texts())
    assert {path.stem for path, _ in written} == set(FILES) == set(CLIPPED)
    for path, text in written:
        assert path.read_text("utf-8") == text
        jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator)
    assert len(VECTORS) == sum(len(file["vectors"]) for file in FILES.values())


@pytest.mark.parametrize("vector", [one for (rule, _), one in VECTORS.items() if rule == "zclip"], ids=lambda one: one["id"])
def test_zclip_holds_its_vectors(vector: Json) -> None:
    made = limits.zclip(**vector["parameters"], at_first=math.inf, patience=10**6)
    got, expected = run(made, floats(vector["norms"])), floats(vector["clipped"])
    for one, right in zip(got, expected, strict=True):
        assert math.isnan(right) or math.isclose(one, right, rel_tol=1e-12)


@pytest.mark.parametrize(
    "vector",
    [one for (rule, _), one in VECTORS.items() if rule == "autoclip" and one["parameters"]["counts"] == "before"],
    ids=lambda one: one["id"],
)
def test_autoclip_holds_its_vectors_as_far_as_its_histogram_goes(vector: Json) -> None:
    """Its limit is one of the norms that enclose the percentile, off by at most 4.5 %."""
    percent, norms = vector["parameters"]["percent"], floats(vector["norms"])
    made = limits.autoclip(percent, warmup=1, at_first=math.inf, winsor=math.inf, patience=10**6)
    seen: list[float] = []
    for norm, got, right in zip(norms, run(made, norms), floats(vector["clipped"]), strict=True):
        if math.isnan(right):
            continue
        if seen:
            place = percent / 100 * (len(seen) - 1)
            low, high = (sorted(seen)[end(place)] for end in (math.floor, math.ceil))
            assert min(norm, low) / 1.045 <= got <= min(norm, high) * 1.045
            assert right == min(norm, percentile(seen, percent))
        seen.append(norm)


@pytest.mark.parametrize("run_name", ["spike", "spikes", "level", "nan"])
def test_a_wrong_rule_fails_a_vector(run_name: str) -> None:
    """It learns the norm before the clip, or a NaN."""
    (vector,) = [one for (rule, name), one in VECTORS.items() if rule == "zclip" and name.startswith(f"{run_name}-0.97")]
    mean, var, got = 0.0, 0.0, []
    for step, norm in enumerate(floats(vector["norms"])):
        limit = math.inf if step < 25 else mean + 2.5 * math.sqrt(var)
        got.append(min(norm, limit))
        share = 1 / (step + 1) if step < 25 else 0.03
        before = mean
        mean += share * (norm - mean)
        var = (1 - share) * var + share * (norm - before) * (norm - mean)
    pairs = [pair for pair in zip(got, floats(vector["clipped"]), strict=True) if not math.isnan(pair[1])]
    assert not all(math.isclose(one, right, rel_tol=1e-4) for one, right in pairs)
