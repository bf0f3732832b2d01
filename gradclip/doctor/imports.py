"""Starts the watch of a framework as soon as the script has imported the framework."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib import machinery
from types import ModuleType
from typing import Any

from gradclip.doctor import own
from gradclip.doctor.recorder import Recorder

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

    def __init__(self, loaded: Callable[[str], None]) -> None:
        self.loaded = loaded

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> machinery.ModuleSpec | None:
        if name not in WATCHES:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        loader: Any = spec and spec.loader
        if loader is not None and hasattr(loader, "exec_module"):
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                del loader.exec_module
                execute(module)
                self.loaded(name)

            loader.exec_module = exec_module
        return spec


def start(recorder: Recorder) -> None:
    """Watch each framework that is imported, now or later."""

    def loaded(name: str) -> None:
        if name not in recorder.frameworks:
            if not recorder.frameworks:
                own.start(recorder)
            recorder.frameworks.append(name)
            importlib.import_module(WATCHES[name]).start(recorder)

    finder: Any = _Finder(loaded)
    sys.meta_path.insert(0, finder)
    recorder.undo(lambda: sys.meta_path.remove(finder))
    for name in WATCHES:
        if name in sys.modules:
            loaded(name)
