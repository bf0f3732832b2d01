"""The supported versions of the frameworks: one table, and the extras and the page agree with it."""

from __future__ import annotations

import configparser
import itertools
import re
import tomllib
from pathlib import Path

import copies
import pytest
from frameworks.base import Framework

from gradclip.core import versions
from gradclip.core.errors import GradclipError, VersionError

ROOT = Path(__file__).parents[2]
PACKAGES = {"paddle": "paddlepaddle"}  # the distribution of a module, if its name differs
TENSORFLOW = "tensorflow_cpu"  # the distribution for the tests; the extra requires tensorflow, which has the same versions


@pytest.mark.parametrize(
    ("module", "version", "standing"),
    [
        ("torch", "2.3.1+cu121", "below"),
        ("torch", "2.4", "between"),
        ("torch", "2.4.1+cu121", "tested"),
        ("torch", "2.5.0a0+git1234", "between"),
        ("torch", "99.0", "newer"),
        ("jax", "0.4.34", "below"),
        ("jax", "0.10.2", "tested"),  # a comparison of strings would put it before 0.4
        ("paddle", "0.0.0", "unknown"),  # built from source
        ("paddle", "3.0.0rc1", "tested"),
        ("torch", "main", "unknown"),
        ("mlx", "0.1", "unknown"),
    ],
)
def test_the_standing_of_a_version(module: str, version: str, standing: str) -> None:
    assert versions.standing(module, version) == standing


@pytest.mark.parametrize("module", versions.FRAMEWORKS)
def test_a_version_below_the_floor_is_refused(module: str) -> None:
    known = versions.FRAMEWORKS[module]
    with pytest.raises(VersionError) as refused:
        versions.check_version(module, "0.0.1")
    assert str(refused.value) == (
        f"gradclip works with {known.title} {known.minimum} and newer.\n"
        f"Received: {module}.__version__='0.0.1'\n"
        f"Hint: install {known.title} {known.minimum} or newer."
    )
    assert isinstance(refused.value, GradclipError)
    assert isinstance(refused.value, ImportError)
    for version in (known.minimum, *known.tested, "main"):
        versions.check_version(module, version)


@pytest.mark.parametrize("module", versions.FRAMEWORKS)
def test_the_table_is_in_order(module: str) -> None:
    known = versions.FRAMEWORKS[module]
    numbers = [versions._release(version) for version in (known.minimum, *known.tested)]
    assert numbers == sorted(numbers)
    assert known.tested[0].startswith(known.minimum)  # the tests ran on the lowest version


def test_a_backend_is_not_loaded_below_the_floor(backend: Framework) -> None:
    code = (
        f"import {backend.name} as framework\n"
        "framework.__version__ = '0.0.1'\n"
        "from gradclip.core import registry\n"
        "from gradclip.core.errors import VersionError\n"
        "name = framework.__name__\n"
        "for load in (lambda: registry.get(name), lambda: __import__('gradclip.backends.' + name)):\n"
        "    try:\n"
        "        load()\n"
        "    except VersionError as error:\n"
        "        print(str(error).splitlines()[1])\n"
        "print(name in [backend.name for backend in registry.loaded()])\n"  # it does not affect the others
        "get, asked = registry.get, []\n"
        "registry.get = lambda module: (asked.append(module), get(module))[1]\n"
        "list(registry.loaded())\n"
        "print(name in asked)\n"  # gradclip does not ask it again
    )
    done = copies.run(backend.name, "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-4:] == [f"Received: {backend.name}.__version__='0.0.1'"] * 2 + ["False"] * 2


# ---- files with versions --------------------------------------------------------------------------------------------------


def test_the_extras_ask_for_the_minimums() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    asked = dict(requirement.split(">=") for extra in extras.values() for requirement in extra if ">=" in requirement)
    assert {module: asked[PACKAGES.get(module, module)] for module in versions.FRAMEWORKS} == {
        module: known.minimum for module, known in versions.FRAMEWORKS.items()
    }
    for requirement in itertools.chain(*extras.values()):  # an upper bound needs a known failure
        assert re.fullmatch(r"[\w-]+(>=[\d.]+)?(; python_version < .*)?|gradclip\[.*\]", requirement), requirement


def test_the_tests_run_on_what_they_are_said_to() -> None:
    pinned = dict(re.findall(r"(?m)^([\w-]+)==(.+)$", (ROOT / "constraints.txt").read_text("utf-8")))
    for module, known in versions.FRAMEWORKS.items():
        package = TENSORFLOW if module == "tensorflow" else PACKAGES.get(module, module)
        assert pinned[package] in known.tested


def packages_of(environment: str) -> set[str]:
    """Return what ``tox.ini`` installs in an environment with other versions; a line is ``factors: requirement``."""
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini", "utf-8")
    (section,) = (name for name in tox.sections() if name.endswith("-{floor,latest}"))
    lines = [line.rpartition(": ") for line in tox[section]["deps"].splitlines()]
    return {
        requirement
        for factors, _, requirement in lines
        if any(set(names.split("-")) <= set(environment.split("-")) for names in factors.split(", "))
    }


@pytest.mark.parametrize("module", [name for name in versions.FRAMEWORKS if name != "optax"])
def test_each_floor_has_an_environment(module: str) -> None:
    package = TENSORFLOW.replace("_", "-") if module == "tensorflow" else PACKAGES.get(module, module)
    assert f"{package}=={versions.FRAMEWORKS[module].tested[0]}" in packages_of(f"{module}-floor")
    assert package in packages_of(f"{module}-latest")


def test_the_page_has_the_table() -> None:
    page = (ROOT / "docs" / "versions.md").read_text("utf-8")
    for known in versions.FRAMEWORKS.values():
        assert f"| {known.title} | {known.minimum} | {', '.join(known.tested)} |" in page
