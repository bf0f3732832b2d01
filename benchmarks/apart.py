"""The command line ``python -m benchmarks.NAME [--frameworks A,B]``, which measures each framework in a process of its own."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterable

__all__ = ["command"]


def command(
    module: str,
    about: str | None,
    frameworks: Iterable[str],
    measure: Callable[[str, argparse.Namespace], bool],
    add_options: Callable[[argparse.ArgumentParser], object] = lambda parser: None,
) -> int:
    """Measure each installed framework in its own process, ``python -m module``; return the exit code.

    Args:
        module: the name of the command's module.
        about: its docstring.
        frameworks: those that it can measure.
        measure: prints the figures of a framework; returns whether they are as they should be.
        add_options: adds the command's own options.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frameworks", default=",".join(frameworks))
    parser.add_argument("--here", action="store_true", help="in this process: for one framework")
    add_options(parser)
    options = parser.parse_args()
    names = [name for name in options.frameworks.split(",") if importlib.util.find_spec(name)]
    if options.here:
        good = [measure(name, options) for name in names]
        return int(not all(good))
    own = [sys.executable, "-m", module, *sys.argv[1:], "--here", "--frameworks"]
    ended = [subprocess.run([*own, name], check=False).returncode for name in names]
    return int(any(ended))  # a signal's is negative
