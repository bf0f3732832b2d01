"""Makes ``docs/third-parties.md`` from the suite's results (``found.json``) and their effects on training (``page.toml``)."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

__all__ = ["FOUND", "PAGE", "markdown"]

FOUND = Path(__file__).with_name("found.json")
PAGE = Path(__file__).parents[3] / "docs" / "third-parties.md"


def markdown() -> str:
    """Return the whole page."""
    found: dict[str, Any] = json.loads(FOUND.read_text(encoding="utf-8"))
    page: dict[str, Any] = tomllib.loads(FOUND.with_name("page.toml").read_text(encoding="utf-8"))
    lines = []
    for name, one in found["clips"].items():
        like = "" if one["like"] is None else f"fails {len(one['like'])}" if one["like"] else "passes"
        package = f"{one['package']} {one['version']}"
        lines.append(f"| {package} | `{name}` | `{one['operation']}` | {one['passed']} | {len(one['failed'])} | {like} |")
    training = "".join(f"- `{name}`: {page['training'][name]}{_cases(found['clips'][name])}\n" for name in found["clips"])
    return page["head"].format(torch=found["torch"]) + "\n".join(lines) + "\n\n" + page["rest"].format(training=training)


def _cases(one: dict[str, Any]) -> str:
    failed = one["failed"] if one["like"] is None else one["like"]
    if not failed:
        return ""
    shown = ", ".join(f"`{case}`" for case in failed[:12])
    return f" Cases: {shown}{'' if len(failed) <= 12 else f' and {len(failed) - 12} more'}."
