"""Loads `benchmarks` without its parent folder on the path: the sources there would hide an installed gradclip."""

from __future__ import annotations

import sys
from importlib import import_module, util
from pathlib import Path

__all__ = ["walk"]

FOLDER = Path(__file__).parents[2] / "benchmarks"

spec = util.spec_from_file_location("benchmarks", FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)])
assert spec is not None
assert spec.loader is not None
sys.modules["benchmarks"] = util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["benchmarks"])
walk = import_module("benchmarks.walk")
