"""Sources that the linter reads: one, or the files of a run."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from importlib import util

from gradclip.source import runner
from gradclip.source.files import Found
from gradclip.source.model import Options, Site

__all__ = ["HAS_LIBCST", "of_source", "run"]

_OPTIONS = Options(lint=True)
HAS_LIBCST = util.find_spec("libcst") is not None  #: without it, only what a training step shows is looked for

if HAS_LIBCST:
    from gradclip.source.sites import linted
else:
    from gradclip.lint.plain import linted


def of_source(source: str) -> tuple[Site, ...]:
    """The clips in a source and its mistakes, in the order of the text.

    Raises:
        SourceError: if the source is not Python 3.
    """
    return linted(source, _OPTIONS).sites


def run(found: Iterable[Found], jobs: int) -> Generator[runner.FileResult, None, None]:
    """Read files in parallel.

    Args:
        found: the files.
        jobs: the number of processes.

    Returns:
        A result for each of ``found``, in its order.
    """
    return runner.run(found, runner.Request(_OPTIONS, diff=False), jobs, linted)
