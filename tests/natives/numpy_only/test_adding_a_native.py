"""Adding a native is one record: a copy of the tree gets two made-up ones by the recipe of docs/house.md, and nothing else.

The made-up clips have new meanings, so they also need functions of dialects: a link of optax's chain, each gradient by its
largest magnitude; and a function of torch, each gradient by its root mean square, that gradclip has no drop-in for.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launched import TIME_LIMIT

ROOT = Path(__file__).parents[3]
RECORDS = {
    "optax": """\
    _native(
        code="GO599",
        names=_names("clip_by_largest"),
        applied=Applied.CHAIN,
        note="A transformation: each gradient by its largest magnitude.",
        link=_DOCS + "clip_by_largest",
        departs={"zero-limit": _ZEROS},
    ),
)
""",
    "torch": """\
    _native(
        code="GT199",
        names=_names("clip_grad_rms_"),
        applied=Applied.PARAMETERS,
        tensors="parameters",
        note="Each gradient by its own root mean square, in place.",
        link=_DOCS.format("clip_grad_rms_"),
    ),
)
""",
}
DIALECTS = {
    "optax": '''

@untraced
def clip_by_largest(most: Any) -> Rule:
    """Each gradient by its largest magnitude."""
    return Rule(
        name="optax.clip_by_largest",
        scope=TENSOR,
        order=float("inf"),
        limit=number_or_tensor("most", most, follows=True),
        limit_name="most",
    )
''',
    "torch": '''
from gradclip.core.rule import TENSOR


@untraced
def clip_grad_rms(max_rms: Any) -> Rule:
    """Each gradient by its own root mean square."""
    limit = number_or_tensor("max_rms", max_rms)
    return Rule(name="torch.clip_grad_rms", scope=TENSOR, limit=limit, limit_name="max_rms", eps=EPSILON, mean=True)
''',
}
PROGRAM = """\
import optax

optimizer = optax.chain(optax.clip_by_largest(2.0), optax.sgd(0.1))
optax.clip_by_largest(2.0)
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of this tree with the made-up natives, by steps 1 to 4 of the recipe."""
    copy = tmp_path_factory.mktemp("tree")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for name in listed:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    for framework, record in RECORDS.items():
        records, dialect = copy / f"gradclip/natives/{framework}.py", copy / f"gradclip/dialects/{framework}.py"
        records.write_text(records.read_text("utf-8").rstrip().removesuffix(")") + record, "utf-8")
        (name,) = re.findall(r"def (\w+)", DIALECTS[framework])
        text = dialect.read_text("utf-8").replace("__all__ = [", f'__all__ = ["{name}", ', 1)
        dialect.write_text(text + DIALECTS[framework], "utf-8")
    generate(copy, 3)
    generate(copy, 4)
    return copy


def generate(tree: Path, step: int) -> None:
    """Run the commands that a step of the recipe names."""
    recipe = (ROOT / "docs/house.md").read_text("utf-8").partition("## Adding a native\n")[2].partition("\n## ")[0]
    (said,) = re.findall(rf"^{step}\. .*", recipe, re.MULTILINE)
    commands = re.findall(r"`python (tools/[^`]+)`", said)
    assert commands
    for command in commands:
        run(tree, *command.split())


def run(tree: Path, *arguments: str) -> str:
    """Run Python in the tree, with its gradclip; return what it prints."""
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": ""}  # the tools import each other
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tree, env=environment, capture_output=True, text=True, timeout=TIME_LIMIT
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert not done.stderr, done.stderr
    return done.stdout


def test_the_copy_is_what_runs(tree: Path) -> None:
    assert run(tree, "-c", "import gradclip; print(gradclip.__file__)").strip() == str(tree / "gradclip/__init__.py")


@pytest.mark.parametrize("text", ["optax.clip_by_largest(2.0)", "gradclip.dialects.optax.clip_by_largest(2.0)", "GO599"])
def test_it_is_explained(tree: Path, text: str) -> None:
    found = json.loads(run(tree, "-m", "gradclip", "explain", text, "--json"))
    limit = "most" if text == "GO599" else "2.0"
    assert found["formula"] == [f"g * {limit} / max(n, {limit})", "n = the largest |g|"]
    assert found["code"] == "GO599"
    assert {"case": "limit 0", "does": "zeros", "native": "zero gradients become NaN"} in found["edges"]
    marks = {same["framework"]: same["mark"] for same in found["equivalents"]}
    assert marks == dict.fromkeys(("torch", "tensorflow", "keras", "paddle"), "no native equivalent") | {
        "gradclip": "within rounding",
        "jax": "this call",
    }


def test_one_without_a_drop_in_is_explained_by_its_rule(tree: Path) -> None:
    text = "torch.nn.utils.clip_grad_rms_(p, 2.0)"
    found = json.loads(run(tree, "-m", "gradclip", "explain", text, "--json"))
    code = {same["framework"]: same["code"] for same in found["equivalents"]}
    assert code["gradclip"] == "gradclip.clip_(p, gradclip.dialects.torch.clip_grad_rms(max_rms=2.0))"
    assert code["jax"] == "optax.chain(optax.clip_by_block_rms(2.0), optimizer)"


@pytest.mark.parametrize("operation", ["optax.clip_by_largest", "torch.clip_grad_rms_"])
def test_the_suite_tests_it(tree: Path, operation: str) -> None:
    code = "from gradclip import conformance as c; report = c.check_target(c.gradclip_target('numpy'), dialects="
    report = json.loads(run(tree, "-c", f"{code}{operation!r}); import json; print(json.dumps(report.as_json()))"))
    assert [result for result in report["results"] if result["status"] == "fail"] == []
    assert report["counts"]["pass"] > 200


def test_it_is_compared(tree: Path) -> None:
    found = json.loads(run(tree, "-m", "gradclip", "explain", "optax.clip_by_largest", "optax.clip_by_block_rms", "--json"))
    assert found["example"]["first"] == "[0.75, 1]  [0.5, 0]"


def test_it_is_linted_and_migrated(tree: Path, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM, "utf-8")
    linted = run(tree, "-m", "gradclip", "lint", str(program))
    assert "train.py:4:1: GM105" in linted.replace(str(tmp_path) + os.sep, "")
    run(tree, "-m", "gradclip", "migrate", "--write", str(program))
    migrated = "".join(program.read_text("utf-8").split())
    assert "optax.chain(gradient_transformation(optax_rules.clip_by_largest(2.0)),optax.sgd(0.1))" in migrated


def test_a_wrong_rule_names_it(tree: Path) -> None:
    code = "import gradclip\ntry: gradclip.clip([], 'optax.clip_by_largest')\nexcept TypeError as error: print(error)"
    assert "the rule that does the same: gradclip.dialects.optax.clip_by_largest(most=1.0)." in run(tree, "-c", code)


def test_the_pages_and_their_tests_follow(tree: Path) -> None:
    assert "| GO599 | `optax.clip_by_largest` |" in (tree / "docs/equivalence.md").read_text("utf-8")
    tests = [
        "migrate/test_natives.py",
        "migrate/test_explain.py",
        "migrate/test_explain_equivalents.py",
        "core/test_mistakes.py",
    ]
    tests += [
        "natives/numpy_only/test_meanings.py",
        "docs/numpy_only/test_drawings.py",
        "docs/numpy_only/test_play.py",
        "dialects/test_dialects.py",
    ]
    chosen = "GO599 or clip_by_largest or made_from_the_table or suggested or every_dialect or (current and not house)"
    printed = run(tree, "-m", "pytest", "-q", "--backend", "numpy", *(f"tests/{test}" for test in tests), "-k", chosen)
    passed = re.search(r"(\d+) passed", printed)
    assert passed, printed
    assert int(passed[1]) >= 30
    assert "failed" not in printed, printed
