"""``pytest --progress NAME``: lines that begin with the name, in place of a letter for each test.

tox runs environments at the same time, and shows what they print as it comes: their letters would mix.
"""

from __future__ import annotations

import time
from collections.abc import Generator

import pytest

SECONDS = 20.0  #: between two lines


class Progress:
    """Says how many tests there are, every few seconds how many have ended, and each failure at once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._begun = self._said = time.monotonic()
        self._all = self._ended = 0
        self._is_over = False

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._reporter: pytest.TerminalReporter = session.config.pluginmanager.getplugin("terminalreporter")
        self._reporter.showfspath = False  # no names of files either

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._all = len(session.items)
        self._say(f"{self._all} tests")

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> Generator[None, tuple[str, str, str], tuple[str, str, str]]:
        """No letter and no word while tests run, only the category, which is counted; the summary is as ever."""
        category, letter, word = yield
        return (category, letter, word) if self._is_over else (category, "", "")

    def pytest_sessionfinish(self) -> None:
        self._is_over = True  # before the summary is written

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._say(f"FAILED {report.nodeid}" + ("" if report.when == "call" else f" ({report.when})"))

    def pytest_runtest_logfinish(self) -> None:
        self._ended += 1
        if self._ended == self._all or time.monotonic() - self._said >= SECONDS:
            self._say(f"{self._ended * 100 // self._all} % of {self._all} tests, {time.monotonic() - self._begun:.0f} s")

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        self._reporter.write_line(f"{self._name}: {text}")
        self._reporter.flush()
