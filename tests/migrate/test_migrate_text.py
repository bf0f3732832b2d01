"""The command ``gradclip migrate``: its text, colours and progress."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from migrate import stand_in
from migrate.command import made, migrate
from rich.console import Console

from gradclip.migrate import codemod, output
from gradclip.migrate.output import TextReport, Waiting
from gradclip.source.model import Options, Site, Verdict
from gradclip.source.runner import FileResult, Place

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
    other = Options("jax", sources, select, frozenset({"GM107"}), **switches)
    assert [replace(one, path="") for one in seen] == [Options(), other]


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
