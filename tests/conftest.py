"""``pytest --backend torch`` runs the tests on one framework in a process; the default is numpy."""

from __future__ import annotations

import gc
import importlib
import operator
import os
import random
import sys
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from frameworks.base import Framework

TESTS = Path(__file__).parent
ALONE = ("all", "keras", "package", "site")  # each of these runs its own tests only

READERS = frozenset({"source", "lint", "migrate", "rounds"})  #: tests that read sources and use no tensors: one run is enough
SHARED = frozenset({"core", "steps"})  #: what each framework runs, where a test asks for it

hypothesis.settings.register_profile("gradclip", derandomize=True, deadline=None)
hypothesis.settings.load_profile("gradclip")


def pytest_addoption(parser: pytest.Parser) -> None:
    note = "the framework whose tensors the tests use; or 'all', 'keras', 'package' or 'site', each with tests of its own"
    parser.addoption("--backend", default="numpy", help=note)
    parser.addoption("--slow", action="store_true", help="run the slow tests too; the mark of each says what only it finds")
    parser.addoption("--sample", type=int, metavar="N", help="run only N cases of each parametrized test")
    parser.addoption("--progress", metavar="NAME", help="print lines that begin with NAME, not a letter for each test")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out tests of other runs; None leaves the choice to pytest."""
    run, parts = config.getoption("--backend"), collection_path.parts[len(TESTS.parts) :]
    owners = {owner for part in parts if (owner := _owner(part))}
    if not owners and ("test_imports.py" in parts or (READERS & set(parts) and collection_path.suffix == ".py")):
        owners = {"numpy"}
    if run in ALONE and collection_path.suffix == ".py":
        return run not in owners or None
    return bool(owners - {run}) or None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(attribute): runs only if this attribute of the Framework is true")
    config.addinivalue_line("markers", "slow(what, unless): runs with --slow, or on the backend unless; what only it finds")
    config.addinivalue_line("markers", "accuracy: it measures compiled programs, so these are compiled as users' are")
    config.addinivalue_line(
        "markers", "drawn(many, backend=fewer): without --slow, only this many of its cases run; each backend draws its own"
    )
    name = config.getoption("--progress")
    config.pluginmanager.register(importlib.import_module("running").Running(name or "pytest", config.option.xmlpath))
    if name:
        config.pluginmanager.register(importlib.import_module("progress").Progress(name))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare Python's collector what lives to the end, the frameworks and the tests: it would look at them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # a compiler keeps many of the small objects that it makes: looking at all of them again took a tenth of torch's tests
        gc.set_threshold(20_000, 10, 100)
        gc.enable()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise ``way``: "" is eager, the others are the framework's ways to trace."""
    if "way" in metafunc.fixturenames:
        ways = ("", *load(metafunc.config).jits)
        metafunc.parametrize("way", ways, ids=["eager", *ways[1:]])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests of features that the framework lacks, slow tests, and tests outside the sample; pytest counts them."""
    marked = [(item, mark.args[0]) for item in items for mark in item.iter_markers("needs")]
    without = {item for item, attribute in marked if not getattr(load(config), attribute)}
    backend = config.getoption("--backend")
    if backend != "numpy":
        without |= {item for item in items if _asks_for_no_framework(item)}
    on = os.environ.get("KERAS_BACKEND", "") if backend == "keras" else backend
    if not config.getoption("--slow"):
        marked = [(item, mark.kwargs) for item in items for mark in item.iter_markers("slow")]
        without |= {item for item, how in marked if how.get("unless") != backend}
        for many, same in _drawn([item for item in items if item not in without], backend, on).items():
            without |= _left_out(same, many, on)
    if many := config.getoption("--sample"):
        without |= _left_out([item for item in items if item not in without], many, on)
    config.hook.pytest_deselected(items=[item for item in items if item in without])
    items[:] = [item for item in items if item not in without]


def _asks_for_no_framework(item: pytest.Item) -> bool:
    """Whether a test that each framework runs is the same on all: NumPy runs it."""
    asked = {"backend", "pytestconfig"} & set(getattr(item, "fixturenames", ()))
    return item.path.parts[len(TESTS.parts)] in SHARED and not asked and item.get_closest_marker("needs") is None


def _drawn(items: list[pytest.Item], backend: str, on: str) -> dict[int, list[pytest.Item]]:
    """Return the items marked ``drawn``, by how many of each function's are to run."""
    found: dict[int, list[pytest.Item]] = {}
    for item in items:
        if mark := item.get_closest_marker("drawn"):
            found.setdefault(mark.kwargs.get(backend, mark.kwargs.get(on, mark.args[0])), []).append(item)
    return found


def _left_out(items: list[pytest.Item], many: int, on: str) -> set[pytest.Item]:
    """Return all but ``many`` of each function's items.

    Names alone decide, so the choice is the same on every machine. Each framework has its own: together they see more cases.
    Those with most arguments that none before them has come first: few cases have every argument.
    """
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return {item for same in functions.values() for item in _in_order(same, on)[many:]}


def _in_order(same: list[pytest.Item], on: str) -> list[pytest.Item]:
    """Return a function's items in the order in which they are taken."""
    left = sorted(same, key=lambda item: zlib.crc32(f"{on} {item.nodeid}".encode()))
    arguments = {
        item: {(name, id(x)) for name, x in item.callspec.params.items()} if hasattr(item, "callspec") else set()
        for item in left
    }
    taken: list[pytest.Item] = []
    seen: set[object] = set()
    while left and arguments[best := max(left, key=lambda item: len(arguments[item] - seen))] - seen:
        left.remove(best)
        taken.append(best)
        seen |= arguments[best]
    return taken + left


def _owner(name: str) -> str | None:
    """Return the run that a folder belongs to: ``torch_only/``, ``package/``."""
    return name.removesuffix("_only") if name.endswith("_only") else "package" if name == "package" else None


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """Begin each test with the same random numbers: a model's first weights do not depend on the run, nor on the tests before.

    A seed is set where the framework is imported already.
    """
    random.seed(0)
    for module, seed in {
        "numpy": "random.seed",
        "torch": "manual_seed",
        "tensorflow": "random.set_seed",
        "paddle": "seed",
    }.items():
        if module in sys.modules:
            operator.attrgetter(seed)(sys.modules[module])(0)


def load(config: pytest.Config) -> Framework:
    return importlib.import_module(f"frameworks.{config.getoption('--backend')}").framework


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> Framework:
    """The framework of this run."""
    return load(request.config)


@pytest.fixture(params=[True, False], ids=["compiled", "not compiled"])
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run with the compiled loops, and without them, as after an installation without a C compiler."""
    kernels = importlib.import_module("gradclip.backends.host.kernels")
    assert kernels.KINDS, "_kernels.c was not compiled"
    if not request.param:
        monkeypatch.setattr(kernels, "KINDS", {})
    return bool(request.param)


@pytest.fixture
def soon_large(backend: Framework, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the thresholds, so that small tensors reach the paths for large ones."""
    base = importlib.import_module("frameworks.base")
    loops = ("gradclip.backends.host.kernels.SHARES", (base.LARGE, base.LARGE // 2))
    for name, size in (loops, *backend.thresholds):
        monkeypatch.setattr(name, size)
