"""The workflows: actions by commit, the least permissions, and who may publish what."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import release
import yaml

import gradclip

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").iterdir())
COMMIT, IMAGE = r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", r"docker://[\w.-]+/[\w./-]+@sha256:[0-9a-f]{64}"
PINNED = re.compile(rf"uses: (?:{COMMIT}|{IMAGE}) # v\d+\.\d+\.\d+(?:;.*)?")


def read(path: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def jobs(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = read(path)["jobs"]
    return found


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in jobs(path).values():
        assert "uses" not in job, "a job of another repository's workflow needs a rule here"
        yield from job["steps"]


RELEASE = next(path for path in WORKFLOWS if path.name == "release.yml")


def test_the_workflows_are_found() -> None:
    assert {path.name for path in WORKFLOWS} == {"release.yml", "tests.yml"}
    assert all(len(list(steps(path))) > 5 for path in WORKFLOWS)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_each_action_is_a_commit_with_its_version(path: Path) -> None:
    lines = [line.strip().removeprefix("- ") for line in path.read_text(encoding="utf-8").splitlines() if "uses:" in line]
    assert len(lines) == sum("uses" in step for step in steps(path))
    assert [line for line in lines if not PINNED.fullmatch(line)] == []


def test_an_action_has_one_version() -> None:
    used = {step["uses"] for path in WORKFLOWS for step in steps(path) if "uses" in step}
    names = [one.partition("@")[0] for one in used]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_the_permissions_are_the_least(path: Path) -> None:
    whole = read(path)
    assert whole["permissions"] in ({}, {"contents": "read"})
    assert "pull_request_target" not in whole[True]  # YAML reads the key `on` as true
    assert "secrets." not in path.read_text(encoding="utf-8")
    for name, job in jobs(path).items():
        granted = job.get("permissions", whole["permissions"])
        assert granted == ({"id-token": "write"} if name == "publish" else {"contents": "read"}), name
    checkouts = [step for step in steps(path) if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_name_from_outside_becomes_a_part_of_a_script(path: Path) -> None:
    for step in steps(path):
        assert set(re.findall(r"\$\{\{ *([\w-]+)", step.get("run", ""))) <= {"matrix"}, step


def test_only_a_pushed_tag_is_published() -> None:
    assert read(RELEASE)[True] == {"push": {"tags": ["v*"]}, "workflow_dispatch": None}
    publish = jobs(RELEASE)["publish"]
    assert set(publish["if"].split(" && ")) == {
        "github.event_name == 'push'",
        "github.ref_type == 'tag'",
        "startsWith(github.ref, 'refs/tags/v')",
        "!github.event.repository.fork",
    }
    assert publish["environment"] == "pypi"
    assert set(publish["needs"]) == set(jobs(RELEASE)) - {"publish"}
    publishing = [name for name, job in jobs(RELEASE).items() if "pypi-publish" in str(job)]
    assert publishing == ["publish"]
    assert all("checkout" not in step["uses"] and "run" not in step for step in publish["steps"]), "it runs no code of ours"


def test_the_tag_is_checked_before() -> None:
    check = jobs(RELEASE)["check"]
    checkout, run = check["steps"]
    assert checkout["with"]["fetch-depth"] == 0
    assert run == {"run": 'python3 -I tools/release.py "$TAG"', "env": {"TAG": "${{ github.ref_name }}"}}
    assert check["if"] == "github.event_name == 'push'"


def test_what_makes_a_release_has_the_versions_of_the_tests_and_hashes() -> None:
    lines = (ROOT / ".github" / "release-tools.txt").read_text(encoding="utf-8").splitlines()
    found = [line.split() for line in lines if not line.startswith("#")]
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert {pin for pin, _ in found} <= set(constraints)
    assert {pin.partition("==")[0] for pin, _ in found} == {"build", "packaging", "pyproject_hooks", "setuptools"}
    assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", digest) for _, digest in found)
    made = [step for name in ("wheels", "sources") for step in jobs(RELEASE)[name]["steps"]]
    installs = [step["run"] for step in made if "pip install" in step.get("run", "")]
    assert installs == ["pip install --require-hashes --only-binary :all: -r .github/release-tools.txt"]
    builds = [step["run"] for step in steps(RELEASE) if "-m build" in step.get("run", "")]
    assert len(builds) == 2
    assert all("--no-isolation" in build for build in builds), "else pip would look for other tools"


def test_what_is_published_was_installed_and_tested() -> None:
    job = jobs(RELEASE)["installed"]
    assert set(job["needs"]) == {"wheels", "sources"}
    kinds = job["strategy"]["matrix"]["include"]
    assert [(one["from"].split()[0], one["cc"]) for one in kinds] == [
        ("--only-binary", "gcc"),
        ("--no-binary", "gcc"),
        ("--no-binary", "false"),
    ]
    *_, install, test = job["steps"]
    assert "--no-index" in install["run"]
    assert "--find-links dist" in install["run"]
    assert test["run"].startswith("python -P -m pytest ")
    assert all((ROOT / word).is_file() for word in test["run"].split() if word.startswith("tests/"))


# ---- the tag ------------------------------------------------------------------------------------------------------------


def git(folder: Path, *words: str) -> None:
    settings = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *settings, *words], cwd=folder, check=True, capture_output=True)


ADDRESS = "https://example.org/someone/gradclip"


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository with version 1.2.0 on main, and a commit on a branch."""
    monkeypatch.setenv("GRADCLIP_REPOSITORY", ADDRESS)
    (tmp_path / "CITATION.cff").write_text(f'repository-code: "{ADDRESS}"\n')
    (tmp_path / "SECURITY.md").write_text(f"On [the repository's Security page]({ADDRESS}/security).\n")
    (tmp_path / "gradclip").mkdir()
    (tmp_path / "gradclip" / "__init__.py").write_text('"""Text."""\n\n__version__ = "1.2.0"\n')
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "one")
    git(tmp_path, "commit", "--allow-empty", "-m", "two")
    git(tmp_path, "branch", "side")
    return tmp_path


def test_a_tag_of_main_with_the_version_is_published(clone: Path) -> None:
    git(clone, "tag", "v1.2.0")
    assert release.refusal("v1.2.0", clone, "main") == ""
    git(clone, "commit", "--allow-empty", "-m", "three")  # main goes on
    git(clone, "checkout", "v1.2.0")
    assert release.refusal("v1.2.0", clone, "main") == ""


@pytest.mark.parametrize("tag", ["v1.2.1", "1.2.0", "v1.2", "v1.2.0rc1", "v01.2.0", "v1.2.0\n", "", "v1.2.0; echo"])
def test_another_tag_is_refused(tag: str, clone: Path) -> None:
    assert "the tag must be 'v1.2.0'" in release.refusal(tag, clone, "main")


def test_a_tag_outside_of_main_is_refused(clone: Path) -> None:
    git(clone, "checkout", "side")
    git(clone, "commit", "--allow-empty", "-m", "not reviewed")
    git(clone, "tag", "-a", "v1.2.0", "-m", "v1.2.0")
    assert release.refusal("v1.2.0", clone, "main") == "v1.2.0 is not a commit of main."
    git(clone, "checkout", "main")
    assert "is not the commit that is checked out" in release.refusal("v1.2.0", clone, "main")


def test_a_readme_that_installs_from_a_clone_is_refused(clone: Path) -> None:
    (clone / "README.md").write_text("    pip install '.[torch]'  # in a clone; or jax\n")
    git(clone, "tag", "v1.2.0")
    assert release.refusal("v1.2.0", clone, "main").startswith("README.md would install from a clone: ")
    (clone / "README.md").write_text("    pip install 'gradclip[torch]'  # or jax\n")
    assert release.refusal("v1.2.0", clone, "main") == ""


def test_a_release_says_where_the_project_is_in_one_address(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(clone, "tag", "v1.2.0")
    monkeypatch.setenv("GRADCLIP_REPOSITORY", "https://example.org/other")
    assert release.refusal("v1.2.0", clone, "main").startswith(
        "CITATION.cff and SECURITY.md must say where the project is (https://example.org/other): "
    )
    monkeypatch.delenv("GRADCLIP_REPOSITORY")
    assert "GRADCLIP_REPOSITORY is not set" in release.refusal("v1.2.0", clone, "main")


def test_without_the_address_nothing_is_written(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("GRADCLIP_REPOSITORY", raising=False)
    monkeypatch.setattr(release, "publish", None)
    assert release.main(["--published"]) == 2
    assert capsys.readouterr().err == "GRADCLIP_REPOSITORY must be the address of the repository.\n"


def test_a_missing_tag_or_branch_is_refused(clone: Path) -> None:
    assert "no such tag" in release.refusal("v1.2.0", clone, "main")
    git(clone, "tag", "v1.2.0")
    assert release.refusal("v1.2.0", clone, "no_such_branch") == "v1.2.0 is not a commit of no_such_branch."


def test_the_command_says_why(monkeypatch: pytest.MonkeyPatch, clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(release, "ROOT", clone)
    assert release.main(["v3.0.0"]) == 1
    assert "'v1.2.0'" in capsys.readouterr().err
    git(clone, "update-ref", "refs/remotes/origin/main", "main")
    git(clone, "tag", "v1.2.0")
    assert release.main(["v1.2.0"]) == 0


# ---- what stands beside the code --------------------------------------------------------------------------------------------


def test_the_version_stands_in_the_citation_and_in_the_recipe() -> None:
    assert read(ROOT / "CITATION.cff")["version"] == gradclip.__version__
    assert read(ROOT / "recipe" / "recipe.yaml")["context"]["version"] == gradclip.__version__
    assert f"## [{gradclip.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_recipe_says_what_the_metadata_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    recipe = read(ROOT / "recipe" / "recipe.yaml")
    python = f"python {project['project']['requires-python']}"
    assert recipe["requirements"]["run"] == [python]
    assert {python, *(name.replace(">=", " >=") for name in project["build-system"]["requires"])} < set(
        recipe["requirements"]["host"]
    )
    (entry,) = recipe["build"]["python"]["entry_points"]
    assert entry == f"gradclip = {project['project']['scripts']['gradclip']}"
    assert recipe["about"]["license"] == project["project"]["license"]


def test_who_reports_a_fault_says_what_is_installed() -> None:
    (field,) = (
        field for field in read(ROOT / ".github" / "ISSUE_TEMPLATE" / "wrong-result.yml")["body"] if field["id"] == "backends"
    )
    assert "gradclip backends" in field["attributes"]["label"]
    assert field["validations"] == {"required": True}


ITERATOR = """\
import torch

params = model.parameters()
opt = torch.optim.SGD(params, lr=0.1)
torch.nn.utils.clip_grad_norm_(params, 1.0)
"""


@pytest.mark.parametrize("source", ["print(1)\n", ITERATOR])
def test_the_action_lints_what_it_is_given(source: str, tmp_path: Path) -> None:
    """Its last step is run by the shell that a workflow uses, with this environment's command in place of the installed one."""
    action = read(ROOT / "action.yml")
    step = action["runs"]["steps"][-1]
    assert step["env"] == {"PATHS": "${{ inputs.paths }}", "OPTIONS": "${{ inputs.options }}"}
    assert not any("${{" in one["run"] for one in action["runs"]["steps"]), "no input becomes a part of a script"
    (tmp_path / "a b.py").write_text(source, encoding="utf-8")
    (tmp_path / "train.py").write_text(source, encoding="utf-8")
    folder = tmp_path / "gradclip" / "bin"
    folder.mkdir(parents=True)
    (folder / "gradclip").write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m gradclip "$@"\n', encoding="utf-8")
    (folder / "gradclip").chmod(0o755)
    variables = {**os.environ, "RUNNER_TEMP": str(tmp_path), "PATHS": "train.py", "OPTIONS": ""}
    done = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert done.returncode == (1 if source == ITERATOR else 0), done.stderr
    assert ("::error file=train.py,line=5" in done.stdout) is (source == ITERATOR)
