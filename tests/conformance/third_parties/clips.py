"""The clips of other packages as targets of the suite; a package is imported when its target is requested."""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from gradclip.conformance import Target

__all__ = ["ADAPTIVE", "FRAMEWORKS", "Clip", "alone", "clips_of", "function_alone", "imported"]

ADAPTIVE = "optax.adaptive_grad_clip"
FRAMEWORKS = ("torch", "tensorflow", "paddle", "jax")


@dataclass(frozen=True)
class Clip:
    """One clip of a package."""

    package: str  #: the name of the distribution on PyPI
    name: str  #: the name that its users write
    operation: str  #: the operation that it documents, or the nearest one
    make: Callable[[], Target]


def clips_of(framework: str) -> tuple[Clip, ...]:
    """The clips on one framework's arrays."""
    found: tuple[Clip, ...] = importlib.import_module(f"conformance.third_parties.on_{framework}").CLIPS
    return found


def imported(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def alone(module: str, name: str) -> Any:
    """Import without running the package's ``__init__``: torchvision's, or a trainer's, imports more than the clip needs."""
    parents = module.split(".")[:-1]
    made = [
        ".".join(parents[: number + 1]) for number in range(len(parents)) if ".".join(parents[: number + 1]) not in sys.modules
    ]
    try:
        for package in made:
            found = importlib.machinery.PathFinder.find_spec(package.rpartition(".")[2], _path(package))
            assert found is not None, f"{package} is not installed"
            assert found.submodule_search_locations is not None
            sys.modules[package] = types.ModuleType(package)
            sys.modules[package].__path__ = list(found.submodule_search_locations)
        return imported(module, name)
    finally:
        for package in made:
            sys.modules.pop(package, None)


def _path(package: str) -> list[str] | None:
    above = package.rpartition(".")[0]
    return list(sys.modules[above].__path__) if above else None


def function_alone(package: str, file: str, names: tuple[str, ...], known: dict[str, Any]) -> dict[str, Any]:
    """Functions of a file whose imports would bring a whole trainer, compiled with ``known`` in the place of the imports."""
    path = Path(str(distribution(package).locate_file(file)))
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name in names]
    assert len(tree.body) == len(names), f"{file} has other functions"
    made = dict(known)
    exec(compile(tree, str(path), "exec"), made)
    return made
