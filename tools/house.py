"""``python tools/house.py``: draw ``docs/pictures/house.svg``, the house of CONTRIBUTING.md, from the imports in the sources.

A room of ``gradclip/`` stands on the floor above the highest part that it imports. With ``--check`` it writes nothing, and ends
with 1 if the drawing is not current.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path

import written

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "house.svg"

#: where to add something: part -> what and where, for the legend
ADDED = {
    "dialects": "a dialect: gradclip/dialects/",
    "conformance": "a check: gradclip/conformance/checks/",
    "rounds": "a mistake: gradclip/rounds/",
    "backends": "a backend or a lane: backends/",
}
_WIDTH, _HEIGHT, _GAP, _LEFT = 960, 30, 12, 16
_STYLE = """\
text { font: 14px ui-monospace, monospace; fill: #1f2328; text-anchor: middle; dominant-baseline: central }
.note { font: 13px system-ui, sans-serif; fill: #59636e; text-anchor: start }
.page { fill: #ffffff } .box { fill: #f6f8fa; stroke: #818b98 } .added { fill: #ddf4ff; stroke: #0969da; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .note { fill: #9198a1 }
  .page { fill: #0d1117 } .box { fill: #151b23; stroke: #656c76 } .added { fill: #12273f; stroke: #4493f8 }
}"""


@cache
def imports(source: str) -> frozenset[str]:
    """The parts of gradclip that a source imports while it runs; ``__init__`` for the package itself.

    >>> sorted(imports("from gradclip.core.rule import Rule\\nimport gradclip\\nimport json"))
    ['__init__', 'core']
    """
    return frozenset(_imports(ast.parse(source)))


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in _statements(tree.body):
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = inner if node.module == "gradclip" else [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for package, _, part in (name.partition(".") for name in names):
            if package == "gradclip":
                yield part.partition(".")[0] or "__init__"


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Every statement that runs; the many expressions hold no imports."""
    for node in body:
        if not _is_for_types(node):
            yield node
            for name in ("body", "handlers", "cases", "orelse", "finalbody"):
                yield from _statements(getattr(node, name, ()))


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def parts(folder: Path) -> dict[str, set[str]]:
    """Each module or package of gradclip with its imports. Any other name belongs to the package itself."""
    files: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*.py")):
        part = path.relative_to(folder).parts[0].removesuffix(".py")
        if part not in ("backends", "__main__"):
            files.setdefault(part, []).append(path)
    found: dict[str, set[str]] = {}
    for part, paths in files.items():
        named = {name for path in paths for name in imports(path.read_text(encoding="utf-8"))}
        found[part] = {name if name in files else "__init__" for name in named} - {part}
    return found


def floors(graph: dict[str, set[str]]) -> list[list[str]]:
    """The parts by floors, the highest first.

    >>> floors({"steps": {"limits", "core"}, "limits": {"core"}, "core": set()})
    [['steps'], ['limits'], ['core']]
    """
    left, built, placed = dict(graph), [], set[str]()
    while left:
        floor = sorted(part for part, needs in left.items() if needs <= placed)
        if not floor:
            raise ValueError(f"These import each other: {', '.join(sorted(left))}.")
        built.append(floor)
        placed.update(floor)
        left = {part: needs for part, needs in left.items() if part not in placed}
    return built[::-1]


def drawing(root: Path) -> str:
    """The whole picture."""
    built = floors(parts(root / "gradclip"))
    cellar = sorted(path.name.removesuffix(".py") for path in (root / "backends").iterdir() if _is_backend(path))
    lines: list[str] = []
    y = 16
    for floor in built:
        lines += _floor([("gradclip" if part == "__init__" else part, part) for part in floor], y)
        y += _HEIGHT + _GAP
    lines.append(f'<text class="note" x="{_LEFT}" y="{y + 8}">backends/: only the registry loads them, by name</text>')
    y += 24
    lines += _floor([(name, "backends") for name in cellar], y)
    y += _HEIGHT + 24
    notes = list(ADDED.values())
    for k, text in enumerate((f"Blue is where you add {'; '.join(notes[:2])};", f"{'; '.join(notes[2:])}.")):
        lines.append(f'<text class="note" x="{_LEFT}" y="{y + 20 * k}">{text}</text>')
    height = y + 40
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">'
    title = "<title>The rooms of gradclip: each stands above all that it imports</title>"
    page = f'<rect class="page" width="{_WIDTH}" height="{height}"/>'
    return "\n".join([head, title, f"<style>\n{_STYLE}\n</style>", page, *lines, "</svg>", ""])


def _is_backend(path: Path) -> bool:
    """A framework's folder or file, or ``host``, which they share."""
    inner = path.name not in ("demo", "targets") and not path.name.startswith(("_", "."))
    return inner and (path.suffix == ".py" or (path / "__init__.py").exists())


def _floor(rooms: Sequence[tuple[str, str]], y: int) -> Iterator[str]:
    """The boxes of a floor, which share its width.

    Args:
        rooms: the name that is shown, and the key in ``ADDED``.
        y: of the floor's upper edge.
    """
    wide = (_WIDTH - 2 * _LEFT - _GAP * (len(rooms) - 1)) / len(rooms)
    for k, (name, part) in enumerate(rooms):
        x, kind = _LEFT + k * (wide + _GAP), "added" if part in ADDED else "box"
        yield f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{_HEIGHT}" rx="4"/>'
        yield f'<text x="{x + wide / 2:.1f}" y="{y + _HEIGHT / 2:.0f}">{name}</text>'


main = partial(written.main, tool="house", make=partial(drawing, ROOT), path=PICTURE)

if __name__ == "__main__":
    sys.exit(main())
