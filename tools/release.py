"""``python tools/release.py TAG``: whether a tag may be published: it is a commit of main, and its name is the version.

``python tools/release.py --published``: the READMEs install from the package index, and no longer from a clone; the citation
and SECURITY.md say where the project is, at ``GRADCLIP_REPOSITORY``, as the metadata of a build do.

It imports nothing of gradclip, reads the version as text, and ends with 1 and the reason if the tag may not be published.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_INSTALL = re.compile(r"^    pip install '\.\[(.*?)\]'( *# )(?:in a clone; |在克隆下来的仓库里；)", re.MULTILINE)
READMES = ("README.md", "README.zh.md")
#: a file that says where the project is -> what it says, and what it says then
_PLACES = {
    "CITATION.cff": (re.compile(r"^(?:# )?repository-code: .*$", re.MULTILINE), 'repository-code: "{}"'),
    "SECURITY.md": (
        re.compile(r"\[?the repository's Security page(?:\]\([^)]*\))?"),
        "[the repository's Security page]({}/security)",
    ),
}


def publish(root: Path, repository: str) -> None:
    """Change the READMEs' command, and write the address of the repository where a reader looks for it."""
    for page in (root / name for name in READMES):
        page.write_text(_INSTALL.sub(r"    pip install 'gradclip[\1]'\2", page.read_text(encoding="utf-8")), encoding="utf-8")
    for page, (says, then) in ((root / name, place) for name, place in _PLACES.items()):
        text, count = says.subn(then.format(repository.rstrip("/")), page.read_text(encoding="utf-8"))
        assert count == 1, f"{page.name} has no place for the address"
        page.write_text(text, encoding="utf-8")


def unplaced(root: Path, repository: str) -> list[str]:
    """The files that do not say that the project is at this address."""
    texts = {name: (root / name).read_text(encoding="utf-8") for name in _PLACES}
    return [
        name for name, (_, then) in _PLACES.items() if not repository or then.format(repository.rstrip("/")) not in texts[name]
    ]


def refusal(tag: str, root: Path, main: str) -> str:
    """The reason why a tag may not be published; "" if it may.

    Args:
        tag: its name.
        root: the checkout, with the history of main.
        main: the branch whose commits may be published.
    """
    found = _VERSION.search((root / "gradclip" / "__init__.py").read_text(encoding="utf-8"))
    version = found[1] if found else ""
    if not version or tag != f"v{version}":
        return f"The tag is {tag!r}, and the version is {version!r}: the tag must be 'v{version}'."
    tagged, head = (_commit(name, root) for name in (f"refs/tags/{tag}", "HEAD"))
    if not tagged or tagged != head:
        return f"{tag} is not the commit that is checked out: {tagged or 'no such tag'}, {head}."
    clones = [
        name for name in READMES if (root / name).is_file() and _INSTALL.search((root / name).read_text(encoding="utf-8"))
    ]
    if clones:
        return f"{' and '.join(clones)} would install from a clone: python tools/release.py --published"
    repository = os.environ.get("GRADCLIP_REPOSITORY", "")
    if silent := unplaced(root, repository):
        address = repository or "nowhere: GRADCLIP_REPOSITORY is not set"
        return f"{' and '.join(silent)} must say where the project is ({address}): python tools/release.py --published"
    ancestry = subprocess.run(["git", "merge-base", "--is-ancestor", tagged, main], cwd=root, capture_output=True)
    return "" if ancestry.returncode == 0 else f"{tag} is not a commit of {main}."


def _commit(name: str, root: Path) -> str:
    command = ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True).stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the tag; return the exit code."""
    (tag,) = sys.argv[1:] if arguments is None else arguments
    if tag == "--published":
        repository = os.environ.get("GRADCLIP_REPOSITORY", "")
        if not repository:
            print("GRADCLIP_REPOSITORY must be the address of the repository.", file=sys.stderr)
            return 2
        publish(ROOT, repository)
        return 0
    reason = refusal(tag, ROOT, "refs/remotes/origin/main")
    if reason:
        print(reason, file=sys.stderr)
    return int(bool(reason))


if __name__ == "__main__":
    sys.exit(main())
