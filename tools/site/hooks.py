"""MkDocs' hooks: pages outside of ``docs/``, and the reference, whose names come from the code."""

from __future__ import annotations

import json
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

import griffe
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools"))
from public_names import REFERENCE, public  # noqa: E402  # MkDocs loads this file by its path

#: a file of the repository -> its page
PAGES = {
    "README.md": "readme.md",
    "README.zh.md": "zh/readme.md",
    "benchmarks/README.md": "benchmarks.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
#: the tabs with English pages, and what Chinese pages call them
TABS = [
    ("Find a broken clip", "找出写错的裁剪（英文）"),
    ("Tutorials", "教程（英文）"),
    ("How to", "操作指南（英文）"),
    ("Reference", "参考（英文）"),
    ("Explanations", "原理（英文）"),
    ("Project", "项目（英文）"),
]
LINK = re.compile(r"(\]\(|src=\"|srcset=\")([^)\"\s#:]+)(#[^)\"\s]*)?([)\"])")
FENCED = re.compile(r"```.*?```", re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in ``docs/``."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    _refuse_undocumented()
    for name in REFERENCE:
        files.append(File.generated(config, f"reference/{name}.md", content=_reference(name)))
    texts = {f"docs/{path.relative_to(ROOT / 'docs').as_posix()}": path for path in (ROOT / "docs").rglob("*.md")}
    texts |= {source: ROOT / source for source in PAGES}
    linked = {target for source, path in texts.items() for target in _targets(source, path.read_text(encoding="utf-8"))}
    for target in sorted(linked - PAGES.keys()):
        if not target.startswith("docs/"):
            files.append(File.generated(config, _page(target), content=_source(target)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Links between files of the repository become links between pages."""
    source = next((source for source, uri in PAGES.items() if uri == page.file.src_uri), f"docs/{page.file.src_uri}")
    if page.file.src_uri.startswith(("reference/", "source/")):
        return markdown
    parts = re.split(r"(```.*?```)", markdown, flags=re.DOTALL)
    return "".join(part if part.startswith("```") else _relinked(part, source, page.file.src_uri) for part in parts)


def on_page_context(context: Any, *, page: Any, config: Any, nav: Any, **_: Any) -> Any:
    """The theme's words and the tabs use the page's language, and the switch leads to the same page in the other language."""
    here = page.file.src_uri
    chinese = here.startswith("zh/")
    name = here.removeprefix("zh/")
    there = {found.file.src_uri: found.file.url for found in nav.pages}
    config.theme["language"] = "zh" if chinese else "en"
    for section in nav.items:
        section.title = next((titles[chinese] for titles in TABS if section.title in titles), section.title)
    config.extra["alternate"] = [
        {"name": "English", "lang": "en", "link": there.get(name, there["index.md"])},
        {"name": "中文", "lang": "zh", "link": there.get(f"zh/{name}", there["zh/index.md"])},
    ]
    return context


def _relinked(text: str, source: str, here: str) -> str:
    """The text of a file of the repository with the links of its page."""

    def moved(found: re.Match[str]) -> str:
        to = posixpath.relpath(_page(_resolved(source, found[2])), posixpath.dirname(here) or ".")
        return f"{found[1]}{to}{found[3] or ''}{found[4]}"

    return LINK.sub(moved, text)


def _targets(source: str, text: str) -> set[str]:
    return {_resolved(source, found[2]) for found in LINK.finditer(FENCED.sub("", text))}


def _resolved(source: str, link: str) -> str:
    """The file or folder of the repository that a link in another leads to."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    if not (ROOT / target).exists():
        raise PluginError(f"{source} links to {link}, which is not there.")
    return target


def _page(target: str) -> str:
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return PAGES.get(target, f"source/{target}.md")


def _source(target: str) -> str:
    """A page that shows a file, or all files of a folder."""
    path = ROOT / target
    if path.suffix == ".ipynb":
        return _notebook(target)
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    shown = [f"## {file.relative_to(ROOT).as_posix()}\n\n{_fenced(file)}" for file in files]
    return f"---\nsearch:\n  exclude: true\n---\n\n# {target}\n\n" + "\n\n".join(shown) + "\n"


def _notebook(target: str) -> str:
    """A page with the cells of a notebook, and what they print."""
    parts = []
    for cell in json.loads((ROOT / target).read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(f"````python\n{text}\n````" if cell["cell_type"] == "code" else _relinked(text, target, _page(target)))
        printed = "".join(line for output in cell.get("outputs", []) for line in output.get("text", []))
        parts += [f"````text\n{printed.rstrip()}\n````"] if printed else []
    return "\n\n".join(parts) + "\n"


def _fenced(file: Path) -> str:
    language = {".py": "python", ".js": "javascript", ".toml": "toml"}.get(file.suffix, "text")
    return f"````{language}\n{file.read_text(encoding='utf-8')}\n````"


def _reference(name: str) -> str:
    """A page with the public names of some modules; each must have a docstring."""
    title, modules = REFERENCE[name]
    parts = [f"# {title}"]
    for module in modules:
        if len(modules) > 1:
            parts.append(f"## {module}")
        shift = "    options:\n      heading_level: 3\n" if len(modules) > 1 else ""
        parts += [f"::: {module}.{public}\n{shift}" for public in public(module)]
    return "\n\n".join(parts) + "\n"


def _refuse_undocumented() -> None:
    """Raise an error for public names and methods without a docstring."""
    package = griffe.load("gradclip", search_paths=[ROOT])
    names = [
        f"{module.partition('.')[2]}.{name}".lstrip(".")
        for _, modules in REFERENCE.values()
        for module in modules
        for name in public(module)
    ]
    silent = [name for name in names for name in _silent(package[name], name)]
    if silent:
        raise PluginError(f"Public names without a docstring: {', '.join(silent)}.")


def _silent(found: Any, name: str) -> list[str]:
    if found.is_module:
        return []  # these modules have their own page
    silent = [] if found.docstring else [name]
    if found.is_class:
        members = ((key, x) for key, x in found.members.items() if key[0] != "_" and not x.is_alias and x.is_function)
        silent += [f"{name}.{key}" for key, x in members if not x.docstring and not _is_inherited(found, key)]
    return silent


def _is_inherited(cls: Any, key: str) -> bool:
    """Whether a base class documents the method."""
    return any(key in base.members and base.members[key].docstring for base in cls.mro())
