"""Which modules may import which, and that gradclip imports no framework."""

from __future__ import annotations

import ast
import graphlib
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


MODULES = ["", ".dialects", ".dropins", ".commands.cli", ".backends", ".migrate.codemod", ".source.runner", ".lint"]
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


def test_importing_gradclip_imports_no_framework() -> None:
    """All in one interpreter: it ends with a framework if any of them imports one."""
    assert frameworks_after("\n".join(f"import gradclip{module}" for module in MODULES)) == set()


def test_a_framework_that_is_imported_would_be_seen() -> None:
    assert "numpy" in frameworks_after("import gradclip, numpy")
    assert "numpy" in frameworks_after("import gradclip.backends.numpy")


# ---- the direction of the imports ---------------------------------------------------------------------------------------

# A room -> the rooms below it that it imports. Each row lists exactly its imports, and only rooms above it in this table.
ROOMS: dict[str, set[str]] = {
    "core": set(),
    "dialects": {"core"},
    "dropins": {"core", "dialects"},
    "limits": {"core"},
    "steps": {"core", "limits"},
    "__init__": {"core", "dropins", "limits", "steps"},
    "natives": {"core", "dialects", "dropins"},
    "explain": {"core", "natives"},
    "rounds": set(),
    "source": {"core", "natives", "rounds"},
    "lint": {"core", "source"},
    "migrate": {"core", "dialects", "natives", "source"},
    "doctor": {"core", "rounds", "steps"},
    "conformance": {"__init__", "core", "dialects", "natives"},
    "commands": {
        *("__init__", "__version__", "conformance", "core", "dialects", "doctor", "explain", "lint", "migrate", "natives"),
        *("rounds", "source", "steps"),
    },
    "__main__": {"commands"},
}
# The files of the core that some rooms are content with.
READ = {"errors", "rule", "spelling"}
OF_CORE = {
    "dialects": {"errors", "mistakes", "rule", "spelling", "tracing", "typed"},
    **dict.fromkeys(("explain", "lint", "migrate", "source"), READ),
    "conformance": {"errors", "isolation", "spelling"},
}
# The suite and the demo's trainers use public names, and these of the core.
PUBLIC = {"__init__", "__version__", "dialects", "core.errors"}
OUTSIDE = "conformance"  # it sees gradclip as others do
CHILDREN = "conformance.children"  # processes: it uses nothing of the suite

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
        "lane",
        "memory",
        "mistakes",
        "norms",
        "parts",
        "placed",
        "ranges",
        "reference",
    ),
    *("result", "rule", "scale", "tracing", "versions"),
}
# Slots, and programs of a whole clip, stand on the engine. Only __init__ and the watch of their folder may import them.
ON_TOP = ("slot", "fused", "keras")
# `gradclip doctor` loads these by name. They import the room of the doctor and the catalogue.
WATCH = "watch"
DEMO_SHARED = {f"backends.demo.{name}" for name in ("base", "digits", "story", "training")}
# Third-party packages that a module or package imports; all others import none.
THIRD_PARTY = {
    "source": {"libcst"},
    "source.files": {"pathspec"},
    "commands.demo_alone": {"numpy", "rich"},
    "commands.demo_report": {"rich"},
    "conformance.parametrize": {"pytest"},
    "conformance.plugin": {"pytest"},
    "conformance.progress": {"rich"},
    "conformance.report.html": {"jinja2"},
    "commands.cli": {"argcomplete"},
    "conformance.report.printed": {"rich"},
    "migrate.byhand": {"libcst"},
    "migrate.codemod": {"libcst"},
    "migrate.objections": {"libcst"},
    "steps.monitor.picture": {"matplotlib"},
    "migrate.output": {"rich"},
    **{f"backends.{name}": packages for name, packages in FOLDERS.items()},
    "backends.keras.slot.state": {"keras", "numpy"},
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
    "backends.demo.torch": {"torch"},
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
    inner = inner or "__init__"
    if root != "gradclip":
        names = itertools.accumulate(module.split("."), "{}.{}".format)
        return root in sys.stdlib_module_names or any(root in THIRD_PARTY.get(name, set()) for name in names)
    room, target_room = room_of(module), room_of(inner)
    if room == "backends":
        return _backend_may_import(module, inner, target_room)
    if target_room == "core" and room in OF_CORE:
        return inner.removeprefix("core.") in OF_CORE[room]
    return target_room in {room, *ROOMS[room]} and (module != CHILDREN or inner == "core.isolation")


def room_of(module: str) -> str:
    return module.partition(".")[0] or "__init__"


def _is_in(module: str, kinds: tuple[str, ...]) -> bool:
    """Whether a module of a backend is of a kind: a file or a folder of that name."""
    return module.startswith("backends.") and not set(kinds).isdisjoint(module.split(".")[1:])


def _backend_may_import(module: str, inner: str, target_room: str) -> bool:
    folder, other = module.split(".")[1], inner.partition(".")[2].partition(".")[0]
    if folder == "targets":
        return target_room in {OUTSIDE, "natives"} or inner in PUBLIC or inner == "backends.targets.host"
    if folder == "demo":
        return inner in {CHILDREN, *PUBLIC, *DEMO_SHARED}
    is_watch, is_on_top = _is_in(module, (WATCH,)), _is_in(module, ON_TOP)
    if is_watch and (target_room in {"doctor", "dropins", "natives", "steps"} or inner == "core.registry"):
        return True
    if target_room != "backends":
        return inner.removeprefix("core.") in BELOW or (is_on_top and target_room in {"__version__", "core", "limits", "steps"})
    if _is_in(inner, (WATCH,)):
        return is_watch and folder == other
    if _is_in(inner, ON_TOP):
        is_beside = is_on_top or is_watch or module == f"backends.{folder}.__init__"
        return other in (folder, "host") and is_beside
    return folder == other or (other == "host" and inner != "backends.host._kernels")


def violations(module: str, source: str) -> list[str]:
    """The imports that break the rules."""
    return [x for x in imported(ast.parse(source)) if not may_import(module, x)]


@pytest.mark.parametrize("module", SOURCES)
def test_a_module_imports_only_what_it_may(module: str) -> None:
    assert room_of(module) in {*ROOMS, "backends"}, f"say in this file what {module} may import"
    assert violations(module, SOURCES[module].read_text(encoding="utf-8")) == []


def test_the_modules_are_found() -> None:
    assert {
        "__init__",
        "core.errors",
        "core.clip",
        "dialects.torch",
        "dropins.torch",
        "backends.numpy.__init__",
    } <= SOURCES.keys()
    assert len({path.resolve() for path in SOURCES.values()}) == len(SOURCES), "a source is read twice"
    assert {name.split(".")[1] for name in SOURCES if name.count(".") > 0 and name.startswith("backends.")} == {
        *("__init__", "demo", "targets"),
        *FOLDERS,
    }


def test_a_room_imports_only_rooms_below_it() -> None:
    rooms = list(ROOMS)
    assert {room_of(module) for module in SOURCES} == {*rooms, "backends"}
    for place, (room, row) in enumerate(ROOMS.items()):
        assert row - {"__version__"} <= set(rooms[:place])
        found = {room_of(x.partition(".")[2]) for module in SOURCES if room_of(module) == room for x in of_gradclip(module)}
        assert row == found - {room}, room


def of_gradclip(module: str) -> Iterator[str]:
    return (x for x in imported(ast.parse(SOURCES[module].read_text("utf-8"))) if x.partition(".")[0] == "gradclip")


def test_no_file_imports_itself_in_a_circle() -> None:
    graph = {
        module: {_file_of(x) for x in of_gradclip(module)} - {module} for module in SOURCES if room_of(module) != "backends"
    }
    graphlib.TopologicalSorter(graph).prepare()
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter({**graph, "core.errors": {"core.clip"}}).prepare()


def _file_of(target: str) -> str:
    inner = target.partition(".")[2] or "__init__"
    return inner if inner in SOURCES else f"{inner}.__init__"


@pytest.mark.parametrize("name", THIRD_PARTY)
def test_third_parties_are_used(name: str) -> None:
    of_name = [path.read_text("utf-8") for module, path in SOURCES.items() if f"{module}.".startswith(f"{name}.")]
    assert THIRD_PARTY[name] <= {x.partition(".")[0] for source in of_name for x in imported(ast.parse(source))}


@pytest.mark.parametrize(
    ("module", "source", "target"),
    [
        ("core.clip", "import gradclip", "gradclip"),
        ("core.clip", "from gradclip import clip_", "gradclip"),
        ("conformance.engine", "from gradclip.core import norms", "gradclip.core.norms"),
        ("conformance.engine", "import numpy", "numpy"),
        ("conformance.plugin", "import rich", "rich"),
        ("conformance.adapted", "import gradclip.backends.numpy", "gradclip.backends.numpy"),
        ("dialects.torch", "import gradclip.conformance", "gradclip.conformance"),
        ("backends.targets.torch", "import numpy", "numpy"),
        ("backends.targets.torch", "from gradclip.backends.targets import jax", "gradclip.backends.targets.jax"),
        ("core.clip", "def f():\n    import torch.nn", "torch.nn"),
        ("core.clip", "from numpy import ndarray", "numpy"),
        ("core.registry", "from gradclip.backends.numpy import NumpyBackend", "gradclip.backends.numpy"),
        ("commands.cli", "import gradclip.backends.torch", "gradclip.backends.torch"),
        ("dialects.torch", "from gradclip.core.clip import clip", "gradclip.core.clip"),
        ("dialects.torch", "from . import keras", "."),
        ("dropins.torch", "from gradclip.commands.demo_runs import run", "gradclip.commands.demo_runs"),
        ("backends.torch.__init__", "import tensorflow as tf", "tensorflow"),
        ("backends.torch.lanes", "import numpy as np", "numpy"),
        ("backends.torch.lanes", "from gradclip.backends import numpy", "gradclip.backends.numpy"),
        ("backends.torch.lanes", "from gradclip.backends.numpy import NumpyBackend", "gradclip.backends.numpy"),
        ("backends.torch.lanes", "from gradclip.backends.paddle.lanes import chosen", "gradclip.backends.paddle.lanes"),
        ("backends.torch.lanes", "from gradclip.backends.host import _kernels", "gradclip.backends.host._kernels"),
        ("backends.torch.lanes", "from gradclip.backends.torch.slot import step_pre_hook", "gradclip.backends.torch.slot"),
        ("backends.torch.lanes", "from gradclip.core.engine import run", "gradclip.core.engine"),
        ("backends.torch.__init__", "def f():\n    from gradclip.core.clip import clip", "gradclip.core.clip"),
        ("backends.paddle.__init__", "from gradclip.core.registry import find", "gradclip.core.registry"),
        ("backends.paddle.slot.__init__", "from gradclip.dropins.paddle import ClipGrad", "gradclip.dropins.paddle"),
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
        ("migrate.output", "from gradclip.core.engine import run", "gradclip.core.engine"),
        ("core.mistakes", "from gradclip import dialects", "gradclip.dialects"),
        ("limits.adaptive", "from gradclip.steps.step import Step", "gradclip.steps.step"),
        ("explain.words", "from gradclip.core.engine import run", "gradclip.core.engine"),
        ("backends.torch.lanes", "from gradclip.steps.monitor import Monitor", "gradclip.steps.monitor"),
        ("core.clip", "from gradclip.source.model import Options", "gradclip.source.model"),
        ("migrate.codemod.rewrite", "import gradclip.backends.jax", "gradclip.backends.jax"),
        ("migrate.objections.keras", "import keras", "keras"),
        ("source.runner", "from gradclip.migrate.codemod import migrate_source", "gradclip.migrate.codemod"),
        ("source.codes", "from gradclip.lint import alarms", "gradclip.lint"),
        ("lint.output", "from gradclip.migrate.codemod import migrate_source", "gradclip.migrate.codemod"),
        ("migrate.output", "from gradclip.lint import alarms", "gradclip.lint"),
        ("natives.torch", "import libcst", "libcst"),
        ("natives.torch", "from gradclip.source.model import Options", "gradclip.source.model"),
        ("dialects.torch", "from gradclip.natives import NATIVES", "gradclip.natives"),
        ("source.runner", "from gradclip.commands.cli import main", "gradclip.commands.cli"),
        ("source.runner", "from gradclip.conformance import children", "gradclip.conformance.children"),
        ("conformance.processes", "from gradclip.commands import demo", "gradclip.commands.demo"),
        ("conformance.children", "from gradclip.commands import cli", "gradclip.commands.cli"),
        ("backends.demo.base", "from gradclip.commands import demo", "gradclip.commands.demo"),
        ("backends.torch.slot", "from gradclip.conformance import children", "gradclip.conformance.children"),
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
