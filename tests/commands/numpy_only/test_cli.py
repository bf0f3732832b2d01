"""The command: its output, its exit codes, and its behaviour with a broken framework."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from launched import TIME_LIMIT

from gradclip.commands import backends, cli
from gradclip.commands.help import HelpFormatter
from gradclip.conformance import children
from gradclip.core import registry, versions
from gradclip.core.backend import Backend


def gradclip(*arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a separate process; its working directory contains nothing of this checkout."""
    environment = {**os.environ, "COLUMNS": "80", **variables}
    command = [sys.executable, "-m", "gradclip", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=TIME_LIMIT)


def fake(folder: Path, module: str, text: str) -> str:
    """Return a folder for PYTHONPATH, with a module that hides the installed one."""
    path = folder / "fakes"
    path.mkdir(exist_ok=True)
    (path / f"{module}.py").write_text(text)
    return str(path)


def only(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Restrict the registry to these modules, so that it imports one framework and not five."""
    monkeypatch.setattr(registry, "_SOURCES", {name: registry._sources()[name] for name in modules})


def test_version(tmp_path: Path) -> None:
    done = gradclip("--version", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"gradclip {metadata.version('gradclip')}\n")


def test_the_console_script_is_the_same_command(capsys: pytest.CaptureFixture[str]) -> None:
    (script,) = metadata.entry_points(group="console_scripts", name="gradclip")
    assert script.load() is cli.main


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nonsense"], "Received: nonsense\nHint: the commands are demo, backends, explain,"),
        (["explian", "torch.clip_grad_norm"], "There is no such command.\nReceived: explian\nHint: did you mean explain?\n"),
        (["migrat", "."], "Hint: did you mean migrate?"),
        (["backends", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
        (["demo", "--steps", "0"], "must be a whole number from 1 to 3000, not '0'"),
        (["demo", "--steps", "many"], "must be a whole number from 1 to 3000, not 'many'"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gradclip ", ["demo", "backends", "explain", "choose", "lint", "migrate", "conformance", "--version"]),
        ("gradclip ex", ["explain "]),
        ("gradclip lint --form", ["--format "]),
        ("gradclip lint --format s", ["sarif "]),
        ("gradclip explain --to pa", ["paddle "]),
    ],
)
def test_a_shell_completes_a_line(line: str, words: list[str], tmp_path: Path) -> None:
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SHELL": "bash", "COMP_TYPE": "9"}
    said = tmp_path / "said"
    place = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_STDOUT_FILENAME": str(said)}
    done = gradclip(folder=tmp_path, **asked, **place)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert set(words) <= set(said.read_text(encoding="utf-8").split("\n"))


def test_without_arguments_it_shows_what_it_can_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    overview = capsys.readouterr().out
    assert "  lint         find broken clipping in source code\n               gradclip lint src\n" in overview
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == overview
    assert "\nexit status:\n  0    everything is fine\n" in overview


@pytest.mark.parametrize("command", cli._COMMANDS)
def test_every_command_says_how_it_ends(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: gradclip {command} [")
    assert "exit status:" in out


@pytest.mark.parametrize("command", ["", *cli._COMMANDS])
def test_the_help_stays_within_the_terminal(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = []
    for columns in (60, 80, 300):
        monkeypatch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit):
            cli.main([*filter(None, [command]), "--help"])
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if len(line) > columns] == []
        words.append(" ".join(lines).split())
    assert words[0] == words[1] == words[2], "a word is lost, or moved"


def test_a_line_of_the_help_goes_on_below_its_meaning() -> None:
    formatter = HelpFormatter("gradclip", width=30)
    text = "One two three four\nfive six seven.\n\nlist:\n  term  one two three four five\n  an-option-of-many-letters"
    text += "  its meaning\n  gradclip lint some/folder --select GM101\n"
    assert formatter._fill_text(text, 28, "").splitlines() == [
        "One two three four five six",
        "seven.",
        "",
        "list:",
        "  term  one two three four",
        "        five",
        "  an-option-of-many-letters",
        "      its meaning",
        "  gradclip lint some/folder",
        "      --select GM101",
    ]


def test_the_examples_are_of_the_commands() -> None:
    """This test checks their options only; each command has tests for its effects."""
    for command, (_, example, *_) in cli._COMMANDS.items():
        arguments = shlex.split(example)[1:]
        assert arguments[0] == command
        assert cli._parser(command).parse_args(arguments).run


def test_what_is_printed_of_a_backend(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    only(monkeypatch, "numpy")
    assert cli.main(["backends"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"numpy {metadata.version('numpy')}  (built in: gradclip.backends.numpy:")
    assert max(map(len, out.splitlines())) <= 80


def test_a_framework_that_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    only(monkeypatch, "paddle")
    monkeypatch.setenv("PYTHONPATH", fake(tmp_path, "paddle", "__version__ = '2.6.2'"))
    monkeypatch.syspath_prepend(tmp_path / "fakes")
    assert cli.main(["backends"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "paddle 2.6.2: installed, but does not work" in said
    assert "VersionError: gradclip works with PaddlePaddle 3.0 and newer. Received: paddle.__version__='2.6.2'" in said
    assert cli.main(["backends", "--json"]) == 1
    (entry,) = json.loads(capsys.readouterr().out)["backends"]
    assert (entry["version"], entry["standing"]) == ("2.6.2", "below")


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0.2.3", "below 0.2.4, the oldest that gradclip works with"),
        ("0.2.4", "the tests ran on this one"),
        ("0.2.5", "supported, though the tests ran on other versions"),
        ("99.0", f"newer than {versions.FRAMEWORKS['optax'].tested[-1]}, the last that the tests ran on"),
        ("main", "not known to the tests"),
    ],
)
def test_the_slots(
    version: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "_SOURCES", {"no_such_framework": "no_such_backend:Backend"})
    monkeypatch.setattr(backends, "_SLOTS", ("optax", "no_such_library"))
    information = tmp_path / f"optax-{version}.dist-info" / "METADATA"
    information.parent.mkdir()
    information.write_text(f"Name: optax\nVersion: {version}\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert cli.main(["backends"]) == 0
    assert f"\n\nslot of optax {version}: {said}\n\n" in capsys.readouterr().out
    assert cli.main(["backends", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["slots"]
    assert entry == {"name": "optax", "version": version, "standing": versions.standing("optax", version)}


def test_a_module_of_the_same_backend_is_no_entry_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "numpy", "ml_dtypes")
    (entry,) = backends.survey(lambda name: None)
    assert (entry["name"], entry["modules"]) == ("numpy", ["numpy", "ml_dtypes"])


def test_a_framework_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(registry, "_SOURCES", {"no_such_framework": "no_such_backend:Backend"})
    assert cli.main(["backends"]) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    assert first == "no_such_framework: not installed  (entry point: no_such_backend:Backend)"


def test_whether_there_are_compiled_loops(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(registry, "_SOURCES", {"no_such_framework": "no_such_backend:Backend"})
    for are_there, line in ((True, "yes"), (False, "no: installed without a C compiler, slower on a CPU")):
        if not are_there:  # its import fails, as if it were not installed
            monkeypatch.setitem(sys.modules, "gradclip.backends.host._kernels", None)
        assert cli.main(["backends"]) == 0
        assert capsys.readouterr().out.endswith(f"\n\ncompiled loops: {line}\n")
        assert cli.main(["backends", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["compiled_loops"] is are_there


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise ImportError('libbroken.so: no such file')", "ImportError: libbroken.so: no such file"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crashed with SIGSEGV"),
        (
            "import os, sys; print('out of luck', file=sys.stderr, flush=True); os._exit(3)",
            "ended with exit status 3: out of luck",
        ),
        ("import sys; print('no json'); sys.exit('giving up')", "SystemExit: giving up"),
        ("import os; os._exit(0)", "ended without an answer"),
    ],
)
def test_a_framework_that_is_installed_and_broken(
    text: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    only(monkeypatch, "paddle")
    monkeypatch.setenv("PYTHONPATH", fake(tmp_path, "paddle", text))
    monkeypatch.syspath_prepend(tmp_path / "fakes")
    assert cli.main(["backends"]) == 1
    out = capsys.readouterr().out
    assert "paddle: installed, but does not work  (built in: gradclip.backends.paddle:PaddleBackend)" in out
    assert reason in " ".join(out.split())


class ToyTensor:
    """A tensor of one float32."""

    def __init__(self, value: float) -> None:
        self.value = value


class ToyBackend(Backend):
    name = "toy"

    def is_tensor(self, x: object) -> bool:
        return isinstance(x, ToyTensor)


def toy(asarray: Any) -> type[object]:
    return type("toy", (), {"__version__": "0.7", "asarray": staticmethod(asarray)})


def test_a_backend_registered_in_this_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(registry, "_SOURCES", {"toy": ToyBackend})
    monkeypatch.setattr(registry, "_backends", {})
    monkeypatch.setitem(sys.modules, "toy", toy(lambda values: values))
    monkeypatch.setattr(backends, "_SLOTS", ())
    assert cli.main(["backends"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("toy 0.7  (registered: ")
    assert lines[0].endswith(":ToyBackend)")
    assert lines[1:] == [
        "  devices     not known",
        "  dtypes      not tried: no tensor to try it with",
        "  in place    no",
        "  sparse      no",
        "  traced      not tried: no tensor to try it with",
        "",
        "compiled loops: yes",
    ]


def test_what_a_third_party_backend_cannot_do_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "_SOURCES", {"toy": ToyBackend})
    monkeypatch.setattr(registry, "_backends", {})
    monkeypatch.setitem(sys.modules, "toy", toy(lambda values: ToyTensor(values[0])))
    assert cli.main(["backends", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["backends"]
    assert entry["dtypes"]["float16"] == "NotImplementedError: "


def test_a_registered_backend_that_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> Backend:
        raise RuntimeError("no licence")

    monkeypatch.setattr(registry, "_SOURCES", {"toy": fail})
    monkeypatch.setattr(registry, "_backends", {})
    monkeypatch.setitem(sys.modules, "toy", toy(lambda values: values))
    assert cli.main(["backends"]) == 1
    assert "  reason      RuntimeError: no licence" in capsys.readouterr().out


def test_a_process_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", fake(tmp_path, "sleeper", "import time; time.sleep(60)"))
    assert children.run("sleeper", [], lambda message: None, seconds=0.5) == "did not end within 0.5 seconds"


def test_the_command_imports_no_framework_itself(tmp_path: Path) -> None:
    code = (
        "import sys; before = set(sys.modules)\n"
        "from gradclip.commands import cli; cli.main([])\n"
        "new = set(sys.modules) - before\n"
        "bad = {'numpy', 'torch', 'tensorflow', 'paddle', 'jax', 'rich', 'sklearn'} & set(sys.modules)\n"
        # the slowest imports; only some commands need them
        "bad |= {'importlib.metadata', 'gradclip.migrate', 'gradclip.conformance', 'gradclip.commands.demo'} & new\n"
        "sys.exit(f'imported: {bad}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=TIME_LIMIT)
    assert (done.returncode, done.stderr) == (0, "")
