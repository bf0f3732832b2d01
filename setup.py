"""The compiled loops, and the links of a release. All else is in pyproject.toml.

``GRADCLIP_REPOSITORY``, the address of the repository, is the one setting that says where the project is. A release sets it:
the links of the README then work on the package index, and messages name the addresses of pages. A build without it says so.
"""

import gzip
import os
import re
import sys
import sysconfig
import tarfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.sdist import sdist

IS_WINDOWS = sysconfig.get_platform().startswith("win")
# free-threaded Python had no stable ABI before 3.15: its loops are compiled for each version
IS_STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")
# a wheel for platforms without a wheel with loops; without it, an install there would look for a compiler
IS_PURE = bool(os.environ.get("GRADCLIP_PURE"))

REPOSITORY = os.environ.get("GRADCLIP_REPOSITORY", "").rstrip("/")
WITHOUT = "This build does not say where the project is: `GRADCLIP_REPOSITORY` was not set. Links name files of its sources."
LINK = re.compile(r'(!\[[^]]*\]\(|\]\(|src="|srcset=")(?![a-z]+:|#)([^)"\s#]+)')


def readme() -> str:
    """The README; in a release, with links to the files of its tag and to the raw pictures."""
    here = Path(__file__).parent
    text = (here / "README.md").read_text(encoding="utf-8")
    if not REPOSITORY:
        return f"{text}\n{WITHOUT}\n"
    source = (here / "gradclip" / "__init__.py").read_text(encoding="utf-8")
    tag = "v" + re.findall(r'^__version__ = "([^"]+)"$', source, re.MULTILINE)[0]
    return LINK.sub(lambda found: f"{found[1]}{REPOSITORY}/{'blob' if found[1] == '](' else 'raw'}/{tag}/{found[2]}", text)


class SameSdist(sdist):
    """With ``SOURCE_DATE_EPOCH``, two sdists of one commit are the same to the byte, as two wheels are."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, owner=None, group=None):
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        if format != "gztar" or not epoch:
            return super().make_archive(base_name, format, root_dir, base_dir, owner, group)

        def same(info):
            info.uid, info.gid, info.uname, info.gname, info.mtime = 0, 0, "", "", int(epoch)
            info.mode = 0o755 if info.isdir() else 0o644
            return info

        path = f"{base_name}.tar.gz"
        with (
            open(path, "wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=int(epoch)) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            archive.add(base_dir, filter=same)
        return path


if not REPOSITORY:
    print(WITHOUT, file=sys.stderr)
setup(
    cmdclass={"sdist": SameSdist},
    long_description=readme(),
    long_description_content_type="text/markdown",
    project_urls={
        name: f"{REPOSITORY}{path}"
        for name, path in (("Source", ""), ("Changelog", "/blob/main/CHANGELOG.md"), ("Issues", "/issues"))
        if REPOSITORY
    },
    ext_modules=[
        Extension(
            "gradclip.backends.host._kernels",
            ["backends/host/_kernels.c"],
            depends=["backends/host/_loops.h"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if IS_STABLE else [],
            # -fno-trapping-math: selects instead of branches in the loops; -g0: two builds are the same to the bit
            extra_compile_args=[] if IS_WINDOWS else ["-O3", "-fno-trapping-math", "-g0", "-pthread"],
            extra_link_args=[] if IS_WINDOWS else ["-pthread"],
            optional=True,  # gradclip works without it, if it cannot be built
            py_limited_api=IS_STABLE,
        )
    ]
    if not IS_PURE
    else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if IS_STABLE and not IS_PURE else {},
)
