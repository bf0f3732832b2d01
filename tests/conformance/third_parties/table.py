"""Makes ``docs/third-parties.md`` from the suite's results (``found.json``) and their effects on training (``page.toml``)."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from conformance.third_parties.clips import FRAMEWORKS

__all__ = ["FOUND", "PAGE", "markdown"]

FOUND = Path(__file__).with_name("found.json")
PAGE = Path(__file__).parents[3] / "docs" / "third-parties.md"
NAMES = {"torch": "PyTorch", "tensorflow": "TensorFlow", "paddle": "Paddle", "jax": "JAX"}
HEAD = """| Package | Clip | As | Passes | Fails | As the native |
| --- | --- | --- | --- | --- | --- |
"""


def markdown() -> str:
    """Return the whole page."""
    found: dict[str, Any] = json.loads(FOUND.read_text(encoding="utf-8"))
    page: dict[str, Any] = tomllib.loads(FOUND.with_name("page.toml").read_text(encoding="utf-8"))
    parts, training = [], dict[str, list[str]]()
    for one in FRAMEWORKS:
        clips = found["clips"][one]
        parts.append(f"## {NAMES[one]} {found['versions'][one]}\n\n{HEAD}" + "".join(map(_row, clips, clips.values())))
        for name in clips:
            training.setdefault(page["training"][name], []).append(f"`{name}`")
    effects = "".join(f"- {', '.join(names)}: {effect}\n" for effect, names in training.items())
    tested = [*found["following"].values(), *(clip for clips in found["clips"].values() for clip in clips.values())]
    head = page["head"].format(packages=len({one["package"] for one in tested}))
    rest = page["rest"].format(training=effects, limits=_limits(found["following"], page["following"]))
    return head + "\n".join(parts) + "\n" + rest


def _row(name: str, one: dict[str, Any]) -> str:
    like = "" if one["like"] is None else f"fails {len(one['like'])}" if one["like"] else "passes"
    counts = f"{one['passed']} | {len(one['failed'])} | {like}"
    return f"| {one['package']} {one['version']} | `{name}` | `{one['operation']}` | {counts} |\n"


def _limits(following: dict[str, Any], effects: dict[str, str]) -> str:
    """A row for each limit that follows the run: in how many of its vectors a step is wrong."""
    rows = []
    for name, one in following.items():
        runs = f"{sum(map(bool, one['wrong'].values()))} of {len(one['wrong'])}"
        rows.append(f"| {one['package']} {one['version']} | `{name}` | `{one['rule']}` | {runs} | {effects[name]} |\n")
    return "".join(rows)
