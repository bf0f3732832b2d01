"""``gradclip explain``: the command, and the page that the table generates."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from equivalence import cell, markdown
from launched import TIME_LIMIT

from gradclip.commands import cli
from gradclip.explain import explain
from gradclip.explain.equivalents import FRAMEWORKS
from gradclip.explain.text import explanation_text
from gradclip.natives import BY_NAME, DIALECTS, NATIVES, Native
from gradclip.natives.targets import targets

TEXT = """tensorflow.clip_by_norm  (GF201)
  One tensor by its own norm, or its slices over axes; the result is a new tensor.

  computes     g * 5.0 / max(n, 5.0)
               n = sqrt(sum of g**2)
  over         each slice by its own norm, over axes=[0]
  epsilon      none: the clipped norm is the limit
  returns      a new tensor; the arguments stay unchanged
  edges        infinity     finite elements become 0, infinite ones NaN
               NaN          every element that the norm covers becomes NaN
               limit 0      zeros (natively: zero gradients become NaN)
               limit inf    only measures, whatever the gradients hold (natively: every gradient
                            becomes NaN)
               limit < 0    counts as 0 (natively: zero gradients become NaN)
               None         an error: it takes one tensor
               sparse       duplicate rows are added up first (natively: they count separately)

  the same in  = exact, ~ within rounding, ! nearest, - no native equivalent: use gradclip
               ~ gradclip   gradclip.clip_by_norm(g, 5.0, axes=[0])
               - torch      gradclip.clip_(model.parameters(), rule)
                 tensorflow this call
               - keras      optimizer = gradclip.clipped(optimizer, rule)
               - paddle     optimizer = gradclip.clipped(optimizer, rule)
               - jax        optimizer = gradclip.clipped(optimizer, rule)
                 where rule = gradclip.dialects.tensorflow.clip_by_norm(clip_norm=5.0, axes=[0])

  source       tensorflow 2.21.0, tensorflow/python/ops/clip_ops.py
  link         https://www.tensorflow.org/api_docs/python/tf/clip_by_norm
"""


def test_the_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert cli.main(["explain", "tf.clip_by_norm(g, 5.0, axes=[0])"]) == 0
    assert capsys.readouterr().out == TEXT


@pytest.mark.parametrize("api", NATIVES, ids=lambda api: api.code)
@pytest.mark.parametrize("width", [72, 110])
def test_every_text_fits_a_screen(api: Any, width: int) -> None:
    lines = explanation_text(explain(api.code), width).splitlines()
    assert len(lines) <= {72: 60, 110: 50}[width]  # a narrow screen wraps what the nearest natives do otherwise
    assert [line for line in lines if len(line) > width and " " in line.strip().rpartition("   ")[2]] == []
    assert api.note in " ".join(" ".join(lines).split())


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "--json", "--to", "paddle", "torch.nn.utils.clip_grad_norm_(p, 1.0)"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["code"] == "GT101"
    assert document["formula"] == ["g * min(1, 1.0 / (n + 1e-06))", "n = sqrt(sum of g**2)"]
    assert [(found["framework"], found["mark"]) for found in document["equivalents"]] == [
        ("gradclip", "within rounding"),
        ("paddle", "within rounding"),
    ]
    assert {"case": "limit 0", "does": "zeros", "native": ""} in document["edges"]


# ---- the page, and the imports ------------------------------------------------------------------------------------------


def test_the_page_has_every_call_and_every_dialect() -> None:
    page = markdown()
    conventions, _, calls = page.partition("## The calls")
    assert all(conventions.count(f"`{dialect}`") == 1 for dialect in DIALECTS)
    assert all(f"| {api.code} |" in calls for api in NATIVES if api.dialect)
    current, _, old = calls.partition("### Old names")
    for part, cells in ((current, 9), (old, 5)):
        assert {line.count(" | ") + 1 for line in part.splitlines() if line.startswith("| G")} == {cells}


OLD = [api for api in NATIVES if api.dialect and api.status != "current"]


@pytest.mark.parametrize("api", OLD, ids=lambda api: api.code)
def test_an_old_name_has_the_equivalents_of_the_current_one_that_the_page_names(api: Native) -> None:
    """Except that a current name may differ from an old one at a limit of 0 or infinity: mark (1)."""
    current = BY_NAME[targets(api)[api.family].name]
    for framework in set(FRAMEWORKS) - {api.family}:
        assert cell(api, framework).replace(" (1)", "") == cell(current, framework).replace(" (1)", "")


@pytest.mark.parametrize(
    "code",
    [
        "import gradclip.natives",
        "from gradclip.commands import cli; cli.main(['explain', 'torch.clip_grad_norm'])",
        "from gradclip.commands import cli; cli.main(['explain', 'torch.clip_grad_norm', 'keras.clipnorm'])",
    ],
)
def test_no_framework_and_no_backend_is_imported(code: str) -> None:
    code += (
        "\nimport sys"
        "\nroots = {name.partition('.')[0] for name in sys.modules}"
        "\nbad = {'numpy', 'ml_dtypes', 'torch', 'tensorflow', 'paddle', 'jax', 'jaxlib', 'optax', 'keras', 'libcst'} & roots"
        "\nbad |= {name for name in sys.modules if name.startswith('gradclip.backends.')}"
        "\nsys.exit(f'imported: {sorted(bad)}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=TIME_LIMIT)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("code", ["GX", "gz", "GM1", "GM999"])
def test_a_code_that_nothing_has(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    for options in ([], ["--json"]):
        assert cli.main(["explain", code, *options]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err == f"No such code.\nReceived: {code.upper()}\nHint: `gradclip explain G` lists them all.\n"
