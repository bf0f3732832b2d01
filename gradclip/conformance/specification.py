"""The command's TARGET: ``gradclip:torch``, ``native:keras@jax``, ``module:object``, ``file.py:object``."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from gradclip.conformance.adapted import gradclip_target, native_target
from gradclip.conformance.calling import parameters_of
from gradclip.conformance.chosen import arrays_of
from gradclip.conformance.function import function_target
from gradclip.conformance.guessed import choice, likeliest
from gradclip.conformance.located import check_name, no_file, no_function
from gradclip.conformance.slots import makes_slot, slot_target
from gradclip.conformance.target import ARRAYS_OF, dialect_of
from gradclip.core.errors import ArgumentError, shown
from gradclip.natives.model import KERAS_BACKENDS

__all__ = ["ARRAYS", "NATIVES", "Specification", "installed"]

ARRAYS = ("numpy", "torch", "tensorflow", "paddle", "jax")  #: frameworks for ``gradclip:``
NATIVES = ("torch", "tensorflow", "paddle", "optax", "keras")


def _nothing() -> None:
    """For what need not be told."""


@dataclass(frozen=True)
class Specification:
    """A parsed TARGET.

    >>> Specification.parse("native:keras@torch")
    Specification(text='native:keras@torch', kind='native', name='keras', on='torch')
    >>> Specification.parse("my/clips.py:clip").kind
    'object'
    """

    text: str
    kind: str  #: "gradclip", "native" or "object"
    name: str  #: the framework; or the module or file
    on: str = ""  #: the backend of Keras; or the object's name

    @classmethod
    def parse(cls, text: str) -> Specification:
        """Parse a TARGET.

        Raises:
            ValueError: for anything else.
        """
        kind, separator, rest = text.partition(":")
        if kind in ("gradclip", "native") and separator:
            name, at, on = rest.partition("@")
            known = ARRAYS if kind == "gradclip" else NATIVES
            if name not in known or (at and (name != "keras" or on not in KERAS_BACKENDS)):
                hint = f"one of {', '.join(f'{kind}:{name}' for name in known)}" + ", native:keras@torch" * (kind == "native")
                raise ArgumentError("There is no target of this name.", repr(text), f"{hint}.")
            return cls(text, kind, name, on)
        name, separator, on = text.rpartition(":")
        if not name or not on:
            hint = "gradclip:FRAMEWORK, native:FRAMEWORK, MODULE:OBJECT or FILE.py:OBJECT."
            raise ArgumentError("This is not a target.", repr(text), hint)
        return cls(text, "object", name, on)

    def check(self) -> None:
        """Check that its file exists, and has the name; nothing is imported.

        Raises:
            ValueError: for a file that does not exist, and for a name that is nowhere in it.
        """
        if self.kind != "object":
            return
        if self.name.endswith(".py") and not Path(self.name).is_file():
            raise no_file(self.name)
        check_name(self.name, self.on)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that its process needs."""
        return {"KERAS_BACKEND": self.on} if self.name == "keras" and self.kind == "native" and self.on else {}

    def load(
        self,
        operation: str | None = None,
        arrays: str | None = None,
        takes: str | None = None,
        in_place: bool | None = None,
        trying: Callable[[], None] | None = _nothing,
    ) -> Any:
        """The target.

        Args:
            operation: for a function: the operation that it claims to be.
            arrays: for a function: the framework of its arrays; if None, its annotations and imports tell.
            takes: one of ``TAKES``, if its first argument does not tell.
            in_place: whether a function clips in place, if a trial call does not tell.
            trying: called before a function is tried; if None, it is not tried.

        Raises:
            ValueError: for a function without an operation, and for one whose file imports several frameworks.
        """
        if self.kind != "object":
            return gradclip_target(self.name) if self.kind == "gradclip" else native_target(self.name)
        found = self.read()
        if isinstance(found, type) and hasattr(found, "run"):
            found = found()
        if hasattr(found, "run") or hasattr(found, "claims") or not callable(found):
            return found
        if operation is None:
            raise choice(self.text, likeliest(self.on.rpartition(".")[2], list(parameters_of(found))))
        own = ARRAYS_OF.get(dialect_of(operation), dialect_of(operation))
        likely = [arrays] if arrays else arrays_of(found, self.text, own)
        if makes_slot(found, operation):
            return slot_target(found, operation, likely[0])
        targets = [
            function_target(found, operation, one, takes=takes, in_place=in_place, tries=trying is not None) for one in likely
        ]
        if trying is not None:
            trying()
        return next((one for one in targets[1:] and targets if not one.error), targets[0])

    def read(self) -> Any:
        """The object. Its module may also be in the current folder, after all installed modules.

        Raises:
            ValueError: for a file, a module or an object that does not exist.
        """
        if self.name.endswith(".py"):
            self.check()
            path = Path(self.name).resolve()
            sys.path.append(str(path.parent))
            other = importlib.util.find_spec(path.stem)
            is_other = other is not None and other.origin != str(path)
            name = f"_{path.stem}_" if is_other else path.stem  # numpy.py must not hide NumPy
            file = importlib.util.spec_from_file_location(name, path)
            assert file is not None
            assert file.loader is not None
            found: Any = importlib.util.module_from_spec(file)
            sys.modules[name] = found
            file.loader.exec_module(found)
        else:
            sys.path.append(os.getcwd())
            try:
                found = importlib.import_module(self.name)
            except ModuleNotFoundError as error:
                if f"{self.name}.".startswith(f"{error.name}."):  # not one that the module imports
                    raise ArgumentError(f"There is no module {str(error.name)[:100]}.", shown(self.text)) from None
                raise
        where = self.name
        for part in self.on.split("."):
            is_method = isinstance(found, type) and inspect.isfunction(inspect.getattr_static(found, part, None))
            owner = self._made(found) if is_method else found
            try:
                found = getattr(owner, part)
            except AttributeError:
                raise no_function(where, part, _functions(owner)) from None
            where = f"{where}:{part}"
        return found

    def _made(self, kind: type) -> Any:
        """An object of a class, for a method of it."""
        try:
            return kind()
        except TypeError as error:
            hint = f"name a method of an object: trainer = {kind.__name__}(...), and trainer.method as the target."
            raise ArgumentError(f"{kind.__name__} cannot be made without arguments.", f"{self.text} ({error})", hint) from error


def _functions(owner: Any) -> list[str]:
    """The functions and classes of a module, or the methods of an object, in its own order."""
    if isinstance(owner, ModuleType):
        found = {key: value for key, value in vars(owner).items() if getattr(value, "__module__", None) == owner.__name__}
    else:
        found = dict(vars(owner if isinstance(owner, type) else type(owner)))
    return [key for key, value in found.items() if callable(value) and not key.startswith("_")]


def installed() -> list[Specification]:
    """gradclip on every installed framework."""
    return [Specification.parse(f"gradclip:{name}") for name in ARRAYS if importlib.util.find_spec(name) is not None]
