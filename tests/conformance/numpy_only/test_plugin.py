"""The pytest plugin and ``parametrize_with_checks``, each in a separate pytest run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from importlib import metadata
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from launched import TIME_LIMIT, forked

from gradclip.conformance import check_target, function_target, parametrize_with_checks
from gradclip.conformance.report import schema
from gradclip.core.errors import ArgumentError

OPERATION = "optax.clip"
TARGETS = """
import numpy as np
from gradclip.conformance import function_target, parametrize_with_checks

def right(grads, max_delta):
    if not max_delta >= 0:
        raise ValueError("max_delta")
    return [np.clip(g, np.asarray(-max_delta, g.dtype), np.asarray(max_delta, g.dtype)) for g in grads]

def no_clip(grads, max_delta):
    return [g.copy() for g in grads]

RIGHT = function_target(right, "optax.clip")
NO_CLIP = function_target(no_clip, "optax.clip")
"""
TEST = """
def test_conformance(target, case):
    case.run(target)
"""


def run_pytest(options: list[str]) -> int:
    for name in ("conftest", "test_it"):
        sys.modules.pop(name, None)  # this run's own
    return pytest.main(options)


class Run:
    """One run of pytest on a file, in a copy of this process, which has imported pytest; or in a fresh process."""

    def __init__(self, folder: Path, source: str, *arguments: str, is_fresh: bool = False) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "pytest.ini").write_text(
            "[pytest]\nfilterwarnings = error\naddopts = --strict-markers\nxfail_strict = true\n"
        )
        (folder / "test_it.py").write_text(source, encoding="utf-8")
        variables = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COV_"))}
        variables["COLUMNS"] = "100"
        options = ["-rA", "--junitxml=junit.xml", *arguments]
        if is_fresh:
            command = [sys.executable, "-P", "-m", "pytest", *options]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=variables, timeout=TIME_LIMIT)
        else:
            done = forked(lambda: run_pytest(options), folder, variables)
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.lines = self.out.splitlines()

    def outcomes(self) -> Counter[str]:
        """Return the count of each word in pytest's summary."""
        words = ("PASSED", "FAILED", "XFAIL", "SKIPPED", "ERROR")
        return Counter(word for line in self.lines if (word := line.partition(" ")[0]) in words and "test_it.py" in line)


def decorated(arguments: str) -> str:
    return f"{TARGETS}\n@parametrize_with_checks({arguments}){TEST}"


def outcome(name: str, **more: Any) -> Counter[str]:
    """Return the engine's own outcome for a target."""
    scope: dict[str, Any] = {}
    exec(TARGETS, scope)
    return Counter(result.status for result in check_target(scope[name], dialects=[OPERATION], **more).results)


# ---- tests made of cases ------------------------------------------------------------------------------------------------


def test_there_is_a_test_for_each_claimed_case_and_the_summary_counts_the_others(tmp_path: Path) -> None:
    run, expected = Run(tmp_path, decorated("[RIGHT], dialects=['optax.clip']")), outcome("RIGHT")
    assert run.code == 0, run.out
    assert run.outcomes() == {"PASSED": expected["pass"]}
    assert f"PASSED test_it.py::test_conformance[{OPERATION}/idempotence]" in run.lines
    assert expected["unclaimed"] > 0
    assert f"right: {expected['pass']} pass, {expected['unclaimed']} unclaimed" in run.lines


def test_a_failure_says_what_was_called_and_what_it_does_to_training(tmp_path: Path) -> None:
    run, expected = Run(tmp_path, decorated("[RIGHT, NO_CLIP], dialects=['optax.clip']")), outcome("NO_CLIP")
    assert run.code == 1
    passed = outcome("RIGHT")["pass"] + expected["pass"] + expected["native"]
    assert run.outcomes() == {"PASSED": passed, "FAILED": expected["fail"]}
    assert any(line.startswith(f"FAILED test_it.py::test_conformance[no_clip-{OPERATION}/bound]") for line in run.lines)
    for text in ("called    optax.clip([[", "expected  [", "got       [", "training  "):
        assert any(line.startswith(f"E         {text}") for line in run.lines), text
    assert "gradclip/conformance" not in run.out.replace("gradclip.conformance", ""), (
        "the traceback shows the suite's own lines"
    )


def test_declared_failures_are_strict(tmp_path: Path) -> None:
    declared = "xfails={'no_clip': {'optax.clip/*': 'it was never written'}}"
    run = Run(tmp_path, decorated(f"[NO_CLIP], dialects=['optax.clip'], {declared}"))
    expected = outcome("NO_CLIP")
    assert run.code == 1
    failing = expected["fail"] + expected["native"]
    assert run.outcomes() == {"XFAIL": failing, "FAILED": expected["pass"]}
    assert sum("[XPASS(strict)] it was never written" in line for line in run.lines) >= expected["pass"]
    summary = f"no_clip: {failing} expected, {expected['pass']} unexpected, {expected['unclaimed']} unclaimed"
    assert summary in run.lines


def test_declared_failures_come_from_a_file_too(tmp_path: Path) -> None:
    (tmp_path / "known.json").write_text(json.dumps({"no_*": {"optax.clip/bound": "known"}}))
    run = Run(tmp_path, decorated("[NO_CLIP], select='optax.clip/bound', xfails='known.json'"))
    assert (run.code, run.outcomes()) == (0, {"XFAIL": 1})


def mine(grads: Any, max_delta: float) -> Any:
    return grads


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"xfails": {"mine": {"optax.clip/nonsense": "why"}}}, "An expected failure names a case that does not exist."),
        ({"dialects": ["caffe"]}, "There is no dialect or operation of this name."),
        ({"dialects": ["torch"]}, "The targets claim none of the selected cases.\nReceived: targets=mine"),
    ],
)
def test_what_cannot_be_run_is_an_error(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        parametrize_with_checks([function_target(mine, OPERATION)], **arguments)
    assert text in str(raised.value)


def test_which_is_one_of_the_collection(tmp_path: Path) -> None:
    run = Run(tmp_path, decorated("[]"))
    assert run.code == 2
    assert "Received: targets=none" in run.out


def test_a_malformed_target_is_a_test_that_fails(tmp_path: Path) -> None:
    broken = "\nclass Broken:\n    name = 'broken'\n    claims = {}\n"
    run = Run(tmp_path, f"{TARGETS}{broken}\n@parametrize_with_checks([Broken(), RIGHT], select='optax.clip/bound'){TEST}")
    assert run.code == 1
    assert run.outcomes() == {"FAILED": 1, "PASSED": 1}
    assert "it has no method make" in run.out


COUNT = """
import threading

def test_threads():
    assert [thread.name for thread in threading.enumerate()].count("conformance case") == 1
"""


def test_the_cases_of_a_target_run_in_one_thread(tmp_path: Path) -> None:
    run = Run(tmp_path, decorated("[RIGHT], dialects=['optax.clip']") + COUNT)
    assert run.outcomes() == {"PASSED": outcome("RIGHT")["pass"] + 1}


def test_the_decorator_needs_no_plugin(tmp_path: Path) -> None:
    run = Run(tmp_path, decorated("[RIGHT], select='optax.clip/bound'"), "-p", "no:gradclip")
    assert (run.code, run.outcomes()) == (0, {"PASSED": 1})
    assert "gradclip conformance =" not in run.out


# ---- the report of the run ----------------------------------------------------------------------------------------------


def test_the_run_is_written_as_json_and_html(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    files = ("--gradclip-report=found.json", "--gradclip-report", "found.html")
    run = Run(tmp_path, decorated("[RIGHT, NO_CLIP], dialects=['optax.clip']"), *files)
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema()).validate(found)
    assert found["counts"] == {**dict.fromkeys(found["counts"], 0), **(outcome("RIGHT") + outcome("NO_CLIP"))}
    assert found["targets"].keys() == {"right", "no_clip"}
    assert found["targets"]["right"]["versions"]["numpy"] == metadata.version("numpy")
    assert found["targets"]["right"]["seconds"] > 0
    assert list(found["vector_versions"]) == [OPERATION]
    page = (tmp_path / "found.html").read_text(encoding="utf-8")
    assert "does not conform" in page
    assert "no_clip" in page
    assert {"written: found.json", "written: found.html"} <= set(run.lines)


def test_only_what_ran_is_in_the_report(tmp_path: Path) -> None:
    Run(tmp_path, decorated("[RIGHT], dialects=['optax.clip']"), "--gradclip-report=found.json", "-k", "/bound")
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert [result["case"] for result in found["results"] if result["status"] == "pass"] == ["optax.clip/bound"]
    assert found["counts"]["unclaimed"] == outcome("RIGHT")["unclaimed"]


def test_a_run_without_conformance_tests_writes_no_report_and_says_so(tmp_path: Path) -> None:
    run = Run(tmp_path, "def test_other(): pass", "--gradclip-report=found.json")
    assert run.code == 0
    assert "No such test ran: found.json not written." in run.lines
    assert not (tmp_path / "found.json").exists()


def test_a_report_of_another_kind_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path, "def test_other(): pass", "--gradclip-report=found.xml")
    assert run.code == 4
    assert "--gradclip-report: FILE must end in .json or .html.\nReceived: 'found.xml'" in run.err


def test_a_report_in_no_folder_is_refused_before_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path, "def test_other(): pass", "--gradclip-report=none/found.json")
    assert run.code == 4
    assert "--gradclip-report: there is no folder for FILE.\nReceived: 'none/found.json'" in run.err


def test_html_without_jinja2_says_what_to_install(tmp_path: Path) -> None:
    hidden = (
        "import importlib.util as u\nfind = u.find_spec\nu.find_spec = lambda name: None if name == 'jinja2' else find(name)\n"
    )
    (tmp_path / "conftest.py").write_text(hidden)
    run = Run(tmp_path, "def test_other(): pass", "--gradclip-report=found.html")
    assert run.code == 4
    assert "Hint: pip install 'gradclip[conformance]'" in run.err


def test_results_come_back_from_other_processes(tmp_path: Path) -> None:
    """pytest-xdist sends reports through JSON."""
    through = """
import json, pytest
@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_makereport(item, call):
    report = yield
    config = item.config
    data = json.loads(json.dumps(config.hook.pytest_report_to_serializable(config=config, report=report)))
    return config.hook.pytest_report_from_serializable(config=config, data=data)
"""
    tmp_path.joinpath("conftest.py").write_text(through)
    expected = outcome("NO_CLIP")
    run = Run(tmp_path, decorated("[NO_CLIP], dialects=['optax.clip']"))
    counts = ", ".join(f"{expected[status]} {status}" for status in ("pass", "native", "fail", "unclaimed"))
    assert f"no_clip: {counts}" in run.lines


# ---- in runs without the suite ------------------------------------------------------------------------------------------


def test_the_plugin_is_installed() -> None:
    (entry,) = [entry for entry in metadata.entry_points(group="pytest11") if entry.name == "gradclip"]
    assert entry.value == "gradclip.conformance.plugin"


def test_an_unrelated_run_is_as_it_was(tmp_path: Path) -> None:
    seen = """
import sys
def test_other(pytestconfig):
    assert pytestconfig.pluginmanager.has_plugin("gradclip")
    print("LOADED", *sorted(sys.modules))
"""
    run = Run(tmp_path, seen, is_fresh=True)
    assert (run.code, run.outcomes()) == (0, {"PASSED": 1})
    assert "gradclip conformance =" not in run.out
    (loaded,) = [set(line.split()) for line in run.lines if line.startswith("LOADED")]
    frameworks = {"numpy", "torch", "tensorflow", "paddle", "jax", "keras", "optax"}
    assert loaded.isdisjoint(frameworks | {"rich", "jinja2", "jsonschema", "mpmath"})
    assert {name for name in loaded if name.startswith("gradclip.conformance.")} == {"gradclip.conformance.plugin"}
    without = Run(tmp_path / "without", seen.replace("assert", "assert not"), "-p", "no:gradclip", is_fresh=True)
    assert without.code == 0, without.out
