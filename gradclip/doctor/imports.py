"""Starts the watch of a framework as soon as the script has imported the framework."""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from gradclip.doctor import own
from gradclip.doctor.guard import Guard
from gradclip.doctor.recorder import EnoughSteps, Recorder

__all__ = ["WATCHES", "start"]

#: a module -> the module with a function ``start(recorder)``
WATCHES = {
    "torch": "gradclip.backends.torch.watch",
    "paddle": "gradclip.backends.paddle.watch",
    "keras": "gradclip.backends.keras.watch",
    "tensorflow": "gradclip.backends.tensorflow.watch",
    "optax": "gradclip.backends.jax.watch",
}


class _Finder:
    """Finds these modules as others do, and calls a function after the first import of each."""

    def __init__(self, guard: Guard, loaded: Callable[[str], None]) -> None:
        self._guard, self._loaded = guard, loaded
        self.find_spec = guard.beside(self._find)  # after a fault the others find the module

    def _find(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        if name not in WATCHES:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        loader: Any = spec and spec.loader
        if loader is not None and hasattr(loader, "exec_module"):
            loader.exec_module = self._guard.around(loader.exec_module, functools.partial(self._executing, name, loader))
        return spec

    def _executing(self, name: str, loader: Any, original: Callable[..., Any]) -> Callable[..., Any]:
        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            original(module)
            self._loaded(name)

        return exec_module


def start(recorder: Recorder) -> None:
    """Watch each framework that is imported, now or later."""

    def load(name: str) -> None:
        if name not in recorder.frameworks:
            if not recorder.frameworks:
                own.start(recorder)
            recorder.frameworks.append(name)
            importlib.import_module(WATCHES[name]).start(recorder)

    loaded = recorder.guard.beside(load)
    finder: Any = _Finder(recorder.guard, loaded)
    sys.meta_path.insert(0, finder)
    recorder.undo(lambda: sys.meta_path.remove(finder))
    if getattr(threading.excepthook, "func", None) is not _silent:
        threading.excepthook = functools.partial(_silent, threading.excepthook)  # it stays: a thread may end after the watch
    for name in WATCHES:
        if name in sys.modules:
            loaded(name)


def _silent(original: Callable[..., Any], thrown: Any) -> Any:
    """A thread that the doctor ends shows no traceback."""
    return None if isinstance(thrown.exc_value, EnoughSteps) else original(thrown)
