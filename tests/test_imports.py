"""Which modules may import which, and that gradclip imports no framework."""

from __future__ import annotations

import ast
import inspect
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from launched import TIME_LIMIT
from sources import SOURCES

import gradclip

FRAMEWORKS = ("numpy", "ml_dtypes", "torch", "tensorflow", "paddle", "jax", "jaxlib", "optax", "keras")


# ---- no framework is imported -------------------------------------------------------------------------------------------


def frameworks_after(code: str) -> set[str]:
    """Return the frameworks that a new interpreter has imported after some code."""
    code += "\nimport sys; print(*(name.partition('.')[0] for name in sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=TIME_LIMIT)
    return set(done.stdout.split()) & set(FRAMEWORKS)


MODULES = ["", ".dialects", ".dropins", ".commands.cli", ".backends", ".migrate.codemod", ".code.runner", ".lint"]
MODULES += [
    ".doctor.imports",
    ".doctor.report",
    ".natives",
    ".natives.targets",
    ".conformance",
    ".conformance.engine",
    ".conformance.plugin",
    ".conformance.report",
]


@pytest.mark.parametrize("module", [f"gradclip{module}" for module in MODULES])
def test_importing_gradclip_imports_no_framework(module: str) -> None:
    assert frameworks_after(f"import {module}") == set()


def test_a_framework_that_is_imported_would_be_seen() -> None:
    assert "numpy" in frameworks_after("import gradclip, numpy")
    assert "numpy" in frameworks_after("import gradclip.backends.numpy")


# ---- the direction of the imports ---------------------------------------------------------------------------------------

# The core modules that each core module imports: only ones above it in this table, so that there is no cycle.
CORE: dict[str, set[str]] = {
    "isolation": set(),
    "errors": set(),
    "dtypes": set(),
    "tracing": set(),
    "parts": set(),
    "containers": {"errors"},
    "reprs": set(),
    "lane": set(),
    "versions": {"errors"},
    "spelling": {"errors"},
    "rule": {"errors", "reprs"},
    "memory": {"errors"},
    "backend": {"containers", "errors", "lane", "memory", "parts"},
    "registry": {"backend", "dtypes", "errors", "tracing"},
    "scale": {"backend", "dtypes", "rule"},
    "ranges": {"backend", "dtypes"},
    "norms": {"backend", "dtypes", "errors", "ranges", "rule"},
    "reference": {"backend", "dtypes", "lane", "norms", "scale"},
    "typed": set(),
    "slotted": set(),
    "dialects": {"errors", "rule", "spelling", "tracing", "typed"},
    "mistakes": {"backend", "dialects", "errors", "rule", "spelling"},
    "gradients": {"backend", "containers", "errors", "lane", "mistakes", "registry", "tracing"},
    "names": {"tracing"},
    "groups": {"containers", "errors", "gradients", "mistakes", "names", "registry", "rule"},
    "check": {"backend", "dtypes", "errors", "gradients", "norms", "registry", "rule"},
    "returned": {"typed"},
    "result": {"dtypes", "gradients", "lane", "reprs"},
    "measure": {"backend", "dtypes", "gradients", "norms", "rule"},
    "coefficient": {"backend", "dtypes", "gradients", "norms", "registry", "rule"},
    "warning": {"errors", "gradients", "tracing"},
    "sharding": {
        *("backend", "check", "dtypes", "errors", "gradients", "groups", "measure", "norms", "parts", "registry", "rule"),
        *("tracing", "warning"),
    },
    "monitor": {
        *("backend", "containers", "dtypes", "errors", "gradients", "groups", "registry", "result", "rule", "scale"),
        *("sharding", "tracing", "typed"),
    },
    "limits": {"backend", "dtypes", "errors", "monitor", "registry", "rule"},
    "advice": {"errors", "monitor"},
    "policies": {"backend", "dtypes", "errors", "gradients", "groups", "lane", "registry", "rule", "scale"},
    "engine": {
        *("backend", "check", "coefficient", "dtypes", "errors", "gradients", "groups", "lane", "measure", "memory"),
        *("mistakes", "norms", "policies", "registry", "result", "rule", "scale", "sharding", "tracing", "warning"),
    },
    "clip": {"engine", "gradients", "groups", "result", "rule", "tracing", "typed"},
    "dropins": {
        *("check", "containers", "dialects", "dtypes", "engine", "errors", "gradients", "groups", "lane", "registry"),
        *("result", "rule", "tracing", "typed"),
    },
    "step": {
        *("backend", "clip", "engine", "errors", "gradients", "groups", "limits", "mistakes", "monitor", "registry"),
        *("policies", "result", "rule", "sharding", "tracing", "typed"),
    },
    "slot": {"errors", "groups", "limits", "monitor", "policies", "result", "sharding", "step"},
    "__init__": {
        *("advice", "backend", "clip", "dropins", "groups", "isolation", "limits", "monitor", "registry"),
        *("result", "rule", "spelling", "step"),
    },
    "doctor": {"advice", "engine", "errors", "gradients", "groups", "monitor", "rule"},
}
# The catalogue of natives and these three use dialects and rules as data. The conformance suite uses public names and the
# catalogue, the demo's trainers public names. No module imports the command line, but ``children``, which
# imports only ``isolation``.
MIGRATE, CONFORMANCE, COMMANDS, CHILDREN = "migrate", "conformance", {"commands", "__main__"}, "commands.children"
PUBLIC = {"__init__", "dialects", "errors"}
ROOMS: dict[str, set[str]] = {
    "natives": {"clip", "coefficient", "dialects", "dropins", "errors", "norms", "rule", "spelling"},
    "explain": {"errors", "natives", "rule", "spelling"},
    "code": {"errors", "natives"},
    "lint": {"code", "errors"},
    MIGRATE: {"code", "dialects", "errors", "natives"},
    CONFORMANCE: {*PUBLIC, "natives", "spelling"},
    "commands": {
        *("__init__", "__version__", "backend", "advice", "dialects", "dtypes", "errors", "versions", "isolation", "registry"),
        "monitor",
        "rule",
        "spelling",
    },
}

# ---- the backends ---------------------------------------------------------------------------------------------------------

# A framework's folder -> the packages that it may import. It imports no other folder, and only the core below the engine.
FOLDERS = {
    "host": {"numpy"},
    "numpy": {"numpy", "ml_dtypes"},
    "torch": {"torch"},
    "tensorflow": {"tensorflow", "numpy"},
    "paddle": {"paddle", "numpy"},
    "jax": {"jax", "optax", "numpy"},
    "keras": {"keras", "tensorflow", "jax"},
}
BELOW = {
    *(
        "backend",
        "containers",
        "dtypes",
        "errors",
        "versions",
        "lane",
        "memory",
        "mistakes",
        "norms",
        "parts",
        "ranges",
        "reference",
        "result",
        "rule",
    ),
    *("scale", "tracing"),
}
# Slots, and programs of a whole clip, depend on the engine. Only __init__ and the watch of their folder may import them.
ON_TOP = {
    "backends.torch.closures",
    "backends.torch.clipped",
    "backends.host.fused",
    "backends.torch.few",
    "backends.torch.step",
    *(f"backends.keras.{name}" for name in ("__init__", "check", "log", "saving", "skipping", "state")),
    *(
        "backends.paddle.clipped",
        "backends.paddle.slot",
        "backends.paddle.kept",
        "backends.jax.slot",
        "backends.jax.fused",
    ),
}
ABOVE = {
    "__version__",
    "clip",
    "coefficient",
    "engine",
    "gradients",
    "groups",
    "limits",
    "monitor",
    "policies",
    "registry",
    "slot",
    "step",
}
# What `gradclip doctor` loads by name, in files of these first letters. It imports the room of the doctor and the catalogue.
WATCH = "watch"
DEMO_SHARED = {f"backends.demo.{name}" for name in ("base", "digits", "story", "training")}
# Third-party packages that a module or package imports; all others import none.
THIRD_PARTY = {
    "code": {"libcst"},
    "code.files": {"pathspec"},
    "commands.demo_alone": {"numpy", "rich"},
    "commands.demo_report": {"rich"},
    "conformance.parametrize": {"pytest"},
    "conformance.plugin": {"pytest"},
    "conformance.progress": {"rich"},
    "conformance.report.html": {"jinja2"},
    "commands.cli": {"argcomplete"},
    "conformance.report.text": {"rich"},
    "migrate.byhand": {"libcst"},
    "migrate.codemod": {"libcst"},
    "migrate.objections": {"libcst"},
    "dropins.paddle": {"paddle"},  # for type checkers
    "monitor.picture": {"matplotlib"},
    "migrate.output": {"rich"},
    **{f"backends.{name}": packages for name, packages in FOLDERS.items()},
    "backends.keras.state": {"keras", "numpy"},
    "backends.keras.watch": {"numpy"},
    "backends.targets.host": {"numpy", "ml_dtypes"},
    "backends.targets.jax": {"jax", "optax"},
    "backends.targets.keras": {"keras"},
    "backends.targets.numpy": {"numpy"},
    "backends.targets.paddle": {"paddle"},
    "backends.targets.tensorflow": {"tensorflow"},
    "backends.targets.torch": {"torch"},
    "backends.targets.torch_ranks": {"torch"},
    "backends.demo.base": {"numpy"},
    "backends.demo.digits": {"numpy"},
    "backends.demo.numpy": {"numpy"},
    "backends.demo.story": {"numpy"},
    "backends.demo.torch": {"torch", "numpy"},
    "backends.demo.tensorflow": {"tensorflow", "numpy"},
    "backends.demo.paddle": {"paddle", "numpy"},
    "backends.demo.jax": {"jax", "numpy"},
}


def imported(tree: ast.AST) -> Iterator[str]:
    """Return every module that a source imports, inside functions too; a relative one as ``.``.

    A block for type checkers may import anything: it never runs.
    """
    blocks = [x for x in ast.walk(tree) if isinstance(x, ast.If) and ast.unparse(x.test) == "TYPE_CHECKING"]
    for_checkers = {id(x) for block in blocks for one in block.body for x in ast.walk(one)}
    for node in ast.walk(tree):
        if id(node) in for_checkers:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield "."
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}".removeprefix("gradclip.")
                is_module = inner in SOURCES or f"{inner}.__init__" in SOURCES or inner == "__version__"
                yield f"gradclip.{inner}" if is_module else node.module


def may_import(module: str, target: str) -> bool:
    """Whether ``module``, named without ``gradclip.``, may import ``target``."""
    root, _, inner = target.partition(".")
    if root != "gradclip":
        names = itertools.accumulate(module.split("."), "{}.{}".format)
        return root in sys.stdlib_module_names or any(root in THIRD_PARTY.get(name, set()) for name in names)
    room, target_room = module.partition(".")[0], inner.partition(".")[0] or "__init__"
    if room == "backends":
        return _backend_may_import(module, inner, target_room)
    if target_room == "backends" or module == CHILDREN:
        return module == CHILDREN and inner == "isolation"
    if room in COMMANDS:
        known = {"commands", "doctor", "explain", "natives", "code", "lint", MIGRATE, CONFORMANCE}
        return target_room in known | ROOMS["commands"]
    if room in ROOMS:
        return target_room in {room, *ROOMS[room]} or (room == CONFORMANCE and inner == CHILDREN)
    return target_room in CORE[room] or (room == target_room and "." in module)


def _is_watch(module: str) -> bool:
    return module.rpartition(".")[2].startswith(WATCH)


def _backend_may_import(module: str, inner: str, target_room: str) -> bool:
    folder, other = module.split(".")[1], inner.partition(".")[2].partition(".")[0]
    if folder == "targets":
        return target_room in {CONFORMANCE, "natives", *PUBLIC} or inner == "backends.targets.host"
    if folder == "demo":
        return target_room in PUBLIC or inner in {CHILDREN, *DEMO_SHARED}
    if _is_watch(module) and target_room in {"doctor", "dropins", "natives", "registry"}:
        return True
    if target_room != "backends":
        return target_room in BELOW or (module in ON_TOP and target_room in ABOVE)
    if _is_watch(inner):
        return _is_watch(module) and folder == other
    if inner in ON_TOP:
        return other in (folder, "host") and (module in {*ON_TOP, f"backends.{folder}.__init__", f"backends.{folder}.{WATCH}"})
    return folder == other or (other == "host" and inner != "backends.host._kernels")


def violations(module: str, source: str) -> list[str]:
    """The imports that break the rules."""
    return [x for x in imported(ast.parse(source)) if not may_import(module, x)]


@pytest.mark.parametrize("module", SOURCES)
def test_a_module_imports_only_what_it_may(module: str) -> None:
    room = module.partition(".")[0]
    assert room in {*CORE, *COMMANDS, *ROOMS, "backends"}, f"say in this file what {module} may import"
    assert violations(module, SOURCES[module].read_text(encoding="utf-8")) == []


def test_the_modules_are_found() -> None:
    assert {"__init__", "errors", "clip", "dialects.torch", "dropins.torch", "backends.numpy.__init__"} <= SOURCES.keys()
    assert len({path.resolve() for path in SOURCES.values()}) == len(SOURCES), "a source is read twice"
    assert SOURCES.keys() >= ON_TOP
    assert {name.split(".")[1] for name in SOURCES if name.count(".") > 0 and name.startswith("backends.")} == {
        *("__init__", "demo", "targets"),
        *FOLDERS,
    }


def test_nothing_goes_round() -> None:
    """Each module of the core imports only modules above it in the table, and its row lists exactly its imports."""
    rooms = list(CORE)
    for place, (room, row) in enumerate(CORE.items()):
        assert row <= set(rooms[:place])
        of_room = [ast.parse(path.read_text("utf-8")) for name, path in SOURCES.items() if name.partition(".")[0] == room]
        found = {x.split(".")[1] for tree in of_room for x in imported(tree) if x.startswith("gradclip.")}
        assert row == found - {room}, room


@pytest.mark.parametrize("name", THIRD_PARTY)
def test_third_parties_are_used(name: str) -> None:
    of_name = [path.read_text("utf-8") for module, path in SOURCES.items() if f"{module}.".startswith(f"{name}.")]
    assert THIRD_PARTY[name] <= {x.partition(".")[0] for source in of_name for x in imported(ast.parse(source))}


@pytest.mark.parametrize(
    ("module", "source", "target"),
    [
        ("errors", "from gradclip.core.backend import Backend", "gradclip.core.backend"),
        ("registry", "from gradclip.core.clip import clip", "gradclip.clip"),
        ("rule", "from gradclip import norms", "gradclip.core.norms"),
        ("clip", "import gradclip", "gradclip"),
        ("clip", "from gradclip import clip_", "gradclip"),
        ("conformance.engine", "from gradclip import norms", "gradclip.core.norms"),
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
        ("dialects.torch", "from gradclip.core.clip import clip", "gradclip.clip"),
        ("dialects.torch", "from . import keras", "."),
        ("dropins.torch", "from gradclip.commands.demo import run", "gradclip.commands.demo"),
        ("backends.torch.__init__", "import tensorflow as tf", "tensorflow"),
        ("backends.torch.lanes", "import numpy as np", "numpy"),
        ("backends.torch.lanes", "from gradclip.backends import numpy", "gradclip.backends.numpy"),
        ("backends.torch.lanes", "from gradclip.backends.numpy import NumpyBackend", "gradclip.backends.numpy"),
        ("backends.torch.lanes", "from gradclip.backends.paddle.lanes import chosen", "gradclip.backends.paddle.lanes"),
        ("backends.torch.lanes", "from gradclip.backends.host import _kernels", "gradclip.backends.host._kernels"),
        ("backends.torch.lanes", "from gradclip.backends.torch.slot import step_pre_hook", "gradclip.backends.torch.slot"),
        ("backends.torch.lanes", "from gradclip.core.engine import run", "gradclip.core.engine"),
        ("backends.torch.__init__", "def f():\n    from gradclip.core.clip import clip", "gradclip.clip"),
        ("backends.paddle.__init__", "from gradclip.core.registry import find", "gradclip.core.registry"),
        ("backends.paddle.slot", "from gradclip.dropins.paddle import ClipGrad", "gradclip.dropins.paddle"),
        ("backends.jax.fused", "import gradclip", "gradclip"),
        ("backends.jax.fused", "from gradclip.backends.torch.slot import step_pre_hook", "gradclip.backends.torch.slot"),
        ("backends.host.lane", "from gradclip.backends.torch import versions", "gradclip.backends.torch.versions"),
        (
            "backends.keras.__init__",
            "from gradclip.backends.tensorflow import versions",
            "gradclip.backends.tensorflow.versions",
        ),
        ("backends.torch.__init__", "from gradclip.commands import cli", "gradclip.commands.cli"),
        ("backends.torch.lanes", "from gradclip.doctor import own", "gradclip.doctor.own"),
        ("backends.torch.lanes", "from gradclip.backends.torch import watch", "gradclip.backends.torch.watch"),
        ("doctor.imports", "import torch", "torch"),
        ("lane", "from gradclip.core.backend import Backend", "gradclip.core.backend"),
        ("registry", "if TYPE_CHECKING:\n    from gradclip.core.lane import Lane", "gradclip.core.lane"),
        ("migrate.output", "from gradclip.core.engine import run", "gradclip.core.engine"),
        ("clip", "from gradclip.source.model import Options", "gradclip.source.model"),
        ("migrate.codemod.rewrite", "import gradclip.backends.jax", "gradclip.backends.jax"),
        ("migrate.objections.keras", "import keras", "keras"),
        ("code.runner", "from gradclip.migrate.codemod import migrate_source", "gradclip.migrate.codemod"),
        ("code.codes", "from gradclip.lint import alarms", "gradclip.lint"),
        ("lint.output", "from gradclip.migrate.codemod import migrate_source", "gradclip.migrate.codemod"),
        ("migrate.output", "from gradclip.lint import alarms", "gradclip.lint"),
        ("natives.torch", "import libcst", "libcst"),
        ("natives.torch", "from gradclip.source.model import Options", "gradclip.source.model"),
        ("dialects.torch", "from gradclip.natives import NATIVES", "gradclip.natives"),
        ("code.runner", "from gradclip.commands.cli import main", "gradclip.commands.cli"),
        ("code.runner", "from gradclip.commands import children", "gradclip.commands.children"),
        ("conformance.processes", "from gradclip.commands import demo", "gradclip.commands.demo"),
        ("commands.children", "from gradclip.commands import cli", "gradclip.commands.cli"),
        ("commands.children", "import gradclip", "gradclip"),
        ("backends.demo.base", "from gradclip.commands import demo", "gradclip.commands.demo"),
        ("backends.torch.step", "from gradclip.commands import children", "gradclip.commands.children"),
        ("backends.demo.torch", "from gradclip.core.engine import run", "gradclip.core.engine"),
        ("backends.demo.torch", "from gradclip.backends.demo.jax import trainer", "gradclip.backends.demo.jax"),
    ],
)
def test_a_forbidden_import_is_found(module: str, source: str, target: str) -> None:
    assert violations(module, source) == [target]


def test_the_package_shows_what_is_public() -> None:
    assert dir(gradclip) == sorted(gradclip.__all__)


def test_no_public_function_hides_a_folder() -> None:
    """``import gradclip.choose.record as m`` failed, since ``gradclip.choose`` is a function."""
    folders = {path.name for path in Path(gradclip.__file__).parent.iterdir() if path.is_dir()}
    assert len(folders) > 8
    assert [name for name in gradclip.__all__ if name in folders and not inspect.ismodule(getattr(gradclip, name))] == []
