"""gradclip's public names: what their docstrings say, read from the sources: an import would need the framework."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["Described", "described", "public"]

_ROOT = Path(__file__).parents[1]
_ROLE = re.compile(r":\w+:`~?([^`]+)`|``([^`]+)``")
_SECTION = re.compile(r"(Args|Returns|Raises|Example|Attributes):")
_Defined = ast.FunctionDef | ast.ClassDef | ast.Module


class Described(NamedTuple):
    """What a docstring says of a public name."""

    name: str  #: qualified: "gradclip.clipped"
    does: str
    called: str  #: "gradclip.clipped(optimizer, rule, *, monitor, ...)"; "" for a module
    returns: str
    file: str  #: "gradclip/steps/step.py"


def described(name: str) -> Described | None:
    """What a public name of gradclip is; None for any other name.

    >>> described("gradclip.norm").does
    'The first of two stages: the norm that clip would use, before anything is scaled.'
    """
    for candidate in (name, f"gradclip.{name}"):
        found = _public(candidate)
        if found is not None:
            node, file = found
            text = ast.get_docstring(node) or ""
            shown = file.relative_to(_ROOT.parent).as_posix()
            return Described(candidate, _paragraph(text), _call(candidate, node), _first(_section(text, "Returns")), shown)
    return None


def public() -> list[str]:
    """The names that ``import gradclip`` has."""
    return [f"gradclip.{name}" for name in sorted(_all(_ROOT / "__init__.py"))]


def _public(name: str) -> tuple[_Defined, Path] | None:
    """The definition of a name in the ``__all__`` of its module, or of a module that is in one."""
    if not (name.isascii() and all(part.isidentifier() for part in name.split("."))):
        return None
    module, _, last = name.rpartition(".")
    file = _file(module) if module.partition(".")[0] == "gradclip" else None
    if file is None or last not in _all(file):
        return None
    inner = _file(name)
    return (_tree(inner), inner) if inner is not None else _defined(file, last)


def _file(module: str) -> Path | None:
    """The file of a module; None if there is none."""
    path = _ROOT.joinpath(*module.split(".")[1:])
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _all(file: Path) -> frozenset[str]:
    """The names that a module exports."""
    for node in _tree(file).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return frozenset(ast.literal_eval(node.value))
    return frozenset()


def _defined(file: Path, name: str) -> tuple[_Defined, Path] | None:
    """The function or the class of a name, in a module or where it imports it from; the last one, after overloads."""
    for node in reversed(_tree(file).body):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return node, file
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and ast.unparse(node.targets[0]) == name:
            return _defined(file, node.value.id)
    imports = ((x, alias) for x in ast.walk(_tree(file)) if isinstance(x, ast.ImportFrom) for alias in x.names)
    for statement, alias in imports:
        source = _file(statement.module or "") if (alias.asname or alias.name) == name else None
        if source is not None:
            return _defined(source, alias.name)
    return None


# ---- docstrings ----------------------------------------------------------------------------------------------------------


def _section(text: str, title: str) -> str:
    return text.partition(f"\n{title}:\n")[2]


def _paragraph(text: str) -> str:
    """The first paragraph, on one line, without markup."""
    lines: list[str] = []
    for line in text.splitlines():
        if not line.strip() or _SECTION.fullmatch(line.strip()):
            break
        lines.append(line.strip())
    return _ROLE.sub(lambda found: found[1] or found[2], " ".join(lines))


def _first(text: str) -> str:
    """The first sentence of a paragraph."""
    return re.split(r"(?<=\w[.;])\s", f"{_paragraph(text)} ", maxsplit=1)[0].strip().replace(";", ".")


def _call(name: str, node: _Defined) -> str:
    """A call with the names of all parameters."""
    inner = node.body if isinstance(node, ast.ClassDef) else [node]
    function = next(
        (x for x in reversed(inner) if isinstance(x, ast.FunctionDef) and x.name in (name.rpartition(".")[2], "__init__")), None
    )
    if function is None:
        return ""
    given = function.args
    names = [x.arg for x in (*given.posonlyargs, *given.args)]
    names = names[1:] if function is not node else names  # without self
    names += [f"*{given.vararg.arg}"] if given.vararg else ["*"] if given.kwonlyargs else []
    names += [x.arg for x in given.kwonlyargs] + ([f"**{given.kwarg.arg}"] if given.kwarg else [])
    return f"{name}({', '.join(names)})"
