"""Puts gradclip in the place of the natives, as soon as a framework is imported."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from gradclip.natives import NATIVES, Applied, Native
from gradclip.natives.targets import Target, targets
from replaced.compare import FOLDER, Table, outcome

__all__ = ["KITS", "REPLACED", "replace", "start"]

#: a module -> the module with a class ``Kit``, which replaces its natives
KITS = {
    "torch": "replaced.on_torch",
    "optax": "replaced.on_jax",
    "tensorflow": "replaced.on_tensorflow",
    "keras": "replaced.on_keras",
    "paddle": "replaced.on_paddle",
}
_CALLS = frozenset({Applied.PARAMETERS, Applied.TENSOR, Applied.TENSORS, Applied.NORM, Applied.CHAIN, Applied.SLOT})

#: a native that one call, one link or one object of gradclip replaces -> that
REPLACED: dict[Native, Target] = {
    native: ours
    for native in NATIVES
    if native.applied in _CALLS and (ours := targets(native).get("gradclip")) and not (ours.by_hand or ours.arguments)
}


def start() -> None:
    """Replace the natives of each framework that is imported, now or later."""
    table = Table(Path(os.environ[FOLDER]))
    finder: Any = _Finder(table)
    sys.meta_path.insert(0, finder)
    for name in KITS.keys() & sys.modules.keys():
        replace(name, table)


class _Finder:
    """Finds these modules as others do, and replaces natives after the first import of each."""

    def __init__(self, table: Table) -> None:
        self._table, self._waited = table, set(KITS) - sys.modules.keys()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        if name not in self._waited:
            return None
        self._waited.remove(name)  # the other finders find it
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._waited.add(name)  # who asks for the spec may import nothing, as transformers
        loader: Any = spec and spec.loader
        if loader is not None:
            loader.exec_module = functools.partial(self._run, name, loader.exec_module)
        return spec

    def _run(self, name: str, execute: Callable[[ModuleType], None], module: ModuleType) -> None:
        self._waited.discard(name)
        execute(module)
        replace(name, self._table)


def replace(framework: str, table: Table) -> None:
    """Replace the natives of a framework wherever a module has bound one."""
    kit = importlib.import_module(KITS[framework]).Kit(table)
    for native, ours in REPLACED.items():
        if native.framework != framework:
            continue
        for original in {id(x): x for x in map(_resolved, native.names) if x is not None}.values():
            if native.applied is Applied.SLOT:
                method(kit, native, original, "__call__", functools.partial(_alike, native, imported(ours.name)))
            else:
                make = _link if native.applied is Applied.CHAIN else _call
                put(original, make(kit, native, original, ours))
    for native, owner, name, alike in getattr(kit, "methods", ()):
        method(kit, native, owner, name, alike)


def put(original: Any, other: Any) -> None:
    """Bind another function to each name that a module has for one."""
    for module in list(sys.modules.values()):
        for name in [name for name, value in getattr(module, "__dict__", {}).items() if value is original]:
            setattr(module, name, other)


def _resolved(name: str) -> Any:
    """The native of a qualified name; None if this version has none."""
    module, _, last = name.rpartition(".")
    return getattr(sys.modules.get(module), last, None)


def imported(name: str) -> Any:
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def _call(kit: Any, native: Native, original: Callable[..., Any], target: Target) -> Callable[..., Any]:
    """A call that runs gradclip's function on what the program passes, and the native on copies."""
    ours, first = imported(target.name), next(iter(native.signature.parameters))

    @functools.wraps(original)
    def run(*args: Any, **options: Any) -> Any:
        if kit.table.is_inside:
            return original(*args, **options)
        given, rest = (args[0], args[1:]) if args else (options.pop(first), ())
        return compared(kit, native, (original, ours), given, rest, options)

    return run


def method(kit: Any, native: Native, owner: type, name: str, alike: Callable[[Any], Callable[..., Any] | None]) -> None:
    """Compare a method of the native's own class with what ``alike`` makes of an object: None if it does not clip."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def run(self: Any, given: Any) -> Any:
        ours = None if kit.table.is_inside else alike(self)
        own = functools.partial(original, self)
        return own(given) if ours is None else compared(kit, native, (own, ours), given, (), {})

    setattr(owner, name, run)


def _alike(native: Native, ours: Callable[..., Any], clip: Any) -> Any:
    """gradclip's object with the arguments of the native's."""
    return ours(**{name: getattr(clip, name) for name in native.signature.parameters})


def compared(
    kit: Any,
    native: Native,
    functions: tuple[Callable[..., Any], Callable[..., Any]],
    given: Any,
    rest: Sequence[Any],
    options: Mapping[str, Any],
) -> Any:
    """gradclip's result, compared with the native's on copies; ``functions`` are the native and gradclip's."""
    original, ours = functions
    if kit.is_tracing():
        return kit.traced(native, functions, given, rest, options)
    tensors, made = kit.listed(given, native), []

    def call() -> tuple[Any, Sequence[Any]]:
        made.append(ours(_again(given, tensors), *rest, **options))
        norm, grads = kit.outcome(native, made[0], tensors)
        return norm, grads

    grads = kit.grads(tensors, native)
    if grads is None:
        kit.table.skip(native.names[0])
        return original(_again(given, tensors), *rest, **options)
    with kit.table.inside():
        copied = (kit.copies(grads, rest, options, is_wide=is_wide) for is_wide in (False, True))
        native_one, exact = (outcome(functools.partial(kit.results, native, original, *one), kit.read) for one in copied)
        mine = outcome(call, kit.read)
        kit.table.note(native.names[0], mine, native_one, exact, f"{rest} {options}")
    if mine.error is not None:
        raise mine.error
    return made[0]


def _again(given: Any, tensors: list[Any]) -> Any:
    """What the program passed; an iterator begins anew, and a generator stays one."""
    if inspect.isgenerator(given):
        return (x for x in tensors)
    return iter(tensors) if isinstance(given, Iterator) else given


def _link(kit: Any, native: Native, original: Callable[..., Any], target: Target) -> Callable[..., Any]:
    """A function of optax whose link updates by gradclip's, and by the native beside it."""
    dialect = imported(target.name)

    @functools.wraps(original)
    def make(*args: Any, **options: Any) -> Any:
        if kit.table.is_inside:
            return original(*args, **options)
        wrapper = imported(target.wrapper)
        link = original(*args, **options)
        return kit.both(native, original, (args, options), link, wrapper(dialect(*args, **options)))

    return make
