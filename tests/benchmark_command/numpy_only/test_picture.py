"""The picture shows every ratio at its position."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmark_command.outcomes import case, outcome

from benchmarks import picture, readme

CLIP = "torch/clip_grad_norm_/tensor/unclipped/float32/eager"
RUN = outcome(
    case(CLIP, 2.0),
    case(CLIP.replace("unclipped", "clipped"), 0.5),
    case("torch/get_total_norm/tensor/measured/float32/compile", 4.0),
    case("paddle/ClipGradByNorm/mlp/clipped/bfloat16/eager", failures={"native": "RuntimeError: no kernel"}),
)


def test_where_the_ratios_are() -> None:
    assert picture._ratios(RUN, "float32", ["tensor"], readme.rows(RUN)) == [[2.0, 0.5], [4.0, 4.0], [None, None]]


@pytest.mark.parametrize(("name", "begins"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml")])
def test_the_file(tmp_path: Path, name: str, begins: bytes) -> None:
    picture.draw(RUN, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_a_picture_of_nothing(tmp_path: Path) -> None:
    picture.draw(outcome(), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000
