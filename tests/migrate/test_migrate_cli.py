"""The command ``gradclip migrate``: its output, the files that it writes, and its exit codes."""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launched import TIME_LIMIT
from migrate import stand_in
from rich.console import Console

from gradclip.code.model import Options, Site, Verdict
from gradclip.code.runner import FileResult, Place
from gradclip.commands import cli
from gradclip.migrate import codemod, output
from gradclip.migrate.output import TextReport, Waiting


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with a codemod that finds ``old``."""
    monkeypatch.setattr("gradclip.migrate.codemod.migrate_source", stand_in.migrate_source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def made(**texts: str) -> None:
    for name, text in texts.items():
        Path(f"{name}.py").write_text(text, encoding="utf-8")


def migrate(*arguments: str) -> int:
    return cli.main(["migrate", *arguments])


def command(*arguments: str, stdin: bytes = b"", folder: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a separate process, with the real codemod."""
    environment = {**os.environ, "COLUMNS": "80", **variables}
    line = [sys.executable, "-P", "-m", "gradclip", "migrate", *arguments]
    return subprocess.run(line, input=stdin, capture_output=True, cwd=folder, env=environment, timeout=TIME_LIMIT)


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


# ---- text ---------------------------------------------------------------------------------------------------------------


def test_the_diff_what_is_left_to_do_and_a_summary(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(a="x = 1\nold\nby_hand(1)\nleave\n", b="by_hand(2)\nby_hand(3)\n", c="x = 1\n")
    assert migrate(".") == 1
    assert capsys.readouterr() == (
        """\
--- a/a.py
+++ b/a.py
@@ -1,4 +1,4 @@
 x = 1
-old
+new
 by_hand(1)
 leave

a.py:3:1: XX2 MANUAL: by_hand(1)
    Nobody knows.
    Do it.
    More: gradclip explain XX2
b.py:1:1: XX2 MANUAL: by_hand(2)
    Nobody knows.
b.py:2:1: XX2 MANUAL: by_hand(3)
    Nobody knows.

3 files read: 1 site to rewrite in 1 file, 3 to do by hand, 1 left as it is.
--write makes the changes; --verbose says why sites are left.
""",
        "",
    )


def test_check_names_the_sites_without_a_diff(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(a="old\nleave\n")
    assert migrate("--check", ".") == 1
    assert capsys.readouterr().out.splitlines()[:2] == ["a.py:1:1: XX1 would be rewritten: old", "    It is old."]


def test_write_says_what_it_did(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(a="old\nold\nby_hand\n", b="old\n")
    assert migrate("--write", ".") == 1
    out = capsys.readouterr().out.splitlines()
    assert [line for line in out if "rewritten" in line] == [
        "a.py: 2 sites rewritten",
        "b.py: 1 site rewritten",
        "2 files read: 3 sites rewritten in 2 files, 1 to do by hand.",
    ]
    assert Path("a.py").read_text() == "new\nnew\nby_hand\n"


def test_verbose_names_what_is_left_and_what_is_not_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(a="leave\nold\n")
    os.mkdir("build")
    assert migrate("--verbose", ".") == 1
    out = capsys.readouterr().out
    assert "a.py:1:1: XX3 unchanged: leave\n    It is good.\n" in out
    assert "a.py:2:1: XX1 would be rewritten: old\n    It is old.\n" in out
    assert "build: skipped: a build folder\n" in out


@pytest.mark.parametrize("source", ["", "x = 1\n"])
def test_nothing_to_do_is_one_line(source: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(a=source)
    assert migrate(".") == 0
    assert capsys.readouterr() == ("1 file read: nothing to do.\n", "")


def test_the_options_reach_the_codemod(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def record(source: str, options: Options) -> Any:
        seen.append(options)
        return stand_in.migrate_source(source, options)

    monkeypatch.setattr("gradclip.migrate.codemod.migrate_source", record)
    made(a="x = 1\n")
    assert migrate("a.py") == 0
    words = "--to jax --from torch,keras --select gt1,GK --ignore GM107 --annotate --allow-semantic-change --strict"
    assert migrate("a.py", *words.split()) == 0
    sources, select = frozenset({"torch", "keras"}), frozenset({"GT1", "GK"})
    switches = {"annotate": True, "allow_semantic_change": True, "strict": True}
    assert seen == [Options(), Options("jax", sources, select, frozenset({"GM107"}), **switches)]


def test_excluded_files_are_not_read(folder: Path) -> None:
    made(a_pb2="old\n", b="old\n")
    assert migrate(".", "--exclude", "*_pb2.py", "--exclude", "/b.py") == 0


def test_long_sentences_are_wrapped_and_commands_are_not(folder: Path) -> None:
    more = "gradclip explain " + "x" * 100
    site = Site(3, 5, "XX2", Verdict.MANUAL, "f()", "One word after the other. " * 9, "Do this and that. " * 9, more)
    for width in (60, 90):
        stream = io.StringIO()
        report = TextReport(stream, io.StringIO())
        report._console = Console(file=stream, width=width, highlight=False)
        report.file(FileResult("a.py", (Place(site),)))
        lines = stream.getvalue().splitlines()
        assert lines[-1].strip() == f"More: {more}"
        assert width - 12 < max(map(len, lines[:-1])) <= width
        assert all(line.startswith("    ") for line in lines[1:])


def test_code_to_copy_is_not_wrapped() -> None:
    stream = io.StringIO()
    code = "Write: " + "one, " * 60
    TextReport(stream, stream).file(FileResult("a.py", (Place(Site(1, 1, "XX2", Verdict.MANUAL, "f()", "Why.", code)),)))
    assert stream.getvalue().endswith(f"\n    {code}\n")


def test_what_a_code_means_is_said_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(a="by_hand\nold\n", b="by_hand\nold\n")
    assert migrate("--check", ".") == 1
    out = capsys.readouterr().out
    assert [out.count(text) for text in ("Do it.", "gradclip explain XX2", "It is old.", "Nobody knows.")] == [1, 1, 1, 2]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_REMEMBERED", 3)
    report = TextReport(io.StringIO(), io.StringIO())
    for i in range(9):
        site = Site(1, 1, "XX2", Verdict.MANUAL, "f()", "Why.", f"Do {i}.", f"https://example.org/{i}")
        report.file(FileResult("a.py", (Place(site),)))
    assert len(report._said) == 3


def test_a_place_in_a_notebook_names_its_cell() -> None:
    stream, errors = io.StringIO(), io.StringIO()
    report = TextReport(stream, errors)
    report.file(FileResult("n.ipynb", (Place(Site(2, 1, "XX2", Verdict.MANUAL, "f()", "Why."), cell=3),)))
    report.file(FileResult("m.ipynb", error="does not parse", cell=4, line=5, column=6))
    assert stream.getvalue() == "n.ipynb:cell 3:2:1: XX2 MANUAL: f()\n    Why.\n"
    assert errors.getvalue() == "m.ipynb:cell 4:5:6: ERROR: does not parse\n"


def test_a_file_that_was_only_annotated_is_said_to_be() -> None:
    stream = io.StringIO()
    report = TextReport(stream, stream, write=True)
    report.file(FileResult("a.py", (Place(Site(2, 1, "XX2", Verdict.MANUAL, "f()", "Why.")),), changed=True, written=True))
    report.file(FileResult("b.py", (Place(Site(2, 1, "XX1", Verdict.REWRITTEN, "f()", "Why.")),), changed=True, written=True))
    report.end()
    said = "2 files read: 1 site rewritten in 1 file, 1 file annotated, 1 to do by hand."
    assert stream.getvalue().splitlines()[-4:] == ["a.py: annotated", "b.py: 1 site rewritten", "", said]


@pytest.mark.parametrize(
    ("to", "count", "said"),
    [
        ("gradclip", 0, ""),
        ("paddle", 2, "2 calls have no Paddle equivalent and {} written as gradclip's: a.py:4, a.py:6."),
        ("torch", 2, "2 calls have no PyTorch equivalent and {} written as gradclip's: a.py:3, a.py:4."),
        ("jax", 3, "3 calls have no JAX equivalent and {} written as gradclip's: a.py:3, a.py:4, a.py:6."),
        ("tensorflow", 1, "1 call has no TensorFlow equivalent and {} written as gradclip's: a.py:6."),
    ],
)
def test_calls_without_an_equivalent_are_named_in_the_summary(to: str, count: int, said: str) -> None:
    source = (
        "import tensorflow as tf, torch\ndef step(model, grads, g):\n    g = tf.clip_by_norm(g, 1.0)\n"
        "    g = tf.clip_by_norm(g, 1.0, axes=[0])\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "    return torch.nn.utils.get_total_norm(grads, norm_type=1.0)\n"
    )
    migrated = codemod.migrate_source(source, Options(to=to, norms=True))
    result = FileResult("a.py", tuple(Place(site) for site in migrated.sites), changed=True)
    for write, verb in ((False, "is" if count == 1 else "are"), (True, "was" if count == 1 else "were")):
        stream = io.StringIO()
        report = TextReport(stream, stream, write=write)
        report.file(result)
        report.end()
        assert [line for line in stream.getvalue().splitlines() if "equivalent and" in line] == [said.format(verb)] * bool(said)
        assert ("--strict leaves calls without an equivalent" in stream.getvalue()) == bool(said)
    stream = io.StringIO()
    document = output.JsonReport(stream)
    document.file(result)
    document.end()
    told = json.loads(stream.getvalue())
    assert told["totals"]["lacking"] == count == sum(bool(site["lacks"]) for site in told["files"][0]["sites"])
    strict = codemod.migrate_source(source, Options(to=to, norms=True, strict=True))
    assert [site.code for site in strict.sites].count("GM304") == count
    assert not any(site.lacks for site in strict.sites)


def test_the_summary_names_so_many_calls_and_counts_the_rest() -> None:
    stream = io.StringIO()
    report = TextReport(stream, stream)
    sites = [Site(line, 1, "XX1", Verdict.REWRITTEN, "f()", "Why.", lacks="Paddle") for line in range(1, 24)]
    report.file(FileResult("a.py", tuple(map(Place, sites)), changed=True))
    report.end()
    assert "23 calls have no Paddle equivalent" in stream.getvalue()
    assert "a.py:20 and 3 more.\n" in stream.getvalue()


# ---- colour and progress ------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO) -> str:
    report = TextReport(stream, stream)
    report.file(FileResult("a.py", changed=True, diff="--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-old [bold]\n+new\n"))
    report.end()
    return stream.getvalue()


def test_colours_on_a_terminal_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured = shown(Terminal())
    assert "\x1b[31m-old [bold]\x1b[0m\n\x1b[32m+new\x1b[0m\n" in coloured
    plain = shown(io.StringIO())
    assert "\x1b" not in plain
    assert "\n-old [bold]\n+new\n" in plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown(Terminal()) == plain
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert shown(Terminal()) == plain


def test_progress_moves_on_a_terminal_and_is_gone_before_anything_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    with Waiting(stream, after=0.0) as waiting:
        for _ in range(2000):
            waiting.step()
        waiting.step(shown=True)
        assert stream.getvalue().endswith(("\x1b[2K", "\x1b[?25h")), "the line is cleared"
        waiting.step()
    assert "files read" in stream.getvalue()
    assert stream.getvalue().endswith(("\x1b[2K", "\x1b[?25h"))


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    with Waiting(stream, every=0.0) as waiting:
        for _ in range(3):
            waiting.step()
    assert stream.getvalue() == "1 files read ...\n2 files read ...\n3 files read ...\n"


def test_what_is_quick_shows_no_progress() -> None:
    for stream in (Terminal(), io.StringIO()):
        with Waiting(stream, after=60.0, every=60.0) as waiting:
            waiting.step()
            waiting.step(shown=True)
        assert stream.getvalue() == ""


# ---- JSON ---------------------------------------------------------------------------------------------------------------


def test_the_json_document(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(a="x = 1\nold\n", b="by_hand(1)\nleave\n", c="x = 1\n", d="print 'unreadable'\n")
    assert migrate("--json", ".") == 2
    captured = capsys.readouterr()
    assert captured.err == ""
    site = {"assumption": "", "cell": None, "column": 1, "advice": "", "more": "", "lacks": ""}
    nothing = {"changed": False, "written": False, "diff": "", "error": None}
    message = "Python 2, not 3: Missing parentheses in call to 'print'. Did you mean print(...)?"
    assert json.loads(captured.out) == {
        "schema": output.SCHEMA,
        "files": [
            {
                **nothing,
                "path": "a.py",
                "changed": True,
                "sites": [{**site, "code": "XX1", "outcome": "rewritten", "line": 2, "text": "old", "reason": "It is old."}],
                "diff": "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n x = 1\n-old\n+new\n",
            },
            {
                **nothing,
                "path": "b.py",
                "sites": [
                    {
                        **site,
                        "code": "XX2",
                        "outcome": "manual",
                        "line": 1,
                        "text": "by_hand(1)",
                        "reason": "Nobody knows.",
                        "advice": "Do it.",
                        "more": "gradclip explain XX2",
                    },
                    {**site, "code": "XX3", "outcome": "unchanged", "line": 2, "text": "leave", "reason": "It is good."},
                ],
            },
            {**nothing, "path": "d.py", "sites": [], "error": {"message": message, "cell": None, "line": 1, "column": 1}},
        ],
        "totals": {
            "files": 4,
            "changed": 1,
            "annotated": 0,
            "written": 0,
            "failed": 1,
            "skipped": 0,
            "rewritten": 1,
            "manual": 1,
            "unchanged": 1,
            "lacking": 0,
        },
        "exit_code": 2,
    }


@pytest.mark.parametrize(("options", "diff", "written"), [(["--write"], True, True), (["--check"], False, False)])
def test_the_json_of_a_write_and_of_a_check(
    options: list[str], diff: bool, written: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(a="old\n")
    assert migrate("--json", "a.py", *options) == 1
    (found,) = json.loads(capsys.readouterr().out)["files"]
    assert (bool(found["diff"]), found["written"], found["changed"]) == (diff, written, True)


def test_the_json_of_nothing_is_a_document(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert migrate("--json", ".") == 0
    assert json.loads(capsys.readouterr().out)["files"] == []


def test_the_json_of_a_name_that_is_no_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.close(os.open(b"\xe9.py", os.O_CREAT | os.O_WRONLY))
    Path(os.fsdecode(b"\xe9.py")).write_text("old\n")
    assert migrate("--json", ".") == 1
    (found,) = json.loads(capsys.readouterr().out)["files"]
    assert os.fsencode(found["path"]) == b"\xe9.py"
    assert migrate(".") == 1
    assert r"--- a/\udce9.py" in capsys.readouterr().out


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
