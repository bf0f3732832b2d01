"""``python tools/public_names.py``: list the public names and their parameters in ``tests/project/public_names.txt``.

Who changes a line of it changes what others depend on: docs/promise.md says how that is announced.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import written

__all__ = ["REFERENCE", "names", "public"]

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "project" / "public_names.txt"
#: a page of the site's reference -> its title and the modules whose public names it has
REFERENCE = {
    "gradclip": ("The public names", ["gradclip"]),
    "limits": ("Limits that follow the run", ["gradclip.limits"]),
    "dialects": ("Dialects", [f"gradclip.dialects.{name}" for name in ("torch", "tensorflow", "keras", "paddle", "optax")]),
    "slots": (
        "Slots",
        [f"gradclip.backends.{name}" for name in ("torch.slot", "paddle.slot", "jax.slot", "keras")],
    ),
    "conformance": ("The conformance suite", ["gradclip.conformance"]),
}


def public(module: str) -> list[str]:
    """The names in a module's ``__all__``, read and not imported: no framework needs to be installed."""
    path = ROOT.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [name for name in ast.literal_eval(node.value) if name[0] != "_"]
    raise ValueError(f"{module} has no __all__.")


def names() -> Iterator[str]:
    """Each public name, with the parameters of what can be called and imported without a framework."""
    for _, modules in REFERENCE.values():
        for module in modules:
            yield from (f"{module}.{name}{_parameters(module, name)}" for name in sorted(public(module)))


def _parameters(module: str, name: str) -> str:
    found = None if ".backends." in module else getattr(importlib.import_module(module), name)
    if not callable(found) or getattr(found, "_is_protocol", False) or isinstance(found, enum.EnumMeta):
        return ""
    parameters = inspect.signature(found).parameters.values()
    bare = [one.replace(annotation=one.empty, default=... if one.default is not one.empty else one.empty) for one in parameters]
    return str(inspect.Signature(bare)).replace("=Ellipsis", "=...")


main = partial(written.main, tool="public_names", make=lambda: "\n".join([*names(), ""]), path=LIST)

if __name__ == "__main__":
    sys.exit(main())
