"""What a user installs: a clone, the wheel, the sdist and the editable install, each made from a copy of the sources."""

from __future__ import annotations

import configparser
import email
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import venv
import zipfile
from collections import Counter
from pathlib import Path
from typing import ClassVar

import numpy
import pytest
from launched import TIME_LIMIT

ROOT = Path(__file__).parents[2]
FRAMEWORKS = ("torch", "tensorflow", "paddle", "jax")
IMPORTS = """
import sys
import gradclip, gradclip.dialects, gradclip.dropins, gradclip.backends, gradclip.commands.cli
print(gradclip.__version__)
print("backends" in sys.modules)
"""

#: the variables of a user who runs a command in a clone: the working directory stays on the path
TYPED = {"PYTHONPATH": "", "PYTHONSAFEPATH": ""}
#: with this link a clone can import ``gradclip.backends``
LINK = Path("gradclip", "backends")
#: the compiled loops, and their type stubs
KERNELS = {"gradclip/backends/host/_kernels.abi3.so", "gradclip/backends/host/_kernels.pyi"}


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=TIME_LIMIT, env={**os.environ, **variables})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(source: Path, kind: str, to: Path, **variables: str) -> Path:
    """Build ``source``, and return the one file of this kind."""
    run(sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", to, source, cwd=source, **variables)
    (file,) = to.iterdir()
    return file


def copied(folder: Path, to: Path) -> Path:
    """Return a copy without build files; a link stays a link."""
    left = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "*.so")
    return Path(shutil.copytree(folder, to, symlinks=True, ignore=left))


def members(sdist: Path) -> list[str]:
    """Return the names in an sdist, without folders."""
    with tarfile.open(sdist) as archive:
        return [member.name.partition("/")[2] for member in archive if not member.isdir()]


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert len(set(names)) == len(names)
        return {name: archive.read(name) for name in names}


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the sources without build files, so that no build changes the checkout."""
    folder = tmp_path_factory.mktemp("source") / "gradclip"
    folder.mkdir()
    for name in ("gradclip", "backends", "tests", "examples", "docs/lint"):
        copied(ROOT / name, folder / name)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture
def without_link(source: Path, tmp_path: Path) -> Path:
    """Return the sources as a system without symbolic links checks them out: the link is a text file."""
    folder = copied(source, tmp_path / "source")
    (folder / LINK).unlink()
    (folder / LINK).write_text("../backends", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(source, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(source, "sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="session")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with the wheel and its required dependencies only."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False)
    interpreter = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", interpreter, "install", "--quiet", "--no-index", wheel, cwd=folder)
    return interpreter


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment without packages."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    return folder / "bin" / "python"


def test_the_wheel_has_the_sources_and_nothing_else(wheel: Path) -> None:
    core = {f"gradclip/{p.relative_to(ROOT / 'gradclip')}" for p in (ROOT / "gradclip").rglob("*.py")}
    backends = {f"gradclip/backends/{p.relative_to(ROOT / 'backends')}" for p in (ROOT / "backends").rglob("*.py")}
    assert {f"gradclip/backends/{name}/__init__.py" for name in ("host", "numpy", *FRAMEWORKS)} <= backends
    suite = ROOT / "gradclip" / "conformance"
    data = {f"gradclip/conformance/{p.relative_to(suite)}" for kind in ("*.json", "*.j2") for p in suite.rglob(kind)}
    assert {"gradclip/conformance/vectors/v1/schema.json", "gradclip/conformance/xfails/native-torch.json"} <= data
    assert "gradclip/conformance/report/template.html.j2" in data
    found = {name for name in contents(wheel) if ".dist-info/" not in name}
    data |= {f"gradclip/source/pages/{page.name}" for page in (ROOT / "docs" / "lint").glob("GM*.md")}
    assert found == core | backends | data | {"gradclip/py.typed", *KERNELS}


def test_the_sdist_has_each_source_once(sdist: Path, wheel: Path) -> None:
    names = Counter(name.removeprefix("gradclip/") for name in members(sdist) if name.endswith((".py", ".pyi", ".c", ".h")))
    assert [name for name, times in names.items() if times > 1] == []
    modules = {name.removeprefix("gradclip/") for name in contents(wheel) if name.endswith((".py", ".pyi"))}
    assert modules <= names.keys()
    assert str(LINK) not in members(sdist)


def test_the_sdist_has_no_part_of_the_tests(sdist: Path) -> None:
    """They need more of the clone than an sdist has: some of them would be worse than none."""
    assert {name.partition("/")[0] for name in members(sdist)} == {
        *("gradclip", "backends", "docs", "gradclip.egg-info", "LICENSE", "MANIFEST.in", "PKG-INFO", "README.md"),
        *("pyproject.toml", "setup.cfg", "setup.py"),
    }


@pytest.mark.parametrize("kind", ["sdist", "wheel"])
def test_two_builds_of_one_commit_are_the_same(kind: str, source: Path, tmp_path: Path) -> None:
    made = []
    for name, when in (("one", 1_600_000_000), ("two", 1_700_000_000)):
        folder = copied(source, tmp_path / name / "gradclip")
        for path in folder.rglob("*"):
            os.utime(path, (when, when), follow_symlinks=False)
        made.append(built(folder, kind, tmp_path / f"{name}-{kind}", SOURCE_DATE_EPOCH="1500000000"))
    one, two = (path.read_bytes() for path in made)
    assert one == two
    assert os.fsencode(tmp_path) not in b"".join(contents(made[0]).values() if kind == "wheel" else [])


def test_a_release_has_links_that_work_on_the_index(source: Path, wheel: Path, tmp_path: Path) -> None:
    address = "https://example.org/someone/gradclip"
    release = built(source, "wheel", tmp_path, GRADCLIP_REPOSITORY=address)
    version = wheel.name.split("-")[1]
    fields, without = (
        email.message_from_string(contents(one)[f"gradclip-{version}.dist-info/METADATA"].decode("utf-8"))
        for one in (release, wheel)
    )
    assert fields.get_all("Project-URL") == [
        f"Source, {address}",
        f"Changelog, {address}/blob/main/CHANGELOG.md",
        f"Issues, {address}/issues",
    ]
    assert without.get_all("Project-URL") is None
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    text, _, last = str(without.get_payload()).strip().rpartition("\n\n")
    assert (text, "GRADCLIP_REPOSITORY" in last) == (readme.strip(), True), "it says why its links are files"
    links = re.findall(r'(?:\]\(|src="|srcset=")([^)"\s]+)', str(fields.get_payload()))
    assert len(links) == len(re.findall(r'(?:\]\(|src="|srcset=")([^)"\s]+)', readme)) > 10
    begins = (f"{address}/blob/v{version}/", f"{address}/raw/v{version}/", "https://", "#")
    assert [link for link in links if not link.startswith(begins)] == []
    pictures = re.findall(r'(?:!\[[^]]*\]\(|src="|srcset=")([^)"\s]+)', str(fields.get_payload()))
    assert len(pictures) == 4
    assert all(picture.startswith(begins[1]) for picture in pictures), "a page of a file is no picture"
    assert all((ROOT / link.partition(f"/v{version}/")[2].partition("#")[0]).exists() for link in links if "/v" in link)


def test_a_clone_needs_no_install(source: Path, bare: Path) -> None:
    assert os.readlink(source / LINK) == os.path.join("..", "backends")
    code = f"{IMPORTS}import importlib.util as u; print(u.find_spec('gradclip.backends.numpy').origin)"
    version, named, origin = run(bare, "-c", code, cwd=source, **TYPED).split()
    assert (named, Path(origin).resolve()) == ("False", source / "backends" / "numpy" / "__init__.py")
    assert run(bare, "-m", "gradclip", "--version", cwd=source, **TYPED).split() == ["gradclip", version]


def test_a_clone_asks_its_frameworks(source: Path, bare: Path) -> None:
    """A subprocess asks each framework, and finds the clone too."""
    packages = {**TYPED, "PYTHONPATH": str(Path(numpy.__file__).parents[1])}
    printed = run(bare, "-m", "gradclip", "backends", "--json", cwd=source, **packages)
    entries = {entry["name"]: entry for entry in json.loads(printed)["backends"]}
    assert (entries["numpy"]["error"], entries["numpy"]["version"]) == (None, numpy.__version__)


def test_a_checkout_without_the_link_builds_the_same_wheel(without_link: Path, wheel: Path, tmp_path: Path) -> None:
    assert contents(built(without_link, "wheel", tmp_path / "wheel")) == contents(wheel)


def test_a_wheel_for_where_none_with_loops_fits(source: Path, tmp_path: Path) -> None:
    pure = built(source, "wheel", tmp_path / "pure", GRADCLIP_PURE="1")
    assert pure.name.endswith("-py3-none-any.whl")
    assert not [name for name in contents(pure) if "_kernels" in name and not name.endswith(".pyi")]


def test_the_metadata(wheel: Path) -> None:
    files = contents(wheel)
    version = wheel.name.split("-")[1]
    fields = email.message_from_bytes(files[f"gradclip-{version}.dist-info/METADATA"])
    assert (fields["Name"], fields["Version"], fields["License-Expression"]) == ("gradclip", version, "Apache-2.0")
    assert f"gradclip-{version}.dist-info/licenses/LICENSE" in files
    required = fields.get_all("Requires-Dist") or []
    assert all("extra ==" in requirement for requirement in required)  # every requirement belongs to an extra
    extras = set(fields.get_all("Provides-Extra") or [])
    several = {one.rpartition('"')[0].rpartition('"')[2]: one for one in required if one.startswith("gradclip[")}
    named = {extra: set(one.partition("[")[2].partition("]")[0].split(",")) for extra, one in several.items()}
    frameworks, tools = {*FRAMEWORKS, "keras"}, {"demo", "migrate", "conformance", "monitor"}
    assert extras == {*frameworks, *tools, "tools", "all"}
    assert named == {"tools": tools, "all": {*frameworks, "tools"}}
    entries = b"[console_scripts] gradclip = gradclip.commands.cli:main [pytest11] gradclip = gradclip.conformance.plugin"
    assert files[f"gradclip-{version}.dist-info/entry_points.txt"].split() == entries.split()


def test_the_wheel_needs_nothing(python: Path, wheel: Path, tmp_path: Path) -> None:
    run(python, "-P", "-c", "import importlib.util as u; assert u.find_spec('numpy') is None", cwd=tmp_path)
    assert run(python, "-P", "-c", IMPORTS, cwd=tmp_path).split() == [wheel.name.split("-")[1], "False"]


def test_the_command_is_installed(python: Path, wheel: Path, tmp_path: Path) -> None:
    expected = f"gradclip {wheel.name.split('-')[1]}"
    assert run(python.with_name("gradclip"), "--version", cwd=tmp_path).strip() == expected
    assert run(python, "-P", "-m", "gradclip", "--version", cwd=tmp_path).strip() == expected


def test_the_sdist_builds_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    again = built(unpacked, "wheel", tmp_path / "wheel")
    assert again.name == wheel.name
    assert contents(again) == contents(wheel)


def test_the_compiled_loops_need_nothing(python: Path, tmp_path: Path) -> None:
    code = (
        "import array; from gradclip.backends.host import _kernels as k; print(k.squares([array.array('f', [3, 4])], [2], 0))"
    )
    assert run(python, "-P", "-c", code, cwd=tmp_path).strip() == "[25.0]"


def test_without_a_compiler(source: Path, wheel: Path, tmp_path: Path) -> None:
    """Everything except the compiled loops is installed, and clips."""
    without = built(copied(source, tmp_path / "source"), "wheel", tmp_path / "wheel", CC="no-such-compiler")
    assert contents(wheel).keys() - contents(without).keys() == {"gradclip/backends/host/_kernels.abi3.so"}
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--target", tmp_path / "site", without, cwd=tmp_path)
    code = """
import sys
sys.path[:0] = sys.argv[1:]
import gradclip, numpy as np
from gradclip.backends.host import kernels
grads = [np.full(9, 2.0, dtype) for dtype in ("float16", "float32", "float64")]
print(kernels.KINDS, gradclip.clip_grad_norm_(grads, 1.0), round(float(grads[1][0]), 4))
"""
    paths = tmp_path / "site", Path(numpy.__file__).parents[1]
    printed = run(sys.executable, "-I", "-S", "-c", code, *paths, cwd=tmp_path)  # -S hides the installed packages
    assert printed.split() == ["{}", "10.392304845413264", "0.1925"]


def test_an_editable_install_has_the_backends(source: Path, bare: Path, tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    run(*pip, "--target", tmp_path / "site", "--editable", source, cwd=tmp_path)
    code = f"import site; site.addsitedir({str(tmp_path / 'site')!r})\n{IMPORTS}"
    code += "import importlib.util as u; print(gradclip.__file__, u.find_spec('gradclip.backends.numpy').origin)"
    printed = run(bare, "-P", "-c", code, cwd=tmp_path, PYTHONPATH="").split()
    assert printed[1:3] == ["False", str(source / "gradclip" / "__init__.py")]
    assert Path(printed[3]).resolve() == source / "backends" / "numpy" / "__init__.py"


class Refusing(http.server.BaseHTTPRequestHandler):
    """Has no file, and remembers what was asked for."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_error(404)

    do_HEAD = do_GET

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def test_tox_skips_an_environment_without_its_python_and_fetches_none(tmp_path: Path) -> None:
    """Each environment of the default list is made, without packages, where this Python is the only one."""
    (tmp_path / "python3").symlink_to(sys.executable)
    ini = configparser.ConfigParser(interpolation=None)
    ini.read(ROOT / "tox.ini", "utf-8")
    names = ini["tox"]["env_list"].split(", ")
    own = {name: python for name in names if (python := ini.get(f"testenv:{name}", "base_python", fallback=""))}
    this = f"python{sys.version_info.major}.{sys.version_info.minor}"
    skipped = {name for name, python in own.items() if python != this}
    assert own
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as mirror:
        threading.Thread(target=mirror.serve_forever, daemon=True).start()
        tox = [sys.executable, "-m", "tox", "run", "--notest", "--skip-pkg-install", "--workdir", tmp_path / "work", "-c", ROOT]
        nothing = [word for name in names for word in ("-x", f"testenv:{name}.deps=")]
        variables = {"PATH": str(tmp_path), "UV_PYTHON_INSTALL_MIRROR": f"http://127.0.0.1:{mirror.server_port}"}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TOX", "UV_PYTHON"))}
        env = {**kept, **variables, "UV_PYTHON_INSTALL_DIR": str(tmp_path / "managed")}
        done = subprocess.run([*tox, *nothing], capture_output=True, text=True, timeout=TIME_LIMIT, env=env)
        mirror.shutdown()
    assert (done.returncode, Refusing.asked) == (0, []), done.stdout + done.stderr
    ended = dict(re.findall(r"^  (\S+): (OK|SKIP|FAIL)", done.stdout, re.MULTILINE))
    assert ended == {name: "SKIP" if name in skipped else "OK" for name in names}
    for name in skipped:
        assert f"{name}: skipped because could not find python interpreter" in done.stdout


def test_ci_runs_the_command_of_the_readme() -> None:
    commands = [line for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines() if "bin/tox" in line]
    assert len(commands) == 1
    assert commands[0] in [line.strip() for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()]
