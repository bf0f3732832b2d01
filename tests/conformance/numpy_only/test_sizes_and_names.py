"""Vector files too large for the memory, files with the names of installed packages, and natives to resemble."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gradclip.commands import cli
from gradclip.conformance.cases import plan
from gradclip.conformance.like import as_native
from gradclip.conformance.load import SHIPPED, VectorFileError, load_vectors
from gradclip.conformance.specification import Specification


def test_an_array_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    content = json.loads((SHIPPED / "optax.clip.json").read_text(encoding="utf-8"))
    (vector,) = content["vectors"] = content["vectors"][:1]
    vector["gradients"] = [{"dtype": "float32", "shape": [100_000, 1_000_000], "fill": "0x1p+0"}]
    (tmp_path / "x.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(VectorFileError, match="100,000,000,000 elements; at most"):
        load_vectors(tmp_path / "x.json")


def test_a_file_that_is_named_as_a_package_does_not_stand_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy

    (tmp_path / "numpy.py").write_text("def clip(grads, max_delta):\n    return grads\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", list(sys.path))
    target = Specification.parse(f"{tmp_path}/numpy.py:clip").load("optax.clip")
    assert target.name == "clip"
    assert sys.modules["numpy"] is numpy


def test_a_native_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["conformance", "--like", "native:mxnet", "--list"]) == 2
    assert "There is no native of this name." in capsys.readouterr().err


def test_only_the_natives_departures_are_added() -> None:
    made = plan(["torch.clip_grad_norm_"], None, None)
    alike = as_native(made, "native:torch")
    apart = as_native(made, None)
    assert all(case.content is other.content for case, other in zip(made.cases, apart.cases, strict=True))
    assert [case.of_native.allowed for case in apart.cases] == [case.allowed for case in alike.cases]
    assert [case.id for case in alike.cases] == [case.id for case in made.cases]
    more = [
        case.name
        for case, other in zip(made.cases, alike.cases, strict=True)
        if case.kind == "vector" and len(other.content.expected) > len(case.content.expected)
    ]
    assert "negative_limit" in more or "C3" in more
    assert "A1" not in more
