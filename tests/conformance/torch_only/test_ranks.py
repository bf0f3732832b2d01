"""``gradclip conformance --ranks N``: real processes; what is right passes, and each wrong clip fails with its subject."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from launched import TESTS, TIME_LIMIT, environment

from gradclip.commands import cli
from gradclip.conformance import Report
from gradclip.conformance.load import SHIPPED, load_vectors
from gradclip.conformance.ranks import runs
from gradclip.conformance.report import lay_out

WRONG = TESTS.parent / "examples" / "ranks" / "wrong.py"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "gradclip", "conformance", *arguments]


def results(tmp_path: Path, status: int, *arguments: str) -> dict[str, dict[str, Any]]:
    """Run the command; return the results by the name of the vector."""
    path = tmp_path / "report.json"
    assert cli.main(["conformance", *arguments, "--json", str(path)]) == status
    return {result["case"].partition("/")[2]: result for result in json.loads(path.read_text("utf-8"))["results"]}


FOUR = pytest.mark.slow("a mistake of a mesh with two axes; test_topologies.py has such meshes")  # four processes start


@pytest.mark.parametrize(("ranks", "count"), [(2, 42), pytest.param(4, 112, marks=FOUR), pytest.param(8, 25, marks=FOUR)])
def test_gradclip_passes_every_vector(tmp_path: Path, ranks: int, count: int) -> None:
    found = results(tmp_path, 0, "gradclip:torch", "--ranks", str(ranks))
    assert len(found) == count
    assert {result["status"] for result in found.values()} == {"pass"}


def test_ranks_that_are_not_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS and Windows each rank imports torch itself."""
    monkeypatch.setattr(runs, "_METHOD", "spawn")
    found = results(tmp_path, 0, "gradclip:torch", "--ranks", "2", "--select", "*/2-S0-even")
    assert {name: result["status"] for name, result in found.items()} == {"2-S0-even": "pass"}


#: example -> a vector that it passes, and those that show its mistake: the reason, a flag, and a part of the message
EXAMPLES = {
    "local_norm": ("2-R", {"2-S0-even": ("", "AllShards", "the ranks have different norms")}),
    "groups_from_gradients": (
        "2-S0-even",
        {"2-missing-first": ("hung", "MissingShard", "rank 1 did not end within 5 seconds")},
    ),
}


EXAMPLES_RUN = pytest.mark.needs("has_total_norm")  # these import DTensor by its name since PyTorch 2.5


@EXAMPLES_RUN
@pytest.mark.parametrize("name", EXAMPLES)
def test_each_wrong_example_fails_by_its_subject(tmp_path: Path, name: str) -> None:
    right, wrong = EXAMPLES[name]
    chosen = [option for vector in (right, *wrong, "2-S1-uneven") for option in ("--select", f"*/{vector}")]
    found = results(tmp_path, 1, f"{WRONG}:{name}", "--ranks", "2", "--timeout", "5", *chosen)
    assert found[right]["status"] == "pass"
    assert len(found) == len(wrong) + 2, "the run went on"
    for vector, (reason, flag, text) in wrong.items():
        assert (found[vector]["status"], found[vector]["reason"]) == ("fail", reason)
        assert flag in found[vector]["flags"]
        assert text in found[vector]["message"]


@EXAMPLES_RUN
def test_replicas_that_count_twice(tmp_path: Path) -> None:
    found = results(tmp_path, 1, f"{WRONG}:replicas_twice", "--ranks", "2")
    report = Report.from_json(json.loads((tmp_path / "report.json").read_text("utf-8")))
    assert len(found) == 42
    assert found["2-S0-uneven"]["status"] == "pass"
    wrong = found["2-R"]
    assert (wrong["status"], wrong["reason"]) == ("fail", "")
    assert "ReplicasOnce" in wrong["flags"]
    assert "the norm is" in wrong["message"]
    # the vectors of the mistake have many more subjects, which work: the report names the one that fails
    kinds = lay_out(report, load_vectors(SHIPPED / "ranks")).kinds("fail")
    assert kinds[0].names == ("ReplicasOnce",)
    assert kinds[0].count >= 10
    assert {kind.names for kind in kinds[1:]} == {("Dtypes",), ("FiniteNorm",)}, (
        "it sums the squares of float64 in float32, too"
    )
    assert kinds[0].explanation == "A gradient that is the same on several ranks counts once."


SCALES = {
    "nothing": ("pass", "NothingScaled", "it scaled nothing"),
    "up": (
        "[p.grad.mul_(8.0) for p in parameters if p.grad is not None]",
        "ScaledUp",
        "it scaled up",
    ),
    "its own norm": (
        "x = [g for p in parameters if (g := p.grad) is not None]\n"
        "    x = [g.to_local() if hasattr(g, 'to_local') else g for g in x]\n"
        "    torch.nn.utils.clip_grads_with_norm_([G(g) for g in x], max_norm, torch.nn.utils.get_total_norm(x))",
        "AllShards",
        "it scaled by this rank's own norm",
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=EXAMPLES_RUN) if name == "its own norm" else name for name in SCALES]
)
def test_the_cause_is_what_came_instead(tmp_path: Path, name: str) -> None:
    """A clip that scales nothing does not scale by each rank's own norm, though that is within the limit in a vector."""
    body, cause, phrase = SCALES[name]
    clip = tmp_path / "wrong.py"
    clip.write_text(
        "import torch\n\nclass G:\n    def __init__(self, grad): self.grad = grad\n\n"
        f"def clip(parameters, max_norm):\n    {body}\n"
    )
    chosen = [option for vector in ("2-S0-even", "2-S1-even", "2-between") for option in ("--select", f"*/{vector}")]
    found = results(tmp_path, 1, f"{clip}:clip", "--ranks", "2", *chosen)
    assert {result["status"] for result in found.values()} == {"fail"}
    assert all(phrase in result["message"] for result in found.values())
    report = Report.from_json(json.loads((tmp_path / "report.json").read_text("utf-8")))
    kinds = lay_out(report, load_vectors(SHIPPED / "ranks")).kinds("fail")
    assert [kind.names for kind in kinds] == [(cause,)]
    assert kinds[0].explanation


def test_torch_s_own_fails_where_it_does(tmp_path: Path) -> None:
    """The native takes no plain tensor beside DTensors, and waits for a rank that lacks a gradient."""
    expected = {"2-S0-even": "", "2-plain-beside": "raised", "2-missing-first": "hung", "2-large": "", "2-S1-even": ""}
    chosen = [option for vector in expected for option in ("--select", f"*/{vector}")]
    found = results(tmp_path, 0, "native:torch", "--ranks", "2", "--timeout", "5", *chosen)
    assert {name: result["reason"] for name, result in found.items()} == expected
    declared = {name: result["message"] for name, result in found.items() if result["status"] == "expected"}
    assert declared.keys() == {"2-plain-beside", "2-missing-first", "2-large"}
    assert declared["2-missing-first"].startswith("MissingShard: ")
    assert "mixed torch.Tensor and DTensor" in declared["2-plain-beside"]
    assert {result["target"] for result in found.values()} == {"torch.nn.utils.clip_grad_norm_"}


@pytest.mark.slow("a vector without its declared failure; test_rank_vectors.py compares the recording with the declarations")
@pytest.mark.parametrize("ranks", ["2", "4", "8"])
def test_torch_s_known_failures_are_declared(tmp_path: Path, ranks: str) -> None:
    found = results(tmp_path, 0, "native:torch", "--ranks", ranks, "--timeout", "10")
    assert {result["status"] for result in found.values()} == {"pass", "expected", "unclaimed"}


def test_a_function_of_a_process_group_gets_plain_shards(tmp_path: Path) -> None:
    clip = tmp_path / "grouped.py"
    clip.write_text(
        "import torch\n\n\n"
        "def clip(parameters, max_norm, group=None):\n"
        "    square = sum((p.grad.double().square().sum() for p in parameters if p.grad is not None), torch.tensor(0.0))\n"
        "    if group is not None:\n"
        "        torch.distributed.all_reduce(square, group=group)\n"
        "    for p in parameters:\n"
        "        if p.grad is not None:\n"
        "            p.grad.mul_(min(1.0, max_norm / (float(square) ** 0.5 + 1e-6)))\n"
    )
    chosen = [
        option
        for name in ("group-uneven", "group-missing", "experts", "experts-beside")
        for option in ("--select", f"*/2-{name}")
    ]
    found = results(tmp_path, 0, f"{clip}:clip", "--ranks", "2", *chosen)
    statuses = {name: result["status"] for name, result in found.items()}
    assert statuses == {
        "2-experts": "pass",
        "2-experts-beside": "unclaimed",
        "2-group-uneven": "pass",
        "2-group-missing": "pass",
    }


@FOUR
@EXAMPLES_RUN
def test_torchtitan_s_recipe_takes_a_second_mesh_for_experts_only(tmp_path: Path) -> None:
    chosen = [option for vector in ("2x2-S0-S1-even", "2x2-axes", "2x2-axes-all") for option in ("--select", f"*/{vector}")]
    found = {
        name: results(tmp_path, 1, f"{WRONG.with_name('torchtitan.py')}:{name}", "--ranks", "4", *chosen)
        for name in ("dense", "with_experts")
    }
    statuses = {name: {vector: result["status"] for vector, result in of.items()} for name, of in found.items()}
    assert statuses["dense"] == {"2x2-S0-S1-even": "pass", "2x2-axes": "fail", "2x2-axes-all": "fail"}
    assert statuses["with_experts"] == {"2x2-S0-S1-even": "pass", "2x2-axes": "pass", "2x2-axes-all": "fail"}
    for of in found.values():
        assert "must have the same mesh" in of["2x2-axes-all"]["message"]
        assert "SeveralMeshes" in of["2x2-axes-all"]["flags"]


@EXAMPLES_RUN
def test_torchtitan_s_recipe_waits_for_a_rank_without_a_gradient(tmp_path: Path) -> None:
    chosen = [option for vector in ("2-S0-even", "2-plain-beside", "2-missing-first") for option in ("--select", f"*/{vector}")]
    clip = f"{WRONG.with_name('torchtitan.py')}:with_experts"
    found = results(tmp_path, 1, clip, "--ranks", "2", "--timeout", "5", *chosen)
    assert {name: result["reason"] for name, result in found.items()} == {
        "2-S0-even": "",
        "2-plain-beside": "raised",
        "2-missing-first": "hung",
    }
    assert found["2-S0-even"]["status"] == "pass"


def test_a_crash_is_named_and_the_run_goes_on(tmp_path: Path) -> None:
    clip = tmp_path / "crashing.py"
    clip.write_text(
        "import os\n"
        "import torch\n"
        "import gradclip\n\n\n"
        "def clip(parameters, max_norm):\n"
        "    if all(p.dim() == 1 for p in parameters) and torch.distributed.get_rank() == 1:\n"
        "        os._exit(3)\n"
        "    return gradclip.clip_grad_norm_(parameters, max_norm)\n"
    )
    vectors = TESTS.parent / "gradclip" / "conformance" / "vectors" / "v1" / "ranks" / "torch.clip_grad_norm_.json"
    file = json.loads(vectors.read_text("utf-8"))
    order = ["2-S0-even", "2-nothing-here", "2-R"]
    file["vectors"] = [next(vector for vector in file["vectors"] if vector["id"] == name) for name in order]
    shape = {"shape": [8]}
    middle = file["vectors"][1]
    middle["gradients"] = [gradient | shape for gradient in middle["gradients"]]
    middle["expected"][0]["gradients"] = [gradient | shape for gradient in middle["expected"][0]["gradients"]]
    (tmp_path / "torch.json").write_text(json.dumps(file))
    found = results(tmp_path, 1, f"{clip}:clip", "--ranks", "2", "--vectors", str(tmp_path / "torch.json"))
    assert [found[name]["status"] for name in order] == ["pass", "fail", "pass"]
    assert found["2-nothing-here"]["reason"] == "crashed"
    assert "rank 1: the process ended with exit status 3" in found["2-nothing-here"]["message"]


def test_an_interrupt_ends_the_ranks(tmp_path: Path) -> None:
    clip = tmp_path / "waiting.py"
    clip.write_text(
        "import os\nimport time\nfrom pathlib import Path\nimport torch\n\n\n"
        "def clip(parameters, max_norm):\n"
        f"    Path({str(tmp_path)!r}, str(os.getpid()) + '.pid').touch()\n"
        "    time.sleep(600)\n"
    )
    # as in a terminal: a shell starts what runs in the background with the signal ignored, and a child inherits that
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        child = subprocess.Popen(command(f"{clip}:clip", "--ranks", "2"), env=environment(), **quiet)
    finally:
        signal.signal(signal.SIGINT, before)
    deadline = time.monotonic() + TIME_LIMIT
    while len(pids := [int(path.stem) for path in tmp_path.glob("*.pid")]) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=TIME_LIMIT) == 130
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["gradclip:jax", "--ranks", "2"], "--ranks tests clips of torch's tensors."),
        (["gradclip:torch", "--ranks", "2", "--takes", "gradients"], "--takes does not go with --ranks."),
        (["gradclip:torch", "--ranks", "3"], "invalid choice"),
        (["math:pi", "--ranks", "2"], "--ranks tests a function."),
    ],
)
def test_wrong_usage(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = cli.main(["conformance", *arguments])
    except SystemExit as ended:  # of the parser
        status = int(ended.code or 0)
    assert status == 2
    assert text in capsys.readouterr().err
