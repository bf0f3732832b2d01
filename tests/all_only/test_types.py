"""A user's program has types with gradclip where it has them with the framework. Wrong uses are errors."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import launched
import pytest

import gradclip

USERS = Path(__file__).parent / "users"
PACKAGE = Path(gradclip.__file__).parents[1]

Errors = dict[str, dict[int, str]]  # file -> line -> the first error there


def mypy(folder: Path) -> Errors:
    # an install is found by itself; a clone counts as the user's own code, unless its errors are silent
    path = {} if PACKAGE.name == "site-packages" else {"MYPYPATH": str(PACKAGE)}
    options = ["--strict", "--config-file=", "--follow-imports=silent", "--hide-error-context", "--no-error-summary"]
    out = launch([*options, f"--cache-dir={folder / 'cache'}", "."], "mypy", folder, path)
    found: Errors = {}
    for file, line, text in re.findall(r"^([\w./]+):(\d+): error: (.*)$", out, re.MULTILINE):
        found.setdefault(file, {}).setdefault(int(line), text)
    return found


def pyright(folder: Path) -> Errors:
    # an install is found by itself: with its folder among these, the frameworks' code would go before pyright's stubs of it
    settings = {"include": ["."], "extraPaths": [] if PACKAGE.name == "site-packages" else [str(PACKAGE)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    told = json.loads(launch(["--pythonpath", sys.executable, "--outputjson"], "pyright", folder, {}))
    found: Errors = {}
    for one in told["generalDiagnostics"]:
        name, line = Path(one["file"]).name, one["range"]["start"]["line"] + 1
        if one["severity"] == "error":
            found.setdefault(name, {}).setdefault(line, one["message"])
    return found


def launch(arguments: list[str], program: str, folder: Path, environment: dict[str, str]) -> str:
    command = [sys.executable, "-m", program, *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env=launched.environment(**environment),
        capture_output=True,
        text=True,
        timeout=launched.TIME_LIMIT,
    )
    assert done.returncode == 1, done.stdout + done.stderr  # the wrong uses
    return done.stdout


@pytest.fixture(scope="module", params=[mypy, pyright], ids=["mypy", "pyright"])
def checker(request: pytest.FixtureRequest) -> Callable[[Path], Errors]:
    made: Callable[[Path], Errors] = request.param
    return made


@pytest.fixture(scope="module")
def errors(checker: Callable[[Path], Errors], tmp_path_factory: pytest.TempPathFactory) -> Errors:
    """The errors of one run over all files: reading a framework takes far longer than reading a file."""
    return checker(Path(shutil.copytree(USERS, tmp_path_factory.mktemp("types") / "users")))


@pytest.mark.parametrize("user", sorted(path.name for path in USERS.glob("*_user.py")))
def test_a_users_program_has_no_error(user: str, errors: Errors) -> None:
    assert errors.get(user, {}) == {}


def test_each_wrong_use_is_an_error(errors: Errors) -> None:
    assert sorted(errors["wrong.py"]) == marked("wrong.py")
    assert len(marked("wrong.py")) > 20


def test_each_wrong_use_of_tensorflow_and_keras_is_an_error(checker: Callable[[Path], Errors], errors: Errors) -> None:
    """For mypy their names are Any, so it sees what is wrong with other arguments only.

    The last lines of the file have no error: there the framework's own types pass for an int.
    """
    wrong = marked("wrong_guessed.py", "# error: pyright")
    assert sorted(errors["wrong_guessed.py"]) == sorted(marked("wrong_guessed.py") + (wrong if checker is pyright else []))
    assert len(wrong) >= 5


def marked(file: str, mark: str = "# error") -> list[int]:
    lines = (USERS / file).read_text(encoding="utf-8").splitlines()
    return [number for number, line in enumerate(lines, 1) if line.endswith(mark)]
