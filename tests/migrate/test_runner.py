"""One file: how the runner reads and writes it, and what it reports if it cannot."""

from __future__ import annotations

import codecs
import io
import os
import re
import stat
import subprocess
import threading
from pathlib import Path

import pytest
from launched import TIME_LIMIT
from migrate import stand_in

from gradclip.migrate.output import TextReport
from gradclip.source import disk
from gradclip.source.model import Migrated, Options, Verdict
from gradclip.source.runner import FileResult, Request, migrate_file

SHOW, WRITE = Request(Options()), Request(Options(), write=True)


def file(folder: Path, content: bytes, name: str = "x.py") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def write(path: Path) -> FileResult:
    return migrate_file(str(path), WRITE, stand_in.migrate_source)


# ---- bytes --------------------------------------------------------------------------------------------------------------

KEPT = {
    "Unix": b"x = 1\nold\n",
    "Windows": b"x = 1\r\nold\r\n",
    "mixed": b"x = 1\r\nold\ny = 2\r\nz = 3\n",
    "Mac": b"x = 1\rold\r",
    "no end": b"x = 1\nold",
    "form feed": b"x = 1\n\x0c\nold\n",
    "separators in a string": "x = '\u2028\x0b\x1c\x85'\nold\n".encode(),
    "UTF-8": "é = 'ü😀'\nold\n".encode(),
    "byte order mark": codecs.BOM_UTF8 + "é = 1\nold\n".encode(),
    "mark and cookie": codecs.BOM_UTF8 + "# coding: utf-8\né = 1\nold\n".encode(),
    "Latin-1": "# -*- coding: latin-1 -*-\né = 'ÿ'\nold\n".encode("latin-1"),
    "cookie in the second line": "#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\nx = '€'\nold\n".encode("cp1252"),
    "Shift JIS": "# coding: shift_jis\nx = '日本語'\nold\n".encode("shift_jis"),
    "GBK": "# coding: gbk\nx = '中文'\nold\n".encode("gbk"),
}


@pytest.mark.parametrize("name", KEPT)
def test_every_byte_outside_of_the_edit_stays(name: str, tmp_path: Path) -> None:
    path = file(tmp_path, KEPT[name])
    result = write(path)
    assert (result.error, result.written) == ("", True)
    assert path.read_bytes() == KEPT[name].replace(b"old", b"new")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"x = '\xe9'\n", "cannot be decoded: "),
        (b"x = 1\n" * 5 + b"y = '\xe9'\n", "cannot be decoded: byte 0xe9 in line 6 is not utf-8"),
        (b"# coding: nonsense\n", "cannot be decoded: unknown encoding: nonsense"),
        (b"# coding: hex\n00", "cannot be decoded: 'hex' is not a text encoding"),
        (codecs.BOM_UTF8 + b"# coding: latin-1\n", "cannot be decoded: encoding problem: utf-8"),
        ("x = 1\n".encode("utf-16"), "cannot be decoded: "),
        (b"unreadable = 1\n\x00", "does not parse: source code string cannot contain null bytes"),
    ],
)
def test_what_cannot_be_decoded_is_one_line(content: bytes, said: str, tmp_path: Path) -> None:
    result = write(file(tmp_path, content))
    assert result.error.startswith(said)
    assert "\n" not in result.error
    assert not result.changed


@pytest.mark.parametrize(
    ("content", "new", "said"),
    [
        (b"# coding: latin-1\nx = 1\n", "# coding: latin-1\nx = '\u20ac'\n", "not written: '\u20ac' cannot be encoded in"),
        (
            b"# coding: latin-1\nx = '\xe9'\n",
            "import a\nimport b\n# coding: latin-1\nx = '\xe9'\n",
            "not written: the coding line",
        ),
        (b"# coding: utf-7\nx = '+AGE-'\n", "# coding: utf-7\nx = 'b'\n", "not written: utf-7 does not reproduce"),
    ],
)
def test_what_cannot_be_encoded_is_not_written(content: bytes, new: str, said: str, tmp_path: Path) -> None:
    path = file(tmp_path, content)
    result = migrate_file(str(path), WRITE, lambda source, options: Migrated(new))
    assert result.error.startswith(said)
    assert path.read_bytes() == content


# ---- sources ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said", "line", "column"),
    [
        ("x = 1\nprint 'old'", "Python 2, not 3: Missing parentheses in call to 'print'. Did you mean print(...)?", 2, 1),
        ("exec 'unreadable'", "Python 2, not 3: Missing parentheses in call to 'exec'. Did you mean exec(...)?", 1, 1),
        ("try: unreadable\nexcept A, e: pass", "Python 2, not 3: multiple exception types must be parenthesized", 2, 8),
        ("def f(:\n  unreadable", "does not parse: invalid syntax", 1, 7),
        ("raise = unreadable", "does not parse: invalid syntax", 1, 7),
        ("x = unreadable", "the codemod cannot read it", 2, 3),
        ("unreadable = " + "(" * 300 + ")" * 300, "nested too deeply to be read", 0, 0),
        ("unreadable = " + "+".join("1" * 20000), "nested too deeply to be read", 0, 0),
        ("deep", "nested too deeply to be read", 0, 0),
        ("mistake", "internal error, please report it: ValueError: a mistake of ours", 0, 0),
        (
            "broken",
            "internal error, please report it: the rewritten source does not compile: does not parse: '(' was never closed",
            0,
            0,
        ),
    ],
)
def test_a_source_that_cannot_be_migrated_is_one_line(source: str, said: str, line: int, column: int, tmp_path: Path) -> None:
    if source.startswith("x = 1\nprint"):
        source += "  # unreadable"
    path = file(tmp_path, source.encode())
    assert write(path) == FileResult(str(path), error=said, line=line, column=column)
    assert path.read_bytes() == source.encode()


def test_a_source_that_this_python_refuses_is_not_rewritten_though_the_codemod_could(tmp_path: Path) -> None:
    result = write(file(tmp_path, b"return old\n"))  # outside of a function: only Python's parser accepts it
    assert (result.error, result.written) == ("does not parse: 'return' outside function", False)


def test_warnings_of_the_users_code_are_not_ours(tmp_path: Path) -> None:
    assert write(file(tmp_path, b"x = '\\d'\nassert (old, 1)\n")).written


def test_the_sites_and_the_counts(tmp_path: Path) -> None:
    result = migrate_file(str(file(tmp_path, b"old\nby_hand\nleave\nold\n")), SHOW, stand_in.migrate_source)
    assert [(place.site.line, place.site.code, place.cell) for place in result.places] == [
        (1, "XX1", 0),
        (2, "XX2", 0),
        (3, "XX3", 0),
        (4, "XX1", 0),
    ]
    assert [result.count(outcome) for outcome in Verdict] == [2, 1, 1]
    assert (result.changed, result.written) == (True, False)


def test_a_file_with_nothing_to_rewrite_is_not_touched(tmp_path: Path) -> None:
    path = file(tmp_path, b"by_hand\n")
    before = path.stat()
    result = write(path)
    assert (result.changed, result.written, result.diff) == (False, False, "")
    assert path.stat() == before


@pytest.mark.parametrize("content", [*KEPT.values(), b"a\n" * 50 + b"old\n" + b"b\n" * 50 + b"old"])
@pytest.mark.parametrize("command", [("git", "apply", "-"), ("patch", "-p1", "--binary")])
def test_the_diff_can_be_applied(content: bytes, command: tuple[str, ...], tmp_path: Path) -> None:
    for name in ("x.py", "with space.py"):
        path = file(tmp_path, content, name)
        source = disk.read(str(path))
        result = migrate_file(str(path), SHOW, stand_in.migrate_source)
        diff = result.diff.replace(str(path).lstrip("/"), name).encode(source.encoding)
        subprocess.run(command, input=diff, cwd=tmp_path, check=True, capture_output=True)
        assert path.read_bytes() == content.replace(b"old", b"new")


# ---- files --------------------------------------------------------------------------------------------------------------


def test_what_is_too_large_is_left_with_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file(tmp_path, b"x" * (disk.MEBIBYTE * 5 // 2))
    assert write(path).error == "too large: 2.5 MiB, and the limit is 1 MiB; --exclude leaves it out"
    path = file(tmp_path, b" " * (disk.MEBIBYTE + 1) + b"{}", "n.ipynb")
    assert write(path).error == "not a notebook of format 4: it has no list of cells"


def test_what_cannot_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    assert write(tmp_path / "gone.py").error == "cannot be read: no such file or directory"
    monkeypatch.setattr(disk, "opened", refuse)
    result = write(tmp_path / "x.py")
    monkeypatch.undo()
    assert result.error == "cannot be read: permission denied"


def test_the_mode_of_a_file_stays(tmp_path: Path) -> None:
    path = file(tmp_path, b"old\n")
    path.chmod(0o750)
    assert write(path).written
    assert stat.S_IMODE(path.stat().st_mode) == 0o750


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target = file(tmp_path / "there", b"old\n")
    link = tmp_path / "link.py"
    link.symlink_to("there/x.py")
    assert write(link).written
    assert link.is_symlink()
    assert target.read_bytes() == b"new\n"
    assert os.listdir(tmp_path / "there") == ["x.py"]


def test_a_read_only_file_is_not_written(tmp_path: Path) -> None:
    path = file(tmp_path, b"old\n")
    path.chmod(0o444)
    assert write(path).error == "not written: the file is read-only"
    assert path.read_bytes() == b"old\n"


def test_a_file_of_two_names_is_not_written(tmp_path: Path) -> None:
    path = file(tmp_path, b"old\n")
    os.link(path, tmp_path / "y.py")
    assert write(path).error == "not written: it has 2 hard links, and a new file would break them"
    assert path.read_bytes() == b"old\n"


@pytest.mark.parametrize("how", ["rewritten", "replaced", "longer", "gone"])
def test_a_file_that_has_changed_meanwhile_is_not_written(how: str, tmp_path: Path) -> None:
    path = file(tmp_path, b"old\n")

    def migrate(source: str, options: Options) -> Migrated:
        if how == "replaced":  # with the same bytes
            os.replace(file(tmp_path, b"old\n", "other"), path)
        elif how == "gone":
            path.unlink()
        else:
            path.write_bytes({"rewritten": b"own\n", "longer": b"old\nmore\n"}[how])
        return stand_in.migrate_source(source, options)

    result = migrate_file(str(path), WRITE, migrate)
    reason = "no such file or directory" if how == "gone" else "it has changed since it was read"
    assert result.error == f"not written: {reason}"
    assert not result.written
    assert [p.read_bytes() for p in tmp_path.iterdir()] in ([], [b"own\n"], [b"old\n"], [b"old\nmore\n"])


@pytest.mark.parametrize("where", ["fsync", "replace", "fchmod"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_file_and_nothing_else(
    where: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    path = file(tmp_path, b"old\n")
    monkeypatch.setattr(disk.os, where, fail)
    if isinstance(error, OSError):
        assert write(path).error == "not written: no space left on device"
    else:
        with pytest.raises(KeyboardInterrupt):
            write(path)
    assert os.listdir(tmp_path) == ["x.py"]
    assert path.read_bytes() == b"old\n"


def test_a_folder_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **keywords: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(disk.tempfile, "mkstemp", refuse)
    assert write(file(tmp_path, b"old\n")).error == "not written: permission denied"


def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    old = b"# " + b"x" * 500_000 + b"\nold\n"
    path = file(tmp_path, old)
    seen = set()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=look)
    reader.start()
    assert write(path).written
    done.set()
    reader.join()
    assert seen <= {old, old.replace(b"old", b"new")}


def test_a_name_with_control_characters_is_harmless_and_can_be_applied(tmp_path: Path) -> None:
    name = "a\x1b[31m\n\u202eb.py"
    (tmp_path / name).write_text("old\n", encoding="utf-8")
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        result = migrate_file(name, Request(Options()), stand_in.migrate_source)
        stream = io.StringIO()
        report = TextReport(stream, stream, sites=True)
        report.file(result)
        assert not re.search("[\x1b\u202e]", stream.getvalue())
        assert "a\\x1b[31m\\n\\u202eb.py:1:1" in stream.getvalue()
        subprocess.run(["git", "apply", "-"], input=result.diff, text=True, check=True, timeout=TIME_LIMIT)
        assert (tmp_path / name).read_text(encoding="utf-8") == "new\n"
    finally:
        os.chdir(before)
