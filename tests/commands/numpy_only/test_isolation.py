"""Reading is not running: whatever a module is called, the command does not import it from a folder that it reads."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from launched import TIME_LIMIT

from gradclip.commands import cli
from gradclip.conformance import children
from gradclip.core import isolation
from gradclip.steps.advice import choose

SCRIPT = [sys.executable, str(Path(sys.executable).with_name("gradclip"))]
MODULE = [sys.executable, "-m", "gradclip"]
NOTHING = "no_such_module_anywhere"  # what Python imports before it finds out

# It notes its name and its process, and then becomes the module that it hides: so every later one is noted too.
MARKER = """\
import posix, sys
_to = posix.open({log!r}, posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT)
posix.write(_to, (__name__ + "\\t" + " ".join(sys.orig_argv) + "\\n").encode())
posix.close(_to)
_before = sys.path[:]
sys.path[:] = [entry for entry in _before if entry not in ("", ".", {folder!r})]
_own = sys.modules.pop(__name__)
try:
    __import__(__name__)
except ImportError:
    sys.modules[__name__] = _own
sys.path[:] = _before
"""
PACKAGES = ("multiprocessing", "concurrent", "importlib", "libcst", "rich", "gradclip")  # planted as folders
CLIP = "import torch\noptimizer.step()\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\nloss.backward()\n"


def names() -> set[str]:
    """Return the names of all modules of the standard library and of the installed packages."""
    found = {*sys.stdlib_module_names, *PACKAGES, "sitecustomize", "usercustomize", "conftest", "setup"}
    for folder in {Path(entry) for entry in sys.path if entry.endswith("-packages")}:
        found.update(path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists())
    assert found > {"libcst", "pathspec", "rich", "types", "signal", "yaml"}
    return {name for name in found if name.isidentifier()}


NAMES = names()


def planted(folder: Path, without: str = "") -> Path:
    """Make a folder where each of these modules leaves a mark, with files that are worth reading; return the marks' file."""
    folder.mkdir(parents=True)
    log = folder.with_suffix(".log")
    log.touch()
    marker = MARKER.format(log=str(log), folder=str(folder))
    for name in sorted(NAMES - {without}):
        if name in PACKAGES:
            (folder / name).mkdir()
        (folder / (f"{name}/__init__.py" if name in PACKAGES else f"{name}.py")).write_text(marker)
    (folder / "hostile.pth").write_text("import types, sitecustomize\n")
    (folder / "pyproject.toml").write_text('[tool.gradclip.lint]\nselect = ["GM"]\n')
    (folder / "train.py").write_text(CLIP)
    (folder / "norms.jsonl").write_text("\n".join(str(1 + i % 7) for i in range(200)))
    return log


def start(command: list[str], folder: Path, **own: str) -> subprocess.CompletedProcess[str]:
    """Run a command without the variables that would protect it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment = kept | {"PYTHONDONTWRITEBYTECODE": "1"} | own
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIME_LIMIT)


@dataclass(frozen=True)
class Ran:
    """The modules that ran in a folder."""

    said: str
    inside: frozenset[str]  #: in the command's own process
    others: frozenset[str]  #: in those that it started


def ran(command: list[str], folder: Path, **own: str) -> Ran:
    """Run a command in a folder full of marks."""
    is_named = "gradclip" in command or own  # by -m, or by PYTHONPATH: then the user runs a gradclip that is there
    log = planted(folder, "gradclip" if is_named else "")
    done = start(command, folder, **own)
    marks = [line.split("\t") for line in log.read_text().splitlines()]
    others = frozenset(name for name, process in marks if "multiprocessing" in process)
    return Ran(done.stdout + done.stderr, frozenset(name for name, _ in marks) - others, others)


RUNS = {  # with many files processes start; with few there are none
    "lint many": ["lint", "."],
    "migrate many": ["migrate", "--write", "."],
    "lint few": ["lint", "train.py"],
    "migrate few": ["migrate", "train.py"],
    "explain": ["explain", "GT101"],
    "choose": ["choose", "norms.jsonl"],
}
SAID = {"lint": "GM108", "migrate": "clip_grad_norm_", "explain": "GT101", "choose": "Recommended: "}
STARTS = {
    "script": (SCRIPT, {}),
    "-m": (MODULE, {}),
    "-E": ([sys.executable, "-E", "-m", "gradclip"], {}),
    "PYTHONPATH": (SCRIPT, {"PYTHONPATH": f"{os.pathsep}nowhere"}),
}
CASES = [
    *(("script", what) for what in RUNS if what != "migrate few"),
    *(("-m", what) for what in RUNS if what != "lint few"),
    *(("-E", "lint many"), ("PYTHONPATH", "choose")),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Ran]:
    """Return what each command ran, two commands at a time, and what Python itself runs with each start."""
    folder = tmp_path_factory.mktemp("hostile")
    launcher = folder / "launcher"
    launcher.write_text("import re, sys\n")  # pip writes this into the script gradclip

    def one(case: tuple[str, str]) -> Ran:
        command, own = STARTS[case[0]]
        if case[1]:
            words = [*command, *RUNS[case[1]]]
        elif command == SCRIPT:
            words = [sys.executable, str(launcher)]
        else:
            words = [*command[:-1], NOTHING]
        return ran(words, folder / "-".join(case).replace(" ", "-"), **own)

    cases = [*CASES, *((how, "") for how in STARTS)]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(cases, pool.map(one, cases), strict=True))


@pytest.mark.parametrize(("how", "what"), CASES)
def test_nothing_of_the_folder_runs(how: str, what: str, runs: dict[tuple[str, str], Ran]) -> None:
    found = runs[how, what]
    assert SAID[RUNS[what][0]] in found.said
    assert found.others == set()
    assert found.inside <= runs[how, ""].inside, "more than Python itself runs before any line of gradclip"


def test_the_script_and_safe_python_run_nothing_at_all(runs: dict[tuple[str, str], Ran], tmp_path: Path) -> None:
    assert runs["script", ""].inside == set()
    assert runs["-m", ""].inside <= {"contextlib", "importlib", "traceback", "types", "warnings"}
    safe = ran([sys.executable, "-P", "-m", "gradclip", "explain", "GT101"], tmp_path / "safe")
    assert ("GT101" in safe.said, safe.inside) == (True, set())


def test_the_marks_are_seen(tmp_path: Path) -> None:
    assert {"json", "libcst"} <= ran([sys.executable, "-c", "import json, libcst"], tmp_path / "seen").inside


# ---- the path -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return ``sys.path``, which the test may change, as the set of folders that were left."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(isolation, "_left", set())
    return sys.path


@pytest.mark.parametrize("entry", ["", ".", "{here}", "{here}/", "{here}/x/..", "{link}"])
def test_the_current_folder_leaves_the_path_however_it_is_written(
    entry: str, path: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, link = tmp_path / "here", tmp_path / "link"
    (here / "x").mkdir(parents=True)
    link.symlink_to(here)
    monkeypatch.chdir(here)
    before = list(path)
    path.insert(0, entry.format(here=here, link=link))
    isolation.leave()
    assert sys.path == before


def test_named_folders_leave_too_and_python_and_its_packages_stay(path: list[str], tmp_path: Path) -> None:
    library, packages = os.path.dirname(os.__file__), tmp_path / "site-packages"
    packages.mkdir()
    path[:] = [str(tmp_path), library, str(packages), "elsewhere"]
    isolation.leave((str(tmp_path), library, str(packages), "a\0b"))
    assert sys.path == [library, str(packages), "elsewhere"]


def test_a_clone_follows_the_standard_library(path: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, packages = os.path.dirname(os.__file__), str(tmp_path / "site-packages")
    monkeypatch.setattr(isolation, "_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    path[:] = [str(tmp_path), library, packages]
    isolation.leave()
    assert sys.path == [library, str(tmp_path), packages]


@pytest.mark.parametrize(
    ("original", "given", "is_it"),
    [
        (["python", "-m", "gradclip", "lint", "."], ["-m", "lint", "."], True),
        (["python", "-Wdefault", "-Pmgradclip"], ["-m"], True),
        (["python", "-m", "pytest", "gradclip"], ["-m", "gradclip"], False),
        (["python", "-m", "my_gradclip"], ["-m"], False),
        (["python", "/usr/bin/gradclip", "lint"], ["/usr/bin/gradclip", "lint"], True),
        (["python", "train.py"], ["train.py"], False),
        (["python"], [""], False),
        (["python"], [], False),
    ],
)
def test_only_the_command_leaves_the_folder(
    original: list[str], given: list[str], is_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "orig_argv", original)
    monkeypatch.setattr(sys, "argv", given)
    assert isolation.is_command() is is_it


def test_a_process_of_a_framework_runs_nothing_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = tmp_path / "fakes"
    fakes.mkdir()
    (fakes / "fake_framework.py").write_text("import json, types, signal\nprint(json.dumps({'end': None}))\n")
    log = planted(tmp_path / "hostile")
    monkeypatch.chdir(tmp_path / "hostile")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", str(tmp_path / "hostile"), "../fakes"]))
    assert children.run("fake_framework", [], lambda message: None) is None
    assert log.read_text() == ""


def test_a_process_does_not_get_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ".")
    assert isolation.environment() == {"PYTHONSAFEPATH": "1", "PYTHONPATH": ""}
    assert os.environ["PYTHONPATH"] == "."


def test_settings_of_matplotlib_do_not_start_latex(tmp_path: Path) -> None:
    """A ``matplotlibrc`` in the current folder has such settings."""
    import matplotlib

    with matplotlib.rc_context({"text.usetex": True, "text.latex.preamble": r"\no_such_command"}):
        choose([1.0, 2.0] * 10).plot(tmp_path / "norms.png")
        assert matplotlib.rcParams["text.usetex"]
    assert (tmp_path / "norms.png").stat().st_size > 1000


def test_the_command_that_runs_code_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["conformance", "--help"])
    assert "is code: this command runs it" in " ".join(capsys.readouterr().out.split())
