"""The sources of the installed gradclip, for tests that read them."""

from __future__ import annotations

from importlib import util
from pathlib import Path


def sources() -> dict[str, Path]:
    """Return the path of each module, by its name without ``gradclip.``; ``rglob`` does not follow the link to the backends."""
    found = {}
    for package in ("gradclip", "gradclip.backends"):
        spec = util.find_spec(package)
        assert spec is not None
        for folder in spec.submodule_search_locations or ():
            for path in (*Path(folder).rglob("*.py"), *Path(folder).rglob("*.pyi")):
                name = ".".join((package, *path.relative_to(folder).with_suffix("").parts))
                found[name.removeprefix("gradclip.")] = path
    return found


SOURCES = sources()
