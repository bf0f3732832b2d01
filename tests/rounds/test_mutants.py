"""``python -m benchmarks.mutants``: what it plants, and what it counts."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest
from training_programs import FOLDER

from benchmarks.mutants.__main__ import main
from benchmarks.mutants.planted import Bounds, mutants, planted, trainings

TRAINING = textwrap.dedent("""
    import torch

    def train(model, batches, max_norm):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x in batches:
            optimizer.zero_grad()
            loss = model(x).sum()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            optimizer.step()
""")


def test_a_mutant_differs_in_what_its_kind_says() -> None:
    made = {mutant.kind: mutant for mutant in mutants(TRAINING)}
    after = made["clip after the step"].text.splitlines()
    assert ["optimizer.step" in after[-2], "clip_grad_norm_" in after[-1]] == [True, True]
    assert "for one_parameter in model.parameters():" in made["each parameter by its own norm"].text
    assert "clip_grad_value_(model.parameters(), max_norm)" in made["limit of a norm as a value's"].text
    assert "zero_grad" not in made["no zero_grad"].text
    wrong, right = (made[f"{order}, both in another file"] for order in ("clip after the step", "right order"))
    assert "from finishing import finish_the_step" in wrong.text
    assert wrong.others["finishing.py"].index(".step()") < wrong.others["finishing.py"].index("clip_grad_norm_")
    assert right.others["finishing.py"].index(".step()") > right.others["finishing.py"].index("clip_grad_norm_")
    assert {mutant.right for kind, mutant in made.items() if kind.startswith("right order")} == {True}


def test_every_mutant_of_the_programs_is_a_program(tmp_path: Path) -> None:
    files = trainings([FOLDER])
    made = planted(files, tmp_path, Bounds(limit=2000, each=3, files=200), lambda line: None)
    assert len({one.kind for one in made}) > 40
    unchanged = {one.stem: one.source.read_text() for one in made}
    for one in made:
        for path in (tmp_path / one.stem / one.folder).glob("*.py"):
            assert ast.dump(ast.parse(path.read_text())) != ast.dump(ast.parse(unchanged[one.stem]))


def test_the_table_counts_what_lint_finds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "evaluate.py").write_text("import torch\n")
    assert main([str(tmp_path), "--missed"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "| clip before backward | 1 | 1 | 100 % |" in lines
    assert "| right order, both in a function | 1 | 0 | 0 % |" in lines
    assert "1 files clip, 1 of them have mutants; alarms on 0 unchanged ones (0.0 %)." in lines


def test_a_limit_bounds_the_mutants(tmp_path: Path) -> None:
    files = trainings([FOLDER])
    assert len(planted(files, tmp_path, Bounds(limit=7, each=100, files=100), lambda line: None)) == 7
    of_two = planted(files, tmp_path, Bounds(limit=2000, each=100, files=2), lambda line: None)
    assert {files[one.source] for one in of_two} == {"jax", "keras", "paddle", "tensorflow", "torch"}
    assert len({one.source for one in of_two}) == 10


def test_a_folder_that_is_missing_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([str(tmp_path / "none")]) == 2
    assert "There is no such folder.\nReceived: " in capsys.readouterr().err
    assert main([str(tmp_path)]) == 2
