"""The command runs nothing of a folder that it reads: no module there, of any name, is imported.

Python puts the current folder on its path, before the standard library: for ``python -m gradclip``, and for a PYTHONPATH with
an empty entry. So the command takes it off before it imports anything else, and its processes start without it. Nothing helps
against what Python imports before any line of gradclip: two modules with ``-m``, which ``python -P -m gradclip`` avoids.
"""

# Imports, types included, would come from the current folder. Python has imported these two before any other.
import os
import sys

__all__ = ["end_quietly", "environment", "is_command", "leave"]

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # the folder of gradclip
_LIBRARY = os.path.realpath(os.path.dirname(os.__file__))
_PYTHONS = (_LIBRARY, os.path.join(_LIBRARY, "lib-dynload"))
_INSTALLED = ("site-packages", "dist-packages")
_left: set[str] = set()  # the folders that this process has left


def is_command() -> bool:
    """Whether this process is the command ``gradclip`` or ``python -m gradclip``, and not a program that imports gradclip."""
    given = getattr(sys, "argv", None) or [""]
    if given[0] != "-m":  # Python writes -m there until it has found the module
        return os.path.basename(given[0]) in ("gradclip", "gradclip.exe", "gradclip-script.py")
    module = sys.orig_argv[-len(given)]
    return module == "gradclip" or (module.startswith("-") and module.endswith("mgradclip"))


def leave(folders: tuple[str, ...] = (".",)) -> None:
    """Take folders off Python's path, unless they contain the standard library or installed packages.

    Where gradclip itself lies in one of them, it follows the standard library: a clone needs no install.
    """
    _left.update(_real(*folders))
    kept = [entry for entry in sys.path if _is_pythons(entry) or not _real(entry) & _left]
    if _ROOT in sys.path and _ROOT not in kept:
        kept.insert(next((i for i, entry in enumerate(kept) if entry.endswith(_INSTALLED)), len(kept)), _ROOT)
    sys.path[:] = kept


def environment() -> dict[str, str]:
    """The variables for a Python process that imports nothing from the current folder, nor from those that this one left."""
    left = _left | _real(".")
    paths = os.environ.get("PYTHONPATH", "")
    kept = [os.path.abspath(entry) for entry in paths.split(os.pathsep) if paths and not _real(entry) & left]
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(kept)}


def _real(*folders: str) -> set[str]:
    found = set()
    for folder in folders:
        try:
            found.add(os.path.realpath(folder or "."))
        except (OSError, ValueError):  # the current folder is gone, or the name has a NUL
            continue
    return found


def _is_pythons(entry: str) -> bool:
    return entry.endswith(_INSTALLED) or not _real(entry).isdisjoint(_PYTHONS)


def end_quietly() -> None:
    """Let a Ctrl-C during the imports end the process without a traceback; the command then takes it back."""
    import signal  # only now: its types would come from the current folder

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if is_command():  # before gradclip imports anything else
    leave()
    end_quietly()
