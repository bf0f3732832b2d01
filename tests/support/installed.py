"""An environment with what an install line installs, and nothing else: made in no time of links to the packages of this one."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import venv
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

import copies
from launched import PATHS, TIME_LIMIT
from packaging.requirements import Requirement

#: the tests have another build, with the same modules
BUILDS = {"tensorflow": "tensorflow-cpu"}


class Installed:
    """The environment, and a folder to work in."""

    def __init__(self, line: str, folder: Path) -> None:
        """Install the words after ``pip install``, and a copy of ``gradclip`` in the folder is ``.`` or its name."""
        venv.create(folder / "environment", with_pip=False)
        self.folder, self.python = folder, folder / "environment" / "bin" / "python"
        (site,) = (folder / "environment" / "lib").glob("python*/site-packages")
        self.names: set[str] = set()
        for word in line.split("pip install ")[1].partition("#")[0].split():
            wanted = re.sub(r"^\.", "gradclip", word.strip("'\""))
            for found in _closure(Requirement(wanted), set()):
                self.names.add(found.name.lower())
                _link(found, site)
        script = self.python.with_name("gradclip")
        script.write_text(f"#!{self.python}\nimport sys\nfrom gradclip.commands.cli import main\nsys.exit(main())\n")
        script.chmod(0o755)

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run ``python WORDS`` in the folder."""
        return self._run([str(self.python), "-P", *words], variables)

    def shell(self, framework: str, line: str, **variables: str) -> str:
        """Return what a reader's line prints, ``python ...`` or ``gradclip ...`` and perhaps a pipe.

        A copy of one process runs it, which has imported the framework here.
        """
        program, _, then = line.partition(" | ")
        name, *words = shlex.split(program)
        arguments = words if name == "python" else ["-m", name, *words]
        done = copies.run(framework, *arguments, env=_variables(variables), cwd=self.folder, python=self.python)
        if not then:
            return done.stdout
        return subprocess.run(["sh", "-c", then], input=done.stdout, capture_output=True, text=True, check=True).stdout

    def _run(self, command: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
        env = _variables(variables)
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=TIME_LIMIT, env=env)

    def blocks(self, text: str) -> None:
        """Run a page's blocks of Python, in order, in one process; each prints what stands below it."""
        (self.folder / "page.md").write_text(text, encoding="utf-8")
        code = "import pages; from pathlib import Path; text = Path('page.md').read_text('utf-8')\n"
        code += "after = pages.run(text, 'the page', {}); assert after == text, after"
        done = self.run("-c", f"import sys; sys.path += {PATHS!r}; {code}")
        assert done.returncode == 0, done.stdout + done.stderr


def _variables(own: Mapping[str, str]) -> dict[str, str]:
    hidden = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return {**hidden, "COLUMNS": "80", **own}


def _closure(wanted: Requirement, seen: set[tuple[str, str]]) -> Iterator[metadata.Distribution]:
    """The installed packages that a requirement asks for, directly or through others."""
    found = metadata.distribution(BUILDS.get(wanted.name, wanted.name))
    for extra in {"", *wanted.extras}:
        if (wanted.name, extra) in seen:
            continue
        seen.add((wanted.name, extra))
        yield found
        for text in found.requires or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                yield from _closure(needed, seen)


def _link(package: metadata.Distribution, site: Path) -> None:
    for name in {Path(file).parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
        if not (site / name).exists():
            (site / name).symlink_to(Path(str(package.locate_file(name))).resolve())
