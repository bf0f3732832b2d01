"""The table ``[tool.gradclip.lint]`` of a ``pyproject.toml``."""

from __future__ import annotations

import os
import tomllib
from itertools import repeat
from typing import Any

from gradclip.source.files import harmless

__all__ = ["ConfigurationError", "configuration"]

_LONG = 200  #: characters of a problem that an error shows
_LARGEST = 1 << 20  #: bytes of a pyproject.toml
_DOTS = 1000  #: in a line: tomllib takes time like the square of a key's length


class ConfigurationError(ValueError):
    """A table in ``pyproject.toml`` with invalid content."""


def configuration(folder: str) -> dict[str, list[str]]:
    """The table ``[tool.gradclip.lint]`` of the nearest ``pyproject.toml`` at or above a folder.

    Raises:
        ConfigurationError: if the table cannot be read, or has keys other than ``select``, ``ignore`` and ``exclude``.
    """
    table: Any = _settings(folder)
    for name in ("tool", "gradclip", "lint"):
        table = table.get(name, {})
        if not isinstance(table, dict):
            raise ConfigurationError(f"{name} is not a table, in [tool.gradclip.lint] of pyproject.toml")
    for key, value in table.items():
        if key not in ("select", "ignore", "exclude"):
            raise ConfigurationError(f"[tool.gradclip.lint] has no key {harmless(key)[:_LONG]}")
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise ConfigurationError(f"{key} of [tool.gradclip.lint] is not a list of strings")
    return {key: list(value) for key, value in table.items()}


def _settings(folder: str) -> dict[str, Any]:
    """The nearest ``pyproject.toml`` at or above a folder; an empty one if there is none."""
    folder = os.path.abspath(folder)
    while not os.path.lexists(path := os.path.join(folder, "pyproject.toml")):
        above = os.path.dirname(folder)
        if above == folder:
            return {}
        folder = above
    try:
        return tomllib.loads(_content(path))
    except RecursionError:
        problem = "nested too deeply"
    except (OSError, ValueError) as error:  # also numbers of more than 4300 digits
        problem = str(error).partition(";")[0]
    raise ConfigurationError(f"{harmless(path)} cannot be read: {problem[:_LONG]}")


def _content(path: str) -> str:
    if not os.path.isfile(path):  # a pipe would wait for a writer
        raise ValueError("it is not a file")
    with open(path, "rb") as file:
        raw = file.read(_LARGEST + 1)
    if len(raw) > _LARGEST:
        raise ValueError(f"it is larger than {_LARGEST >> 20} MiB")
    if max(map(bytes.count, raw.splitlines(), repeat(b".")), default=0) > _DOTS:
        raise RecursionError
    return raw.decode("utf-8").replace("\r\n", "\n")
