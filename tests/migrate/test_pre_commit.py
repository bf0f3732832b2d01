"""The pre-commit hook for other repositories: pre-commit accepts it, and its command works."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from launched import TIME_LIMIT

ROOT = Path(__file__).parents[2]
HOOKS = ROOT / ".pre-commit-hooks.yaml"


@pytest.fixture
def hook() -> dict[str, Any]:
    (found,) = (one for one in yaml.safe_load(HOOKS.read_text(encoding="utf-8")) if one["id"] == "gradclip-migrate")
    return dict(found)


def test_the_definition_is_one_of_pre_commit(hook: dict[str, Any]) -> None:
    assert hook["id"] == "gradclip-migrate"
    assert hook.keys() >= {"id", "name", "entry", "language"}
    assert hook["language"] == "python"
    assert hook["types_or"] == ["python", "jupyter"]


def test_what_is_installed_beside_it_is_the_extra(hook: dict[str, Any]) -> None:
    assert hook["additional_dependencies"] == [".[migrate]"], "pre-commit installs in a clone of this repository"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"libcst", "pathspec", "rich"} == {re.split(r"\W", one)[0] for one in project["optional-dependencies"]["migrate"]}


@pytest.mark.parametrize(
    ("source", "code", "said"),
    [
        ("import torch\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n", 1, "GT101 would be rewritten"),
        ("import gradclip\ngradclip.clip_grad_norm_(model.parameters(), 1.0)\n", 0, "nothing to do"),
        ("print 'clip'\n", 2, ""),
    ],
)
def test_the_entry_checks_and_changes_nothing(source: str, code: int, said: str, hook: dict[str, Any], tmp_path: Path) -> None:
    program, *arguments = shlex.split(hook["entry"])
    assert program == "gradclip"
    names = ["a.py", "b.pyi"]
    for name in names:
        (tmp_path / name).write_text(source if name == "a.py" else "x: int\n", encoding="utf-8")
    command = [sys.executable, "-P", "-m", program, *arguments, *names]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=TIME_LIMIT)
    assert done.returncode == code, done.stderr
    assert said in done.stdout
    assert (tmp_path / "a.py").read_text(encoding="utf-8") == source
