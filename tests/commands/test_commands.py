"""The commands on this run's framework; ``numpy_only`` covers what all frameworks share."""

from __future__ import annotations

import json
import math

import pytest
from frameworks.base import Framework

from gradclip.commands import cli, demo_runs
from gradclip.core import registry, versions


def test_backends_of_this_framework(
    backend: Framework, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "_SOURCES", {backend.name: registry._sources()[backend.name]})
    assert cli.main(["backends", "--json"]) == 0
    captured = capsys.readouterr()
    (entry,) = json.loads(captured.out)["backends"]
    assert captured.err == f"asking {backend.name} ...\n"
    assert (entry["name"], entry["origin"], entry["installed"], entry["error"]) == (backend.name, "built in", True, None)
    assert entry["devices"][0] == "cpu"
    assert entry["dtypes"]["float32"] is None
    assert {name for name, why in entry["dtypes"].items() if why is None} <= set(backend.dtypes)
    assert all(why is None for why in entry["traced"].values()), entry["traced"]
    assert bool(entry["traced"]) == bool(backend.jits)
    assert entry["in_place"] or not backend.mutable
    assert entry["standing"] == versions.standing(backend.name, entry["version"])


def test_the_demo_agrees_with_numpy_and_is_a_training(backend: Framework, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--steps", "40", "--frameworks", backend.name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["good"] is True
    assert found["largest_difference"] <= found["bound"]
    assert found["largest_off_formula"] <= found["formula_bound"]
    assert set(found["frameworks"]) == {"numpy", backend.name}
    for call, rule in zip(demo_runs.RULES, found["rules"], strict=True):
        history = rule["frameworks"][backend.name]
        assert rule["rule"] == str(call)
        assert len(history["loss"]) == len(history["norm"]) == len(history["coefficient"]) == 40
        assert {len(norms) for norms in history["norm"]} == {4 if rule["scope"] == "tensor" else 1}
        assert history["loss"][-1] < 0.6 * history["loss"][0]
        assert history["accuracy"] > 0.7
        assert min(map(min, history["coefficient"])) < 0.3  # the demo clips
        assert all(not math.isnan(norm) for norms in history["norm"] for norm in norms)
