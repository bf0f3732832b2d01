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
from all_only import revealed

import gradclip

USERS = Path(__file__).parent / "users"
PACKAGE = Path(gradclip.__file__).parents[1]

Errors = dict[str, dict[int, str]]  # file -> line -> the first error there
REVEALED = re.compile(r'(?:Revealed type is|Type of ".*" is) "(.*)"$')


def mypy(folder: Path) -> Errors:
    # an install is found by itself; a clone counts as the user's own code, unless its errors are silent
    path = {} if PACKAGE.name == "site-packages" else {"MYPYPATH": str(PACKAGE)}
    options = ["--strict", "--config-file=", "--follow-imports=silent", "--hide-error-context", "--no-error-summary"]
    out = launch([*options, f"--cache-dir={folder / 'cache'}", "."], "mypy", folder, path)
    (folder / "mypy.txt").write_text(out, encoding="utf-8")
    found: Errors = {}
    for file, line, severity, text in re.findall(r"^([\w./]+):(\d+): (error|note): (.*)$", out, re.MULTILINE):
        if severity == "error" or REVEALED.match(text):
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
        if one["severity"] == "error" or REVEALED.match(one["message"]):
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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Path(shutil.copytree(USERS, tmp_path_factory.mktemp("types") / "users"))
    for name in revealed.FRAMEWORKS:
        (made / f"revealed_{name}.py").write_text(revealed.program(name), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def errors(checker: Callable[[Path], Errors], folder: Path) -> Errors:
    """The errors of one run over all files: reading a framework takes far longer than reading a file."""
    return checker(folder)


@pytest.mark.parametrize("user", sorted(path.name for path in USERS.glob("*_user.py")))
def test_a_users_program_has_no_error(user: str, errors: Errors) -> None:
    assert errors.get(user, {}) == {}


def test_each_wrong_use_is_an_error(errors: Errors) -> None:
    assert sorted(errors["wrong.py"]) == marked("wrong.py")
    assert len(marked("wrong.py")) > 20


def test_the_error_of_a_wrong_argument_is_short(checker: Callable[[Path], Errors], errors: Errors, folder: Path) -> None:
    """For mypy with its notes. Only for a missing argument it lists the overloads."""
    lengths = {line: len(text) for line, text in errors["wrong.py"].items()}
    if checker is mypy:
        told = re.findall(r"^wrong\.py:(\d+): \w+: (.*)$", (folder / "mypy.txt").read_text(encoding="utf-8"), re.MULTILINE)
        lengths = {line: sum(len(text) for number, text in told if int(number) == line) for line in lengths}
    lines = (USERS / "wrong.py").read_text(encoding="utf-8").splitlines()
    most = 500 if checker is mypy else 800  # pyright goes through the protocols of a limit
    long = {lines[line - 1].partition("  #")[0] for line, length in lengths.items() if length > most}
    assert long <= {"gradclip.clip_grad_norm_(model.parameters())", "gradclip.clip(grads)"}


def test_each_wrong_use_of_tensorflow_and_keras_is_an_error(checker: Callable[[Path], Errors], errors: Errors) -> None:
    """For mypy their names are Any, so it sees what is wrong with other arguments only.

    The last lines of the file have no error: there the framework's own types pass for an int.
    """
    wrong = marked("wrong_guessed.py", "# error: pyright")
    assert sorted(errors["wrong_guessed.py"]) == sorted(marked("wrong_guessed.py") + (wrong if checker is pyright else []))
    assert len(wrong) >= 5


@pytest.mark.parametrize("name", revealed.FRAMEWORKS)
def test_each_type_is_as_in_the_table(name: str, checker: Callable[[Path], Errors], errors: Errors) -> None:
    """For mypy the types of TensorFlow are Any, and Paddle's tensors derive from Any: so their norms are Any."""
    told, lines = errors[f"revealed_{name}.py"], revealed.program(name).splitlines()
    found = {lines[number - 1]: text for number, text in told.items()}
    expected = {f"reveal_type({row})": kind for row, kind in revealed.expected(name)}
    assert found.keys() == expected.keys()  # no other line has an error
    said = {row: match and revealed.short(name, match[1]) for row, text in found.items() for match in [REVEALED.match(text)]}
    if checker is mypy:
        expected |= {f"reveal_type({row})": kind for row, kind in revealed.MYPY.items() if f"reveal_type({row})" in expected}
    if name in ("paddle", "tensorflow") and checker is mypy:
        assert None not in said.values()  # no line has an error
    else:
        assert said == expected


def test_the_test_of_values_can_fail() -> None:
    assert revealed.is_of([1.0], list[float])
    assert not revealed.is_of([1.0, None], list[float])
    assert not revealed.is_of((1.0, "a"), tuple[float, float])


def marked(file: str, mark: str = "# error") -> list[int]:
    lines = (USERS / file).read_text(encoding="utf-8").splitlines()
    return [number for number, line in enumerate(lines, 1) if line.endswith(mark)]
