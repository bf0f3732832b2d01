"""The command ``gradclip migrate``: its exit codes, standard input, and a separate process."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from launched import TIME_LIMIT
from migrate.command import command, made, migrate

# ---- exit codes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "code"),
    [("x = 1\n", 0), ("leave\n", 0), ("old\n", 1), ("by_hand\n", 1), ("old\nby_hand\nleave\n", 1), ("print 'unreadable'\n", 2)],
)
@pytest.mark.parametrize("options", [(), ("--check",), ("--json",), ("--check", "--json"), ("--verbose",), ("-j", "2")])
def test_the_exit_code_says_whether_there_is_something_to_do(
    source: str, code: int, options: tuple[str, ...], folder: Path
) -> None:
    made(x=source, y="x = 1\n")
    assert migrate(".", *options) == code
    assert Path("x.py").read_text() == source


def test_what_fails_outweighs_what_is_to_be_done(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(a="old\n", b="print 'unreadable'\n", c="old\n")
    assert migrate("a.py", "gone.py", "b.py", "c.py", "--write") == 2
    assert Path("a.py").read_text() == Path("c.py").read_text() == "new\n"
    said = "Python 2, not 3: Missing parentheses in call to 'print'. Did you mean print(...)?"
    assert capsys.readouterr().err == f"gone.py: ERROR: no such file or directory\nb.py:1:1: ERROR: {said}\n"


def test_a_second_run_finds_only_what_is_left_to_do_by_hand(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(a="old\n", b="by_hand\nold\n")
    assert migrate("a.py", "--write") == 1
    assert migrate("a.py", "--write") == 0
    assert migrate("b.py", "--write") == 1
    capsys.readouterr()
    assert migrate("b.py", "--write") == 1, "a person still has to look at it"
    assert capsys.readouterr().out.splitlines()[-1] == "1 file read: 1 to do by hand."


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "the following arguments are required: PATH"),
        (["x", "--to", "mxnet"], "invalid choice: 'mxnet'"),
        (["x", "--from", "torch,mxnet"], "choose from torch, tensorflow, keras, paddle, optax, jax, not mxnet"),
        (["x", "-j", "0"], "must be a whole number from 1, not '0'"),
        (["x", "-j", "many"], "must be a whole number from 1, not 'many'"),
        (["x", "--write", "--check"], "not allowed with argument"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        migrate(*arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["x.py", "--exclude", "!"],
            "The pattern of --exclude is invalid.\nReceived: !\nHint: it is a pattern as in a .gitignore.\n",
        ),
        (["-", "x.py"], "Standard input is one source.\nReceived: - x.py\nHint: give - alone.\n"),
        (
            ["x.py", "--select", "GT,XY"],
            "No code begins with XY.\nReceived: --select GT,XY\nHint: `gradclip explain G` lists them all.\n",
        ),
        (
            ["x.py", "--ignore", "GT999"],
            "No code begins with GT999.\nReceived: --ignore GT999\nHint: `gradclip explain G` lists them all.\n",
        ),
    ],
)
def test_what_means_nothing_ends_with_2(
    arguments: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert migrate(*arguments) == 2
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize("module", ["libcst", "pathspec", "rich"])
def test_without_the_extra_one_line_says_how_to_install_it(module: str, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom importlib import util\nfrom gradclip.commands import cli\n"
        f"sys.modules[{module!r}], find = None, util.find_spec\n"
        f"util.find_spec = lambda name: None if name == {module!r} else find(name)\n"
        "sys.exit(cli.main(['migrate', '.']))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=TIME_LIMIT)
    said = f"gradclip migrate needs {module}: python -m pip install 'gradclip[migrate]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_the_help_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        migrate("--help")
    assert ended.value.code == 0
    out = capsys.readouterr().out
    for word in (
        "--to",
        "--from",
        "--write",
        "--check",
        "--select",
        "--ignore",
        "--annotate",
        "--json",
        "--verbose",
        "--exclude",
        "--strict",
        "-j",
    ):
        assert word in out
    assert "exit status:" in out


# ---- standard input, and a separate process -----------------------------------------------------------------------------

TORCH = b"import torch\r\n\r\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # \xe9\r\n"


def test_standard_input_is_migrated_to_standard_output_byte_for_byte(tmp_path: Path) -> None:
    source = b"# coding: latin-1\r\n" + TORCH
    done = command("-", "--write", stdin=source, folder=tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stdout.endswith(b"\r\n\r\ngradclip.clip_grad_norm_(model.parameters(), 1.0)  # \xe9\r\n")
    assert done.stdout.startswith(b"# coding: latin-1\r\nimport gradclip\r\n")
    assert b"1 site rewritten" in done.stderr
    again = command("-", "--write", stdin=done.stdout, folder=tmp_path)
    assert (again.returncode, again.stdout) == (0, done.stdout)


def test_standard_input_that_cannot_be_migrated_comes_out_as_it_went_in(tmp_path: Path) -> None:
    for source, said in ((b"print 'clip'\n", b"<stdin>:1:1: ERROR: Python 2"), (TORCH, b"<stdin>: ERROR: cannot be decoded: ")):
        done = command("-", "--write", stdin=source, folder=tmp_path)
        assert (done.returncode, done.stdout) == (2, source)
        assert done.stderr.startswith(said)


def test_standard_input_without_write_is_only_shown(tmp_path: Path) -> None:
    source = TORCH.replace(b"\r", b"").replace(b"\xe9", b"e")
    done = command("-", stdin=source, folder=tmp_path)
    assert done.returncode == 1
    assert done.stdout.startswith(b"--- a/<stdin>\n+++ b/<stdin>\n")
    assert b"+gradclip.clip_grad_norm_(model.parameters(), 1.0)  # e\n" in done.stdout
    (found,) = json.loads(command("-", "--json", stdin=source, folder=tmp_path).stdout)["files"]
    assert [site["outcome"] for site in found["sites"]] == ["rewritten"]


def test_a_terminal_that_lacks_the_characters_of_a_source(tmp_path: Path) -> None:
    source = "import torch\n# é\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n".encode()
    done = command("-", stdin=source, folder=tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 1, done.stderr
    assert rb" # \xe9" in done.stdout


def test_many_files_in_several_processes_and_the_whole_output_is_a_patch(tmp_path: Path) -> None:
    for i in range(40):
        (tmp_path / f"f{i:02}.py").write_bytes(TORCH.replace(b"\xe9", b"e").replace(b"1.0", b"%d.5" % i))
    done = command(".", "-j", "2", folder=tmp_path)
    assert (done.returncode, done.stderr) == (1, b"")
    assert done.stdout.endswith(b"\n40 files read: 40 sites to rewrite in 40 files.\n--write makes the changes.\n")
    names = [line for line in done.stdout.splitlines() if line.startswith(b"--- ")]
    assert names == sorted(names)
    subprocess.run(["git", "apply", "-"], input=done.stdout, cwd=tmp_path, check=True, capture_output=True)
    patched = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for path in tmp_path.iterdir():
        path.write_bytes(TORCH.replace(b"\xe9", b"e").replace(b"1.0", b"%d.5" % int(path.stem[1:])))
    assert command(".", "-j", "2", "--write", folder=tmp_path).returncode == 1
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == patched
    for content in patched.values():
        ast.parse(content)


def test_no_framework_and_no_backend_is_imported(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(TORCH.replace(b"\xe9", b"e"))
    (tmp_path / "b.py").write_text("import tensorflow as tf, paddle, jax, optax, keras, numpy\ng = tf.clip_by_norm(g, 1.0)\n")
    code = (
        "import sys\nfrom gradclip.commands import cli\n"
        "assert cli.main(['migrate', '.', '--write', '--to', 'jax']) == 1\n"
        "bad = {'numpy', 'torch', 'tensorflow', 'paddle', 'jax', 'optax', 'keras'} & set(sys.modules)\n"
        "bad |= {name for name in sys.modules if name.startswith('gradclip.backends')}\n"
        "sys.exit(f'imported: {bad}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=TIME_LIMIT)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_imports_nothing_of_the_extra_until_it_runs(tmp_path: Path) -> None:
    code = "import sys; from gradclip.commands import cli, lint, migrate\n"
    code += "sys.exit(str({'libcst', 'pathspec', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=TIME_LIMIT)
    assert done.stderr == "set()\n"
