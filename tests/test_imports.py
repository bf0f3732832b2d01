"""Who may import whom, and that gradclip imports no framework."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path

import pytest
from launched import TIME_LIMIT

FRAMEWORKS = ("numpy", "ml_dtypes", "torch", "tensorflow", "paddle", "jax", "jaxlib", "optax", "keras")


# ---- no framework is imported -------------------------------------------------------------------------------------------


def frameworks_after(code: str) -> set[str]:
    """The frameworks that a fresh interpreter has imported after some code."""
    code += "\nimport sys; print(*(name.partition('.')[0] for name in sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=TIME_LIMIT)
    return set(done.stdout.split()) & set(FRAMEWORKS)


MODULES = ["", ".dialects", ".dropins", ".commands.cli", ".backends", ".migrate.apis", ".migrate.codemod", ".migrate.runner"]
MODULES += [".conformance", ".conformance.engine", ".conformance.plugin", ".conformance.report"]


@pytest.mark.parametrize("module", [f"gradclip{module}" for module in MODULES])
def test_importing_gradclip_imports_no_framework(module: str) -> None:
    assert frameworks_after(f"import {module}") == set()


def test_a_framework_that_is_imported_would_be_seen() -> None:
    assert "numpy" in frameworks_after("import gradclip, numpy")
    assert "numpy" in frameworks_after("import gradclip.backends.numpy")


# ---- the direction of the imports ---------------------------------------------------------------------------------------

# What each module of the core may import of the others.
CORE: dict[str, set[str]] = {
    "tracing": set(),
    "errors": set(),
    "dtypes": set(),
    "parts": set(),
    "backend": {"dtypes", "errors", "parts"},
    "rule": {"errors"},
    "departures": set(),
    "mistakes": {"backend", "errors"},
    "registry": {"backend", "errors", "mistakes", "tracing"},
    "norms": {"dtypes", "registry", "backend", "rule", "errors"},
    "coefficient": {"dtypes", "norms", "slices", "registry", "backend", "rule", "errors"},
    "check": {"dtypes", "norms", "registry", "backend", "rule", "errors"},
    "scale": {"coefficient", "dtypes", "registry", "backend", "rule"},
    "subsets": {"dtypes", "norms", "registry", "backend", "rule"},
    "slices": {"norms", "parts", "backend", "rule", "subsets"},
    "distributed": {"norms", "parts", "registry", "backend", "rule", "errors", "slices", "subsets"},
    "groups": {"registry", "rule", "errors", "tracing"},
    "several": {
        "check",
        "coefficient",
        "distributed",
        "groups",
        "norms",
        "registry",
        "backend",
        "rule",
        "errors",
        "scale",
        "subsets",
    },
    "clip": {
        "check",
        "coefficient",
        "distributed",
        "groups",
        "mistakes",
        "norms",
        "registry",
        "rule",
        "scale",
        "several",
        "tracing",
    },
    "dialects": {"rule", "errors", "tracing"},
    "dropins": {"dtypes", "dialects", "clip", "registry", "backend", "rule", "errors", "tracing"},
}
CORE["__init__"] = set(CORE)  # the package itself: the public names
# The migration helper stands on the core.
MIGRATE = "migrate"
# So does the conformance suite, which uses what is public.
CONFORMANCE = "conformance"
PUBLIC = {"__init__", "dialects", "errors"}
# The command line stands on top of it all, and nothing imports it.
COMMANDS = {"commands", "__main__"}
# One module of it is for others too: the conformance suite and the demo's trainers. It imports nothing of gradclip.
CHILDREN = "commands.children"
# What the backends may share, and the trainers of the demo.
SHARED = {
    "backends.host",
    "backends.kernels",
    "backends._kernels",
    "backends.threads",
    "backends.targets.host",
}
DEMO_SHARED = {"backends.demo.base", "backends.demo.digits"}
# What is neither of gradclip nor of the standard library, by module: nothing for the rest.
THIRD_PARTY = {
    "commands.report": {"rich"},
    "conformance.parametrize": {"pytest"},
    "conformance.plugin": {"pytest"},
    "conformance.progress": {"rich"},
    "conformance.report.html": {"jinja2"},
    "conformance.report.text": {"rich"},
    "migrate.codemod": {"libcst"},
    "migrate.files": {"pathspec"},
    "migrate.output": {"rich"},
    "migrate.runner": {"libcst"},
    "backends.host": {"numpy"},
    "backends.numpy": {"numpy", "ml_dtypes"},
    "backends.torch": {"torch", "numpy"},
    "backends.torch_memory": {"torch"},
    "backends.torch_operator": {"torch"},
    "backends.torch_step": {"torch"},
    "backends.torch_distributed": {"torch"},
    "backends.tensorflow": {"tensorflow", "numpy"},
    "backends.paddle": {"paddle", "numpy"},
    "backends.jax": {"jax", "jaxlib", "optax", "numpy", "ml_dtypes"},
    "backends.keras": {"keras", "tensorflow"},
    "backends.targets.host": {"numpy", "ml_dtypes"},
    "backends.targets.jax": {"jax", "optax", "numpy"},
    "backends.targets.keras": {"keras"},
    "backends.targets.numpy": {"numpy"},
    "backends.targets.paddle": {"paddle"},
    "backends.targets.tensorflow": {"tensorflow"},
    "backends.targets.torch": {"torch"},
    "backends.demo.base": {"numpy"},
    "backends.demo.digits": {"numpy", "sklearn"},
    "backends.demo.numpy": {"numpy"},
    "backends.demo.torch": {"torch", "numpy"},
    "backends.demo.tensorflow": {"tensorflow", "numpy"},
    "backends.demo.paddle": {"paddle", "numpy"},
    "backends.demo.jax": {"jax", "numpy"},
}


def sources() -> dict[str, Path]:
    """The installed modules by name without ``gradclip.``, found without importing a backend: ``rglob`` follows no link."""
    found = {}
    for package in ("gradclip", "gradclip.backends"):
        spec = util.find_spec(package)
        assert spec is not None
        for folder in spec.submodule_search_locations or ():
            for path in (*Path(folder).rglob("*.py"), *Path(folder).rglob("*.pyi")):
                name = ".".join((package, *path.relative_to(folder).with_suffix("").parts))
                found[name.removeprefix("gradclip.")] = path
    return found


SOURCES = sources()


def imported(source: str) -> Iterator[str]:
    """Every module that a source names in an import, inside functions too; a relative one as ``.``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield "."
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}".removeprefix("gradclip.")
                is_module = inner in SOURCES or f"{inner}.__init__" in SOURCES
                yield f"gradclip.{inner}" if is_module else node.module


def _are_of_one_framework(module: str, other: str) -> bool:
    """Whether two modules of ``backends`` are in one framework's folder, or are the folder itself."""
    _, folder, *_ = module.split(".")
    return folder not in ("demo", "targets") and other.split(".")[1] == folder


def may_import(module: str, target: str) -> bool:
    """Whether ``module``, named without ``gradclip.``, may import ``target``."""
    root, _, inner = target.partition(".")
    if root != "gradclip":
        packages = (module, module.rpartition(".")[0], module.rpartition(".")[0].rpartition(".")[0])
        return root in sys.stdlib_module_names or any(root in THIRD_PARTY.get(package, set()) for package in packages)
    room, target_room = module.partition(".")[0], inner.partition(".")[0] or "__init__"
    if room == "backends":
        if target_room == "backends":  # what is no framework's, and what is too long for one file; never another framework's
            return (
                inner in SHARED
                or inner.startswith(f"{module.partition('_')[0]}_")
                or _are_of_one_framework(module, inner)
                or (module.startswith("backends.demo.") and inner in DEMO_SHARED)
            )
        if module.startswith("backends.targets."):
            return target_room in {CONFORMANCE, *PUBLIC}
        return target_room in CORE or (module.startswith("backends.demo.") and inner == CHILDREN)
    if target_room == "backends" or module == CHILDREN:
        return False
    if room in COMMANDS:
        return target_room in {"commands", MIGRATE, CONFORMANCE, *CORE}
    if room == MIGRATE:
        return target_room == MIGRATE or target_room in CORE
    if room == CONFORMANCE:
        return target_room in {CONFORMANCE, *PUBLIC} or inner == CHILDREN
    return target_room in CORE[room] or (room == target_room and "." in module)


def violations(module: str, source: str) -> list[str]:
    return [target for target in imported(source) if not may_import(module, target)]


@pytest.mark.parametrize("module", SOURCES)
def test_a_module_imports_only_what_it_may(module: str) -> None:
    room = module.partition(".")[0]
    assert room in {*CORE, *COMMANDS, "backends", MIGRATE, CONFORMANCE}, f"say in this file what {module} may import"
    assert violations(module, SOURCES[module].read_text(encoding="utf-8")) == []


def test_the_modules_are_found() -> None:
    assert {"__init__", "errors", "clip", "dialects.torch", "dropins.torch", "backends.numpy"} <= SOURCES.keys()
    assert len({path.resolve() for path in SOURCES.values()}) == len(SOURCES), "a source is read twice"


@pytest.mark.parametrize(
    ("module", "source", "target"),
    [
        ("errors", "from gradclip.backend import Backend", "gradclip.backend"),
        ("registry", "from gradclip.clip import clip", "gradclip.clip"),
        ("rule", "from gradclip import norms", "gradclip.norms"),
        ("clip", "import gradclip", "gradclip"),
        ("clip", "from gradclip import clip_", "gradclip"),
        ("conformance.engine", "from gradclip import norms", "gradclip.norms"),
        ("conformance.engine", "import numpy", "numpy"),
        ("conformance.plugin", "import rich", "rich"),
        ("conformance.adapted", "import gradclip.backends.numpy", "gradclip.backends.numpy"),
        ("dialects.torch", "import gradclip.conformance", "gradclip.conformance"),
        ("backends.targets.torch", "import numpy", "numpy"),
        ("backends.targets.torch", "from gradclip.backends.targets import jax", "gradclip.backends.targets.jax"),
        ("clip", "def f():\n    import torch.nn", "torch.nn"),
        ("clip", "from numpy import ndarray", "numpy"),
        ("registry", "from gradclip.backends.numpy import NumpyBackend", "gradclip.backends.numpy"),
        ("commands.cli", "import gradclip.backends.torch", "gradclip.backends.torch"),
        ("dialects.torch", "from gradclip.clip import clip", "gradclip.clip"),
        ("dialects.torch", "from . import keras", "."),
        ("dropins.torch", "from gradclip.commands.demo import run", "gradclip.commands.demo"),
        ("backends.torch", "import tensorflow as tf", "tensorflow"),
        ("backends.torch", "from gradclip.backends import numpy", "gradclip.backends.numpy"),
        ("backends.torch", "from gradclip.backends.numpy import NumpyBackend", "gradclip.backends.numpy"),
        ("backends.torch", "from gradclip.commands import cli", "gradclip.commands.cli"),
        ("clip", "from gradclip.migrate.model import Options", "gradclip.migrate.model"),
        ("migrate.codemod.calls", "import gradclip.backends.jax", "gradclip.backends.jax"),
        ("migrate.codemod.traps.keras", "import keras", "keras"),
        ("migrate.apis.torch", "import libcst", "libcst"),
        ("migrate.runner", "from gradclip.commands.cli import main", "gradclip.commands.cli"),
        ("migrate.runner", "from gradclip.commands import children", "gradclip.commands.children"),
        ("conformance.processes", "from gradclip.commands import demo", "gradclip.commands.demo"),
        ("commands.children", "from gradclip.commands import cli", "gradclip.commands.cli"),
        ("commands.children", "import gradclip", "gradclip"),
        ("backends.demo.base", "from gradclip.commands import demo", "gradclip.commands.demo"),
        ("backends.torch", "from gradclip.commands import children", "gradclip.commands.children"),
        ("backends.demo.torch", "from gradclip.backends.demo.jax import trainer", "gradclip.backends.demo.jax"),
    ],
)
def test_a_forbidden_import_is_found(module: str, source: str, target: str) -> None:
    assert violations(module, source) == [target]
