"""Runs all checks on eight devices of one process, and writes their failures to a file.

``python -m jax_only.distributed.worker results.json docs/distributed.md``
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax_only.distributed import groups, mapped, sharded, tensors
from jax_only.distributed.common import near
from launched import failure

MODULES = (sharded, mapped, groups, tensors)


def checks() -> dict[str, Callable[[], None]]:
    """Return the functions called ``check_...``."""
    return {
        f"{module.__name__.rpartition('.')[2]}.{name}": function
        for module in MODULES
        for name, function in vars(module).items()
        if name.startswith("check_")
    }


def run_recipes(path: Path) -> None:
    """Run the blocks of the documentation, each with the names that the first defines."""
    section = path.read_text("utf-8").partition("\n## JAX")[2].partition("\n## ")[0]
    first, *recipes = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert recipes
    shared: dict[str, Any] = {}
    exec(compile(first, "the first block", "exec"), shared)
    for recipe in recipes:
        names = dict(shared)
        exec(compile(recipe, recipe.partition("\n")[0], "exec"), names)
        assert float(np.ravel(names["norm"])[0]) > 0.1, f"nothing was clipped:\n{recipe}"
        near(names["norm"], np.full(np.shape(names["norm"]), float(shared["whole_norm"])), at_most=16)


def main() -> None:
    warnings.simplefilter("error")
    assert jax.device_count() == 8
    found = checks() | {"the_recipes": lambda: run_recipes(Path(sys.argv[2]))}
    failures = {name: failure(check) for name, check in found.items()}
    Path(sys.argv[1]).write_text(json.dumps(failures), "utf-8")


if __name__ == "__main__":
    main()
