"""The contract of limits: gradclip's limits keep it, and a report names only the property that a limit breaks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from gradclip import limits
from gradclip.commands.cli import main
from gradclip.conformance.following import PROPERTIES, check_limit

OURS: dict[str, Any] = {
    "quantile": limits.quantile,
    "autoclip": limits.autoclip,
    "zclip": limits.zclip,
    "log_norm": limits.log_norm,
    "adagc": limits.adagc,
    "deviations": limits.deviations,
    "spike": limits.spike,
    "schedule": lambda: limits.schedule(lambda step: 1.0 + 1.0 / (1.0 + step)),
}


@pytest.mark.parametrize("name", OURS)
def test_ours_keep_it(name: str) -> None:
    assert {key: wrong for key, wrong in check_limit(OURS[name]()).items() if wrong} == {}


class Good:
    """The mean of the clipped norms, with every method of a limit."""

    version = 1

    def init(self) -> dict[str, Any]:
        return {"n": 0, "mean": 0.0, "bad": 0, "high": 0}

    def limit(self, state: dict[str, Any]) -> float:
        return 2 * state["mean"] if state["n"] >= 10 else 1.0

    def observe(self, state: dict[str, Any], norm: float) -> dict[str, Any]:
        if not 0 <= norm < math.inf:
            return {**state, "bad": state["bad"] + 1}
        if norm == 0:
            return state
        high = state["high"] + 1 if norm > 10 * self.limit(state) and state["n"] >= 10 else 0
        if high > 50:
            return self.init()
        seen = min(norm, self.limit(state)) if state["n"] >= 10 else norm
        return {
            **state,
            "n": state["n"] + 1,
            "mean": state["mean"] + (seen - state["mean"]) / min(state["n"] + 1, 100),
            "high": high,
        }


class Mutates(Good):
    def observe(self, state: dict[str, Any], norm: float) -> dict[str, Any]:
        state.update(super().observe(dict(state), norm))
        return state


class TakesNaN(Good):
    def observe(self, state: dict[str, Any], norm: float) -> dict[str, Any]:
        return {**state, "mean": norm} if norm != norm else super().observe(state, norm)


class BelievesOutliers(Good):
    def observe(self, state: dict[str, Any], norm: float) -> dict[str, Any]:
        after = super().observe(state, norm)
        return {**after, "mean": after["mean"] + norm / 100} if 0 < norm < math.inf else after


class Freezes(Good):
    def observe(self, state: dict[str, Any], norm: float) -> dict[str, Any]:
        return {**state, "mean": 0.0, "n": 10} if norm == 0 else super().observe(state, norm)


class Grows(Good):
    def observe(self, state: dict[str, Any], norm: float) -> dict[str, Any]:
        return {**super().observe(state, norm), "all": [*state.get("all", []), 1.0]}


class Draws(Good):
    count = 0.0

    def observe(self, state: dict[str, Any], norm: float) -> dict[str, Any]:
        type(self).count += 1e-3
        after = super().observe(state, norm)
        return {**after, "bad": after["bad"] + self.count}


class NoWarmUp(Good):
    def limit(self, state: dict[str, Any]) -> float:
        return 2 * state["mean"] or 1.0


class NeverComesBack(Good):
    def observe(self, state: dict[str, Any], norm: float) -> dict[str, Any]:
        if state["n"] >= 10 and norm > 10 * self.limit(state):
            return {**state, "high": state["high"] + 1}
        return super().observe(state, norm)


@pytest.mark.parametrize(
    ("kind", "letter"),
    [(Mutates, "a"), (TakesNaN, "b"), (BelievesOutliers, "c"), (Freezes, "d"), (Grows, "e"), (Draws, "f"), (NoWarmUp, "g"),
     (NeverComesBack, "h")],
)  # fmt: skip
def test_a_broken_one_is_told_of_its_property(kind: type[Good], letter: str) -> None:
    assert check_limit(Good()) == dict.fromkeys(PROPERTIES, "")
    assert check_limit(kind())[letter]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "gradclip.limits:zclip", "gradclip.limits:quantile", "--limit"]) == 0
    assert capsys.readouterr().out.count("keeps 8 of 8") == 2
    (tmp_path / "mine.py").write_text("class Fixed:\n    def init(self): return {}\n    def limit(self, s): return 1.0\n"
                                      "    def observe(self, s, n): return s\n", encoding="utf-8")  # fmt: skip
    assert main(["conformance", f"{tmp_path / 'mine.py'}:Fixed", "--limit"]) == 1
    printed = capsys.readouterr().out
    assert "keeps 6 of 8" in printed
    assert "(e) FAIL" in printed
    assert "it has no version" in printed
    (tmp_path / "none.py").write_text("class Half:\n    def limit(self, s): return 1.0\n"
                                      "def needs(x): return x\n", encoding="utf-8")  # fmt: skip
    for text, said in {
        "no.such:thing": "There is no module no.\n",
        f"{tmp_path / 'mien.py'}:x": f"There is no file {tmp_path / 'mien.py'}.\nHint: did you mean {tmp_path / 'mine.py'}?\n",
        "gradclip.limits:nothing": "gradclip.limits has no function nothing",
        f"{tmp_path / 'none.py'}:Half": f"{tmp_path / 'none.py'}:Half is not a limit: it has no method init and no observe.\n",
        f"{tmp_path / 'none.py'}:needs": "There is no such limit.\n",
    }.items():
        assert main(["conformance", text, "--limit"]) == 2
        assert capsys.readouterr().err.startswith(said)
    assert main(["conformance", "--limit"]) == 2
