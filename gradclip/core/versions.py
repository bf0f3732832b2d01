"""The lowest version of each framework that gradclip works with, and the versions that the tests ran on.

``docs/versions.md`` shows this table, and the extras in ``pyproject.toml`` require its minimums.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gradclip.core.errors import VersionError

__all__ = ["FRAMEWORKS", "Versions", "check_version", "standing"]


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of one framework."""

    title: str  #: its name in a message
    minimum: str  #: the lowest version that gradclip works with
    tested: tuple[str, ...]  #: the versions that the tests ran on, in order


#: top-level module -> its versions
FRAMEWORKS: dict[str, Versions] = {
    "numpy": Versions("NumPy", "1.26", ("1.26.4", "2.4.6", "2.5.5")),
    "torch": Versions("PyTorch", "2.4", ("2.4.1", "2.6.0", "2.10.0", "2.13.0", "2.15.0")),
    "tensorflow": Versions("TensorFlow", "2.16", ("2.16.2", "2.18.1", "2.21.0")),
    "paddle": Versions("PaddlePaddle", "3.0", ("3.0.0", "3.2.2", "3.3.1")),
    "jax": Versions("JAX", "0.4.35", ("0.4.35", "0.5.3", "0.7.2", "0.9.2", "0.10.2", "0.12.0.1")),
    "optax": Versions("optax", "0.2.4", ("0.2.4", "0.2.6", "0.2.8")),
    "keras": Versions("Keras", "3.4", ("3.4.1", "3.6.0", "3.15.1")),
}


def check_version(module: str, version: str) -> None:
    """Refuse a framework below its minimum, before gradclip looks up a name that it lacks.

    Raises:
        ImportError: if the version is below the minimum.
    """
    if standing(module, version) == "below":
        known = FRAMEWORKS[module]
        what = f"gradclip works with {known.title} {known.minimum} and newer."
        raise VersionError(what, f"{module}.__version__={version!r}", f"install {known.title} {known.minimum} or newer.")


def standing(module: str, version: str) -> str:
    """A version compared with those that the tests ran on.

    Returns:
        ``"tested"``, ``"newer"`` than all of them, ``"between"`` two of them or before the first, ``"below"`` the minimum, or
        ``"unknown"`` if the table lacks the framework or the framework has no version.

    >>> standing("torch", "2.3.1+cpu"), standing("torch", "2.4.1"), standing("torch", "99.0"), standing("torch", "main")
    ('below', 'tested', 'newer', 'unknown')
    """
    known, found = FRAMEWORKS.get(module), _release(version)
    if known is None or not any(found):  # Paddle built from its sources says 0.0.0
        return "unknown"
    if found < _release(known.minimum):
        return "below"
    tested = list(map(_release, known.tested))
    if found in tested:
        return "tested"
    return "newer" if found > tested[-1] else "between"


def _release(version: str) -> tuple[int, ...]:
    """The numbers at the start of a version, without the build: (2, 13, 0) for 2.13.0a0+cpu."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, numbers.group().split("."))) if numbers else ()
