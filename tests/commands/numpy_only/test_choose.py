"""The choice of a limit: its numbers agree with NumPy's, its warnings come where they apply, and it reads every log format."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

import gradclip
from gradclip.commands.choose_logs import LogError, read_log
from gradclip.commands.cli import main
from gradclip.dialects import keras, optax, torch
from gradclip.steps.advice.choice import order_bounds
from gradclip.steps.advice.divergence import diverged_at, exploded_at

RNG = np.random.default_rng(0)
NORMS: list[float] = np.exp(RNG.normal(size=2000) * 0.5).tolist()


# ---- the numbers ---------------------------------------------------------------------------------------------------------


def longest(above: list[bool]) -> int:
    return max((len(list(group)) for key, group in itertools.groupby(above) if key), default=0)


@given(st.lists(st.one_of(st.floats(1e-3, 1e3), st.sampled_from([0.0, math.nan, math.inf])), min_size=20, max_size=60))
def test_the_numbers_are_those_of_numpy(norms: list[float]) -> None:
    finite = [n for n in norms if math.isfinite(n)]
    if not finite:
        with pytest.raises(ValueError, match="None of these norms is finite"):
            gradclip.choose(norms)
        return
    if len(finite) < 20 and diverged_at(norms) is None and exploded_at(norms) is None:
        with pytest.raises(ValueError, match=f"too few norms to choose a limit by(.|\n)*Received: {len(finite)} norm"):
            gradclip.choose(norms)
        return
    choice = gradclip.choose(norms, limits=[0.5])
    if choice.record.diverged:
        norms = norms[: choice.record.diverged.at - 1]
        finite = [n for n in norms if math.isfinite(n)]
    assert (choice.steps, choice.not_finite) == (len(finite), len(norms) - len(finite))
    by_name = {candidate.name: candidate for candidate in choice.candidates}
    assert by_name.keys() == {"p50", "p75", "p90", "p95", "p99", "1", "0.5"}
    quarter = max(1, len(finite) // 4)
    for name, candidate in by_name.items():
        if name.startswith("p"):
            assert candidate.limit == np.quantile(finite, float(name[1:]) / 100, method="inverted_cdf")
        clipped = np.array(finite) > candidate.limit
        assert candidate.clipped_fraction == pytest.approx(clipped.mean())
        assert candidate.clipped_early == pytest.approx(clipped[:quarter].mean())
        assert candidate.clipped_late == pytest.approx(clipped[-quarter:].mean())
        coefficients = np.minimum(1.0, candidate.limit / np.maximum(finite, 1e-300))
        assert candidate.coefficient_mean == pytest.approx(np.where(np.array(finite) > 0, coefficients, 1.0).mean())
        assert candidate.skipped == choice.skipped(candidate.limit) == sum(not n <= candidate.limit for n in norms)
        assert candidate.longest_run == longest([math.isfinite(n) and n > candidate.limit for n in norms])
    recommended = choice.recommended
    if choice.record.diverged:
        assert recommended.limit <= 1.0
        return
    assert recommended.limit > by_name["p90"].limit
    assert recommended.limit <= max(by_name["p90"].limit * 1.11, 1.0)
    assert recommended.clipped_fraction <= 0.1


def monitored(norms: list[float], limit: float = math.inf) -> gradclip.Monitor:
    monitor = gradclip.Monitor()
    for norm in norms:
        monitor.update(norm, limit=limit)
    return monitor


def test_by_a_monitor_it_is_the_same_but_for_the_width_of_a_bin() -> None:
    falling = [n * 4 ** (1 - i / 1000) for i, n in enumerate(NORMS)]
    exact, coarse = gradclip.choose(falling), gradclip.choose(monitored(falling))
    assert coarse.recommended.limit == pytest.approx(exact.recommended.limit, rel=0.1)
    for one, other in zip(exact.candidates, coarse.candidates, strict=True):
        assert one.name == other.name
        assert other.limit == pytest.approx(one.limit, rel=0.045)
        assert other.longest_run is None
        for name in ("clipped_early", "clipped_late", "coefficient_mean"):
            assert getattr(other, name) == pytest.approx(getattr(one, name), abs=0.08), name
    state = json.loads(json.dumps(monitored(falling).state_dict()))
    assert gradclip.choose(state).as_json() == coarse.as_json()


@given(
    st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 100)), min_size=1, max_size=30),
    st.sampled_from([1.0, 1.5, 2.0, 3.0, math.inf]),
)
def test_the_bounds_of_another_order_hold(values: list[float], order: float) -> None:
    two, other = np.linalg.norm(values), np.linalg.norm(values, order)
    low, high = order_bounds(float(two), order, 2.0, len(values))
    assert low * (1 - 1e-9) <= other <= high * (1 + 1e-9)


def of_each() -> gradclip.Monitor:
    """A norm for each of ten gradients: each step clips one of them."""
    monitor, rule = gradclip.Monitor(), keras.clipnorm(0.5)
    for norm in NORMS[:40]:
        monitor.update(gradclip.clip([np.array([1.0 + norm]), *(np.array([1e-3]) for _ in range(9))], rule))
    return monitor


# ---- its messages --------------------------------------------------------------------------------------------------------

SAYS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "narrow": ([1 + 0.001 * (i % 7) for i in range(500)], {}, "p90 is only 1.0"),
    "drift": ([10.0 / (1 + i / 50) for i in range(500)], {}, "the median norm goes from 4.464 to 1.027"),
    "half": (monitored(NORMS, 0.5), {}, "more than half. If the run diverges at the new limit, lower the learning rate"),
    "half of the steps": (of_each(), {}, "more than half. If the run diverges at the new limit, lower the learning rate"),
    "few": (NORMS[:30], {}, "a quantile of 30 norms says little"),
    "unknown": (
        NORMS,
        {"limits": [0.1]},
        "0.1 would clip 100 % of the steps. With SGD that only makes the learning rate smaller",
    ),
    "SGD": (NORMS, {"limits": [0.1], "optimizer": "SGD"}, "With SGD that only makes the learning rate smaller: avoid it."),
    "Adam": (NORMS, {"limits": [0.1], "optimizer": "adamw"}, "With adamw it is no smaller learning rate: a step is as long at"),
    "narrow, Adam": ([1 + 0.001 * (i % 7) for i in range(500)], {"optimizer": "Adam"}, "alike. With Adam it is no smaller"),
    "after": ([min(n, 1.5) for n in NORMS], {}, "they seem to be norms after a clip"),
    "clipped": (monitored(NORMS, 1.5), {}, "of these steps were clipped at 1.5"),
    "broken": ([*NORMS[:50], math.nan, math.inf, *NORMS], {}, "2 norms not finite"),
    "loss": (NORMS, {}, "accumulated steps"),
    "order": (NORMS, {"norm_type": 1.0}, "these are 2-norms, and a limit for the 1-norm is another number"),
    "bounds": (NORMS, {"norm_type": 1.0, "parameters": 10_000}, "1.9 lies between 1.9 and 190"),
}


@pytest.mark.parametrize(("norms", "options", "text"), SAYS.values(), ids=SAYS)
def test_it_warns_where_that_applies(norms: Any, options: dict[str, Any], text: str) -> None:
    said = " ".join(gradclip.choose(norms, **options).warnings)
    assert text in said


def ending(end: list[float]) -> gradclip.Monitor:
    """Return the monitor of a run that ends so."""
    monitor = gradclip.Monitor()
    with np.errstate(all="ignore"):
        for n in [*NORMS, *end]:
            monitor.update(gradclip.clip([np.array([n])], torch.clip_grad_norm(math.inf)))
    return monitor


@pytest.mark.parametrize("end", [[30.0, 1e3, 1e9, 1.7e16], [1e4, math.inf, math.nan, math.nan], [math.nan] * 40])
@pytest.mark.parametrize("source", [lambda end: [*NORMS, *end], ending], ids=["norms", "monitor"])
def test_a_run_that_diverged_is_judged_by_the_norms_before(end: list[float], source: Any) -> None:
    choice, before = gradclip.choose(source(end)), gradclip.choose(NORMS)
    assert choice.record.diverged is not None
    assert abs(choice.record.diverged.at - len(NORMS)) <= 32  # a monitor knows stretches of steps
    assert choice.recommended.limit == pytest.approx(before.recommended.limit, rel=0.06)
    said = str(choice)
    assert "avoid it" not in said
    assert "nan" not in said.replace("not finite", "")
    assert "the run diverged at norm" in said
    assert choice.as_json()["diverged"]["total"] == len(NORMS) + len(end)


def test_a_run_that_diverged_at_once_has_no_usual_norm() -> None:
    choice = gradclip.choose([6.5, 8.0, 40.0, 900.0, 1e6, 1.7e16, *[math.nan] * 20])
    assert choice.recommended.limit == 0.66
    assert "The run diverged at once: its norms rose to 1.7e+16 and became" in choice.reason
    assert choice.warnings == ()
    assert gradclip.choose([60.0, 8e3, 1e6, math.inf]).recommended.limit == 1.0


def test_it_does_not_warn_elsewhere() -> None:
    (only,) = gradclip.choose(NORMS, limits=[2.0]).warnings[-1:]
    assert "the loss" in only
    said = " ".join(gradclip.choose(NORMS, limits=[2.0]).warnings)
    for text in (
        "p90 is only",
        "median norm",
        "only 30",
        "2 would clip",
        "after a clip",
        "were clipped",
        "not finite",
        "-norms",
    ):
        assert text not in said


def test_a_table_for_people_and_a_picture(tmp_path: Path) -> None:
    choice = gradclip.choose(NORMS, limits=[0.5])
    lines = str(choice).splitlines()
    assert lines[0] == "2,000 norms"
    assert lines[2].split() == ["limit", "clipped", "mean", "coefficient", "longest", "run", "early", "late"]
    assert [line.split()[0] for line in lines[3:6]] == ["0.5", "0.9829", "1"]
    assert f"Recommended: {choice.recommended.limit:g}. It is just above the 90th percentile" in str(choice)
    assert max(map(len, lines[:10])) < 80
    for name, seen in (("numbers", choice), ("monitor", gradclip.choose(monitored([*NORMS, 0.0])))):
        seen.plot(tmp_path / f"{name}.png")
        assert imread(tmp_path / f"{name}.png").shape[:2] == (600, 1200)


# ---- logs ----------------------------------------------------------------------------------------------------------------

LOGS = {
    "numbers.jsonl": "0.5\n2.0\nNaN\n4.0\n",
    "python.txt": "0.5\n2.0\nnan\n4.0\n",
    "array.json": "[0.5, 2.0, NaN, 4.0]",
    "objects.jsonl": '{"step": 0, "x/norm": 0.5}\n{"x/norm": 2.0}\n{"loss": 3}\n{"x/norm": NaN}\n{"x/norm": 4}',
    "strings.jsonl": '{"norm_before": 0.5, "x": 1}\n{"norm_before": "2"}\n{"norm_before": "nan"}\n{"norm_before": "4"}',
    "metrics.csv": "step,loss,total_norm,norm_after\n0,1,0.5,0.1\n1,1,2.0,1\n2,1,nan,1\n3,1,,1\n4,1,4.0,1\n",
    "one.csv": "my_norm,loss\n0.5,1\n2.0,1\nnan,1\n4.0,1\n",
}


@pytest.mark.parametrize(("name", "text"), LOGS.items(), ids=LOGS)
def test_every_form_of_a_log(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert [str(n) for n in read_log(str(tmp_path / name))] == ["0.5", "2.0", "nan", "4.0"]


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("", None, "The log is empty"),
        (" \n", None, "The log is empty"),
        ('{"loss": 1}', None, "The log has no norms"),
        ("loss,step\n1,2\n", None, "The log has no norms"),
        ('{"a_norm": 1, "b_norm": 2}', None, "The log has several norms"),
        ('{"norm": 1}', "grad", "The log has no such key"),
        ('{"norm": "high"}', None, "A norm must be a number"),
        ('{"norm": [1]}', None, "A norm must be a number"),
        ('{"norm": true}', None, "A norm must be a number"),
        ('{"norm": 1}\n{"norm"', None, "A line is not JSON"),
        ('{"norm": 1}\n2\n', None, "all lines are numbers, or all are objects"),
        ("norm\nhigh\n", None, "A norm must be a number"),
    ],
)
def test_a_log_that_is_wrong(
    text: str, key: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    log.write_text(text, encoding="utf-8")
    with pytest.raises(LogError, match=message):
        read_log(str(log), key)
    assert main(["choose", str(log), *(["--key", key] if key else [])]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("norms", "kind", "message"),
    [
        ("1.0", TypeError, "norms must be numbers"),
        (3.0, TypeError, "norms must be numbers"),
        ([1.0, "2"], TypeError, r"A norm must be a number(.|\n)*number 1: '2'"),
        ([1.0, None], TypeError, "A norm must be a number"),
        ([object()], TypeError, "A norm must be a number"),
        ([], ValueError, "There are no norms"),
        (gradclip.Monitor(), ValueError, "There are no norms"),
        ({"version": 99, "sections": []}, ValueError, "of another version"),
    ],
)
def test_norms_that_are_wrong(norms: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        gradclip.choose(norms)


@pytest.mark.parametrize("optimizer", ["", "adam"])
def test_a_run_that_was_clipped_in_most_steps_needs_a_lower_learning_rate_only_where_a_clip_acts_as_one(optimizer: str) -> None:
    said = " ".join(gradclip.choose(monitored(NORMS, 0.5), optimizer=optimizer).warnings)
    assert ("diverges at the new limit" in said) is (optimizer == "")


def test_other_arguments_that_are_wrong() -> None:
    with pytest.raises(ValueError, match="A limit must be a positive number"):
        gradclip.choose(NORMS, limits=[-1.0])
    with pytest.raises(ValueError, match="must be positive"):
        gradclip.choose(NORMS, norm_type=1.0, parameters=0)
    groups = gradclip.Monitor()
    rules = [gradclip.Group(optax.clip_by_global_norm(1.0), str(i)) for i in range(2)]
    groups.update(gradclip.clip([np.ones(1), np.ones(1)], rules))
    with pytest.raises(ValueError, match="one group at a time"):
        gradclip.choose(groups)


# ---- the command ---------------------------------------------------------------------------------------------------------


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, picture = tmp_path / "norms.jsonl", tmp_path / "choice.png"
    log.write_text("\n".join(map(repr, NORMS)), encoding="utf-8")
    assert main(["choose", str(log), "--limit", "0.5", "--picture", str(picture)]) == 0
    assert capsys.readouterr().out.strip() == str(gradclip.choose(NORMS, limits=[0.5]))
    assert picture.stat().st_size > 10_000
    assert main(["choose", str(log), "--limit", "0.5", "--optimizer", "lion"]) == 0
    assert "With lion it is no smaller learning rate" in capsys.readouterr().out
    assert main(["choose", str(log), "--json", "--norm-type", "inf", "--parameters", "100"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == gradclip.choose(NORMS, norm_type=math.inf, parameters=100).as_json()
    (tmp_path / "monitor.json").write_text(json.dumps(monitored(NORMS).state_dict()), encoding="utf-8")
    assert main(["choose", str(tmp_path / "monitor.json")]) == 0
    assert "Recommended: 2." in capsys.readouterr().out


def test_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["choose", str(tmp_path / "none.jsonl")]) == 2
    assert "There is no such log" in capsys.readouterr().err
    for limit in ("-1", "x"):
        with pytest.raises(SystemExit, match="2"):
            main(["choose", "log", "--limit", limit])
        assert "must be a positive number" in capsys.readouterr().err


def test_how_many_a_limit_that_follows_the_run_would_have_skipped() -> None:
    norms = [1.0 + i % 3 for i in range(60)] + [500.0, math.nan, math.inf, 2.0, 90.0]
    choice, limit = gradclip.choose(norms), gradclip.limits.spike(10)
    rule = dataclasses.replace(torch.clip_grad_norm(math.inf), skip_above=gradclip.Adaptive(limit))
    assert choice.skipped(limit) == sum(gradclip.clip([np.array([n])], rule).skip for n in norms) == 4
    monitor = gradclip.Monitor()
    for n in norms:
        monitor.update(n)
    assert gradclip.choose(monitor).skipped(20.0) == choice.skipped(20.0) == 4
    with pytest.raises(ValueError, match="needs the norms in their order"):
        gradclip.choose(monitor).skipped(limit)
