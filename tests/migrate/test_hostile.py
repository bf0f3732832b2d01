"""Hostile input of ``gradclip migrate`` and ``gradclip lint``: each is at most one finding, and the rest of the run goes on."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import indent

import pytest

from gradclip.commands import cli
from gradclip.migrate.codemod import migrate_source
from gradclip.source import disk
from gradclip.source.files import discover
from gradclip.source.model import Options, Verdict

CLIP = "import torch\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
DEEP = "nested too deeply to be read"


def cell(source: object = "x = 1\n", **more: object) -> str:
    return json.dumps({"cells": [{"cell_type": "code", "source": source}], **more})


#: name -> the content, and the start of the finding; "" if it can be read
HOSTILE: dict[str, tuple[str | bytes, str]] = {
    "undefined.py": ("# coding: undefined\n" + CLIP, "cannot be decoded: "),
    "idna.py": (b"# coding: idna\nclip\xff\n", "cannot be decoded: "),
    "unknown.py": ("# coding: nonsense\n" + CLIP, "cannot be decoded: unknown encoding"),
    "utf16.py": (CLIP.encode("utf-16"), "cannot be decoded: "),
    "null.py": (CLIP + "\0", "does not parse: "),
    "and.py": (CLIP + "x = " + "a and " * 50_000 + "b\n", DEEP),
    "plus.py": (CLIP + "x = " + "a + " * 20_000 + "b\n", DEEP),
    "minus.py": (CLIP + "x = " + "-" * 20_000 + "b\n", DEEP),
    "dots.py": (CLIP + "x = a" + ".b" * 5_000 + "\n", DEEP),
    "calls.py": (CLIP + "x = f" + "()" * 20_000 + "\n", DEEP),
    "elif.py": (CLIP + "if a: pass\n" + "elif b: pass\n" * 20_000, DEEP),
    "lambda.py": (CLIP + "x = " + "lambda: " * 900 + "0\n", DEEP),
    "brackets.py": (CLIP + "x = " + "[" * 100_000, DEEP),
    "pattern.py": (CLIP + "match x:\n    case " + "[" * 100 + "y" + "]" * 100 + ":\n        pass\n", DEEP),
    "dotted.py": (CLIP + "import a" + ".b" * 5_000 + "\n", DEEP),
    "hex.py": ("import torch\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 0x" + "f" * 3000 + ")\n", ""),
    "digits by hand.py": (
        "import torch\nn = 0\nfor p in ps:\n    n += p.grad.norm() ** 2\nc = 0x" + "f" * 5000 + " / n\nfor p in ps:\n"
        "    p.grad *= min(max_norm / n, 1)\n",
        "",
    ),
    "digits.py": (CLIP + "x = " + "9" * 5000 + "\n", ""),
    "line.py": (CLIP + "x = '" + "y" * 900_000 + "'\n", ""),
    "name.py": (CLIP + "x = 'a" + ".b" * 100_000 + "'\n", ""),
    "relative.py": ("from " + "." * 20_000 + " import clip_grad_norm_\nclip_grad_norm_(m, 1.0)\n", ""),
    "chain.py": ("mbed = '" + "a." * 100_000 + "'\n", ""),
    "word.py": ("mbed = '" + "a" * 300_000 + "'\n", ""),
    "eval.py": (CLIP + "eval('" + "a" * 200_000 + "')\n", ""),
    "empty.py": ("", ""),
    "mark.py": (b"\xef\xbb\xbf" + CLIP.encode(), ""),
    "mark and latin.py": (b"\xef\xbb\xbf# coding: latin-1\n" + CLIP.encode(), "cannot be decoded: "),
    "mark.ipynb": (b"\xef\xbb\xbf" + cell(CLIP).encode(), ""),
    "surrogate.ipynb": (cell(CLIP + "x = '\ud800'\n"), "does not parse: "),
    "end.py": (CLIP + "\x1a\n", "does not parse: "),
    "decorators.py": (CLIP + "@a\n" * 5000 + "def f(): pass\n", ""),
    "indents.py": (CLIP + "".join(" " * i + "if x:\n" for i in range(150)) + " " * 150 + "y\n", "does not parse: "),
    "backslashes.py": ("\\\n" * 1000, ""),
    "feed.py": ("\x0c\n" + CLIP, ""),
    "list.ipynb": ("[" * 100_000, "not a notebook: nested too deeply"),
    "objects.ipynb": ('{"a":' * 100_000, "not a notebook: nested too deeply"),
    "number.ipynb": (cell(CLIP).replace("}]", '}], "n": ' + "9" * 5000, 1), ""),
    "nan.ipynb": (cell(CLIP, metadata=float("nan")), ""),
    "source.ipynb": (cell(7), "not a notebook of format 4: cell 1 has no source"),
    "types.ipynb": (json.dumps({"cells": [1, None, "x", [], {"cell_type": []}], "metadata": 3}), ""),
    "cells.ipynb": ('{"cells": {}}', "not a notebook of format 4"),
    "twice.ipynb": ('{"cells": 1, "cells": []}', ""),
    "and.ipynb": (cell(CLIP + "x = " + "a and " * 50_000 + "b\n"), DEEP),
}


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the hostile files, other than files too, and one good file."""
    monkeypatch.chdir(tmp_path)
    for name, (content, _) in HOSTILE.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "good.py").write_text(CLIP, encoding="utf-8")
    os.mkfifo(tmp_path / "pipe.py")
    os.mkfifo(tmp_path / ".gitignore")
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "inner").symlink_to(".")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.py")
    return tmp_path


FAIL = {name for name, (_, said) in HOSTILE.items() if said} | {"digits.py", "pipe.py", "socket.py"}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no named pipes in folders")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_each_hostile_file_is_one_finding_and_the_rest_is_migrated(
    jobs: str, hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["migrate", "--json", "--check", "-j", jobs, "."]) == 2
    document = json.loads(capsys.readouterr().out)
    errors = {file["path"]: file["error"]["message"] for file in document["files"] if file["error"]}
    assert errors.keys() == FAIL
    for name, (_, said) in HOSTILE.items():
        assert errors.get(name, "").startswith(said), name
    assert not [message for message in errors.values() if "internal error" in message or "killed" in message]
    changed = {file["path"] for file in document["files"] if file["changed"]}
    named = {"good.py", "hex.py", "line.py", "name.py", "feed.py", "eval.py", "mark.py", "decorators.py"}
    assert changed == named | {"number.ipynb", "nan.ipynb", "mark.ipynb"}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no named pipes in folders")
def test_the_linter_reads_the_same_files(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lint", "--format", "json", "-j", "1", "."]) == 2
    errors = {error["path"] for error in json.loads(capsys.readouterr().out)["errors"]}
    assert errors == FAIL


@pytest.mark.parametrize("name", ["x.py", "x.ipynb"])
def test_a_file_that_vanishes_after_it_is_found_is_one_finding(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text(CLIP if name == "x.py" else cell(CLIP), encoding="utf-8")
    read = disk.read

    def vanish(path: str) -> disk.Content:
        source = read(path)
        os.unlink(path)
        return source

    monkeypatch.setattr(disk, "read", vanish)
    assert cli.main(["lint", str(tmp_path)]) == 0
    path.write_text(CLIP if name == "x.py" else cell(CLIP), encoding="utf-8")
    assert cli.main(["migrate", "--write", str(tmp_path)]) == 2
    assert "ERROR: not written: no such file or directory" in capsys.readouterr().err


def test_a_name_with_a_null_character_is_one_finding() -> None:
    (found,) = discover(["a\0b"])
    assert "null" in found.error


def test_a_form_feed_does_not_move_the_comment_that_exempts_a_line(tmp_path: Path) -> None:
    source = "import torch\n\x0c\nx = '\u2028'\nclip_grad_norm_ = torch.nn.utils.clip_grad_norm_\n"
    source += "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0){}\nloss.backward()\n"
    for comment, code in (("", 1), ("  # gradclip: ignore[GM108]", 0)):
        (tmp_path / "x.py").write_text(source.format(comment), encoding="utf-8")
        assert cli.main(["lint", str(tmp_path)]) == code


# ---- many clips in one file ----------------------------------------------------------------------------------------------

MANY = {
    "in a row": "torch.nn.utils.clip_grad_norm_(m{0}.parameters(), 1.0)\n",
    "each in a function": "def f{0}(m, loss, opt):\n    loss.backward()\n"
    "    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)\n    opt.step()\n",
    "with steps": "loss.backward()\ntorch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)\nopt.step()\n",
    "Paddle's": "c{0} = paddle.nn.ClipGradByNorm(1.0)\nuse(c{0})\n",
    "one name": "g = tf.clip_by_norm(g, 1.0)\n",
    "in branches": "if a{0}:\n    loss.backward()\n    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)\n    opt.step()\n",
    "methods": "class C{0}:\n    def clip_grads{0}(self, m):\n        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)\n",
    "reduced": "def f{0}(m, x, opt):\n    dist.all_reduce(x)\n    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)\n",
    "with reduces": "dist.all_reduce(x)\ntorch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)\n",
    "reduced after": "torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)\ndist.all_reduce(p.grad)\n",
    "by hand, a method of its class": "class C{0}:\n    def clip(self):\n        self.clip_gradients(1)\n",
    "by hand, a method of an object": "import lib{0}\nmodel{0}.clip_grad_norm_(1)\n",
    "by hand, looked up": "name{0} = 'clip_grad_norm_'\ngetattr(torch.nn.utils, name)\n",
    "by hand": "norm = total_norm(ps)\nc = max_norm / (norm + 1e-6)\nif c < 1:\n    for p in ps:\n        p.grad.mul_(c)\n",
    "by hand, selected": "g[norm{0} > max_norm] *= max_norm / norm{0}\n",
    "by hand, guarded": "for p in ps{0}:\n    norm = p.grad.norm()\n    if norm < max_norm:\n        continue\n"
    "    p.grad *= max_norm / norm\n",
    "rewritten by hand": "norm = 0\nfor p in ps:\n    norm += p.grad.norm() ** 2\nnorm = norm ** 0.5\n"
    "c = max_norm / (norm + 1e-6)\nif c < 1:\n"
    "    for p in ps:\n        p.grad.mul_(c)\n",
}
HEADS = {"": "", "one function": "def f(m, ps, g, loss, opt):\n"}


def work(function: Callable[[], object]) -> int:
    """Count the calls of Python functions."""
    count = 0

    def call(*event: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(call)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


#: each in the module or in a function, by turns, and the other with --slow
OTHER = pytest.mark.slow("work that grows faster where the same clips stand in a function, or outside of one")
PLACES = [
    pytest.param(name, head, marks=[OTHER] if (i + j) % 2 else [])
    for i, name in enumerate(MANY)
    for j, head in enumerate(HEADS)
]


@pytest.mark.parametrize(("name", "head"), PLACES)
def test_twice_as_many_clips_are_twice_as_much_work(name: str, head: str) -> None:
    by_hand = name.startswith("by hand")

    def took(many: int) -> int:
        clips = "".join(MANY[name].format(i) for i in range(many))
        source = "import torch, paddle, tensorflow as tf\n" + (HEADS[head] + indent(clips, "    ") if head else clips)
        done = []
        count = work(lambda: done.append(migrate_source(source, Options())))
        outcome = Verdict.MANUAL if by_hand or name == "reduced after" else Verdict.REWRITTEN
        assert [site.outcome for site in done[0].sites] == [outcome] * many
        return count

    took(2)  # fill the caches
    assert took(40) < 2.05 * took(20)


STEP = "loss.backward()\n{0}torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)\n{0}opt.step()\n"
#: the start, one side, the end
SIDES = {
    "match": ("match x:\n", "    case {0}:\n        " + STEP.format(" " * 8), ""),
    "try": ("try:\n    pass\n", "except E{0}:\n    " + STEP.format(" " * 4), ""),
    "opposite tests": ("", "if a:\n    opt.step()\nif not a:\n    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)\n", ""),
    "a backward before a match": (
        "loss.backward()\nmatch x:\n",
        "    case {0}:\n        clip_(m.parameters(), 1.0)\n        opt.step()\n",
        "",
    ),
    "a step after a match": (
        "loss.backward()\nmatch x:\n",
        "    case {0}:\n        clip_(m.parameters(), 1.0)\n",
        "opt.step()\n",
    ),
}


@pytest.mark.parametrize("name", SIDES)
def test_twice_as_many_sides_that_exclude_each_other_are_twice_as_much_work(name: str) -> None:
    start, side, end = SIDES[name]

    def took(many: int) -> int:
        source = "import torch\nfrom torch.nn.utils import clip_grad_norm_ as clip_\n" + start
        source += "".join(side.format(i) for i in range(many)) + end
        done = []
        count = work(lambda: done.append(migrate_source(source, Options())))
        assert [site.outcome for site in done[0].sites] == [Verdict.REWRITTEN] * many
        return count

    many = 150 if name == "opposite tests" else 60  # more than are read
    took(1)
    assert took(2 * many) < 2.05 * took(many)


LONG = 200_000
NAMES = ["max" * (LONG // 3) + "x", "norm" * (LONG // 4) + "x", "clip_" * (LONG // 5), "grad_" * (LONG // 5)]
QUOTIENTS = {
    **{f"a name, {name[:5]}": f"c = {name} / total_norm\n" for name in NAMES},
    **{f"a product, {name[:5]}": f"c = max_norm / total_norm\n{name} * c\n" for name in NAMES},
    "blanks": f"c = max_norm / total_norm\nx = c{' ' * LONG}* 2\ngrad{' ' * LONG}+ c\n",
    "brackets": f"c = max_norm / total_norm\nmin('{'()' * (LONG // 2)}', c)\nx = '{'a[' * (LONG // 2)}', c\n",
}


@pytest.mark.parametrize("name", QUOTIENTS)
def test_long_names_and_blanks_are_read_in_linear_time(name: str) -> None:
    """A quadratic search among 200,000 characters takes minutes."""
    begin = time.process_time()
    migrate_source("import torch\n" + QUOTIENTS[name], Options())
    assert time.process_time() - begin < 10


def test_a_reason_that_quotes_a_control_character_is_harmless(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = "\x1b[31m\u202e"
    (tmp_path / "x.py").write_text(
        f"import torch\nx = norm['{said}'] = g * (max_norm / grad_norm['{said}'])\n", encoding="utf-8"
    )
    cli.main(["migrate", str(tmp_path)])
    found = capsys.readouterr()
    assert "GM113" in found.out + found.err
    assert not [character for character in said[:1] + said[-1] if character in found.out + found.err]
