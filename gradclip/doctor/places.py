"""The line of the user's code that called something: the innermost frame outside of installed packages and gradclip."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from types import FrameType

__all__ = ["NOWHERE", "SOURCES", "Place", "is_user", "place"]

_GRADCLIP = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_BACKENDS = os.path.realpath(os.path.join(_GRADCLIP, "backends")) + os.sep
_LIBRARIES = {os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's code, and the library through which it did something."""

    file: str
    line: int
    through: str = ""  #: the top-level module between this line and the framework: "transformers"
    framework: str = field(default="", compare=False)  #: whose function it called

    def __str__(self) -> str:
        if not self.file:
            return "an unknown line"
        return f"{os.path.basename(self.file)}:{self.line}" + (f", in {self.through}" if self.through else "")


NOWHERE = Place("", 0)

_GENERATED = "__autograph_generated_file"  #: a file that a compiler has written from the user's source
#: from a frame in such a file: the line of the user's source; of the frameworks that write them
SOURCES: list[Callable[[FrameType], tuple[str, int] | None]] = []


@lru_cache(maxsize=4096)
def is_user(file: str) -> bool:
    """Whether a file is the user's: not the standard library's, an installed package's or gradclip's."""
    if _GENERATED in file:
        return False
    if file.startswith("<"):
        return file.startswith(("<stdin", "<ipython"))
    path = os.path.realpath(file)
    if path.startswith((_GRADCLIP, _BACKENDS)) or any(part in path for part in _INSTALLED):
        return False
    return not any(path.startswith(library) for library in _LIBRARIES)


def place(framework: str) -> Place:
    """The line of the user's code that is running; the framework's own frames are not worth a mention."""
    frame: FrameType | None = sys._getframe(1)
    through, called = "", "jax" if framework == "optax" else framework
    while frame is not None and not is_user(frame.f_code.co_filename):
        if _GENERATED in frame.f_code.co_filename:
            source = next(filter(None, (of(frame) for of in SOURCES)), None)
            if source is not None and is_user(source[0]):
                return Place(*source, through, called)
        root = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if root not in (framework, "keras", "gradclip", "contextlib", "functools", "threading", "") and any(
            part in frame.f_code.co_filename for part in _INSTALLED
        ):
            through = root
        frame = frame.f_back
    return NOWHERE if frame is None else Place(frame.f_code.co_filename, frame.f_lineno, through, called)
