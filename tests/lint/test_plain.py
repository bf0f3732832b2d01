"""``gradclip lint`` of a plain install: no LibCST, no pathspec, no rich."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from launched import TIME_LIMIT
from training_programs import PROGRAMS, Program

from gradclip.lint import plain
from gradclip.source import sites
from gradclip.source.codes import RULES
from gradclip.source.model import Options, SourceError, Verdict

ALONE = """
import sys
from importlib import util

extra, find = {"libcst", "pathspec", "rich"}, util.find_spec
util.find_spec = lambda name, *rest: None if name in extra else find(name, *rest)
sys.modules.update(dict.fromkeys(extra))
from gradclip.commands import cli

sys.exit(cli.main(["lint", *sys.argv[1:]]))
"""
LATE = "loss.backward()\noptimizer.step()\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\noptimizer.zero_grad()\n"


def alone(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", ALONE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=TIME_LIMIT)


def test_it_finds_what_a_step_shows_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nfor x in data:\n" + textwrap.indent(LATE, "    "))
    cells = [{"cell_type": "code", "source": ["import torch\n"]}, {"cell_type": "code", "source": LATE.splitlines(True)}]
    (tmp_path / "late.ipynb").write_text(json.dumps({"cells": cells, "metadata": {"kernelspec": {"language": "python"}}}))
    done = alone(tmp_path, ".", "--format", "json")
    alarms = [(one["path"], one["cell"], one["line"], one["column"], one["code"]) for one in json.loads(done.stdout)["alarms"]]
    assert alarms == [("late.ipynb", 2, 3, 1, "GM108"), ("train.py", 0, 5, 5, "GM108")]
    assert done.returncode == 1
    assert "python -m pip install 'gradclip[migrate]'" in done.stderr
    assert alone(tmp_path, "--exclude", "*.ipynb").stderr.startswith("gradclip lint --exclude needs pathspec")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.name)
def test_it_says_nothing_that_the_whole_linter_does_not_say(program: Program) -> None:
    for file in program.files:
        text, options = file.read_text(), Options(lint=True, path=str(file))
        whole = {(one.line, one.code) for one in sites.linted(text, options).sites}
        own = {(one.line, one.code) for one in plain.linted(text, options).sites if one.outcome is Verdict.MANUAL}
        assert own <= whole


def test_a_source_that_is_not_python_is_refused() -> None:
    with pytest.raises(SourceError, match="It is not Python 3"):
        plain.linted("def clip(:\n", Options(lint=True))


def test_characters_are_counted_not_bytes() -> None:
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    source = f"\ufeffimport torch\nloss.backward()\noptimizer.step()\nname = 'größe'; {clip}\noptimizer.zero_grad()\n"
    sites = [one for one in plain.linted(source, Options(lint=True)).sites if one.code in RULES]
    assert [(one.line, one.column, one.text) for one in sites] == [(4, 17, clip)]
