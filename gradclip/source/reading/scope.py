"""The names of a module or of a call, and those from other files, which are read when something asks for them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradclip.source.reading.values import Class, Library, Thing, Value

if TYPE_CHECKING:
    import ast

    from gradclip.source.reading.machine import Machine
    from gradclip.source.reading.program import File

__all__ = ["STEPS", "Scope", "Spent", "bind", "loaded", "run"]

STEPS = 1500  #: statements of one way, and of all other files


class Spent(Exception):
    """The way is longer than it may be."""


@dataclass(eq=False, slots=True)
class _Imported(Value):
    """A name from another file: few are ever asked for, so none is read before."""

    file: File = None  # type: ignore[assignment]
    module: str = ""
    name: str = ""  #: in the other file
    before: Value | None = None  #: what the name was before, for a file without it


class Scope:
    """The names of a module or of one call of a function."""

    __slots__ = ("cls", "file", "key", "names", "outer", "owner")

    def __init__(self, file: File, outer: Scope | None = None, key: object = ()) -> None:
        self.names: dict[str, Value] = {}
        self.file, self.outer, self.key = file, outer, key
        self.owner: Value | None = None  #: self
        self.cls: Class | None = None  #: the class of the method

    def find(self, name: str, machine: Machine) -> Value | None:
        """The value of a name."""
        scope: Scope | None = self
        while scope is not None:
            if (value := scope.names.get(name)) is not None:
                if type(value) is not _Imported:
                    return value
                del scope.names[name]  # for files that import each other
                if (found := _value(machine, value)) is not None:
                    scope.names[name] = found
                    return found
            scope = scope.outer
        return None


def bind(machine: Machine, node: ast.ImportFrom) -> None:
    """``from module import name``."""
    module = "." * node.level + (node.module or "")
    file, names = machine.scope.file, machine.scope.names
    for alias in node.names:
        name = alias.asname or alias.name
        if alias.name != "*":
            names[name] = _Imported(file=file, module=module, name=alias.name, before=names.get(name))
        elif machine.file.spent < STEPS and (other := file.other(module)) is not None:
            names.update(_other(machine, other).names)


def loaded(machine: Machine, one: Value) -> Value:
    """A value, read from its file if it has been imported."""
    return (_value(machine, one) or Thing((one.name,))) if isinstance(one, _Imported) else one


def _value(machine: Machine, one: _Imported) -> Value | None:
    """What an imported name stands for; what it was before if it is a name of no file that is here."""
    other = one.file.other(one.module)
    found = _other(machine, other).find(one.name, machine) if other is not None else None
    if found is None and not one.module.startswith("."):
        return Library((f"{one.module}.{one.name}",), name=f"{one.module}.{one.name}")
    return found or (_value(machine, one.before) if isinstance(one.before, _Imported) else one.before)


def _other(machine: Machine, file: File) -> Scope:
    """The names of another file: its statements run once for all ways, on a way of their own."""
    if file.path == machine.file.path:
        return machine.main
    scopes: dict[str, Scope] = machine.file.imported
    if file.path not in scopes:
        scopes[file.path] = Scope(file, key=file.path)
        machine.file.spent += run(machine, scopes[file.path], STEPS - machine.file.spent)
    return scopes[file.path]


def run(machine: Machine, scope: Scope, most: int = STEPS) -> int:
    """Run the simple statements of a module, up to a number of them; return how many have run."""
    alone = type(machine)(machine.file, {}, most)
    alone.main, alone.scope = machine.main, scope
    with contextlib.suppress(Spent, RecursionError):
        alone.block(scope.file.simple)
    return most - max(alone.left, 0)
