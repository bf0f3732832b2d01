"""``pytest --progress NAME``: prints lines that begin with the name, instead of a letter for each test.

tox runs several environments at once and shows their output as it comes: the letters would mix.
"""

from __future__ import annotations

import time
from collections.abc import Generator

import pytest

SECONDS = 20.0  #: seconds between two lines


class Progress:
    """Prints the number of tests, every few seconds the number of finished ones, and each failure at once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._begun = self._said = time.monotonic()
        self._all = self._ended = 0
        self._is_over = False

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._reporter: pytest.TerminalReporter = session.config.pluginmanager.getplugin("terminalreporter")
        self._reporter.showfspath = False  # nor the files' names

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._all = len(session.items)
        self._say(f"{self._all} tests")

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> Generator[None, tuple[str, str, str], tuple[str, str, str]]:
        """Hide the letter and the word while tests run, and keep the category for the counts; the summary is unchanged."""
        category, letter, word = yield
        return (category, letter, word) if self._is_over else (category, "", "")

    def pytest_sessionfinish(self) -> None:
        self._is_over = True  # this runs before the summary

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
