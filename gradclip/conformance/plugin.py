"""The pytest plugin: a summary and a report of the tests that ``parametrize_with_checks`` makes.

pytest always loads it if gradclip is installed. Before such a test it imports only pytest and gradclip's core, no framework.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

__all__: list[str] = []

_ATTRIBUTE = "gradclip_conformance"  #: of a test's report: the result, so that pytest-xdist sends it between processes


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "write the results of the tests of gradclip.conformance.parametrize_with_checks to FILE: .json or .html; repeatable"
    parser.getgroup("gradclip").addoption("--gradclip-report", action="append", default=[], metavar="FILE", help=text)


def pytest_configure(config: pytest.Config) -> None:
    for file in config.getoption("--gradclip-report"):
        if Path(file).suffix not in (".json", ".html"):
            raise pytest.UsageError(f"--gradclip-report: FILE must end in .json or .html.\nReceived: {file!r}")
        if not Path(file).parent.is_dir():
            raise pytest.UsageError(f"--gradclip-report: there is no folder for FILE.\nReceived: {file!r}")
        if file.endswith(".html") and importlib.util.find_spec("jinja2") is None:
            hint = "pip install 'gradclip[conformance]'"
            raise pytest.UsageError(f"--gradclip-report: HTML needs jinja2, which is not installed.\nHint: {hint}")

    config.pluginmanager.register(_Collector(config), "gradclip-collector")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the result of a case to the report of its test."""
    report = yield
    case: Any = item.callspec.params.get("case") if call.when == "call" and hasattr(item, "callspec") else None
    if type(case).__name__ == "ConformanceCase" and case.result is not None:  # by name: unrelated runs import nothing
        about = case.about.as_json()
        case.about.results.clear()  # once for all cases of the target
        setattr(report, _ATTRIBUTE, {**about, "results": [case.result.as_json(), *about["results"]]})
    return report


class _Collector:
    """Collects the results in the reports of the tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._files: list[str] = config.getoption("--gradclip-report")
        self._is_worker = hasattr(config, "workerinput")  # a worker of pytest-xdist: it passes its reports on
        self._found: dict[str, Any] = {}  #: the JSON of a report
        self._results: dict[tuple[str, str], dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found = getattr(report, _ATTRIBUTE, None)
        if found is None:
            return
        self._results.update({(result["target"], result["case"]): result for result in found["results"]})
        old = self._found or found
        merged = {key: {**old[key], **found[key]} for key in ("vector_versions", "targets")}
        self._found = {"suite_version": found["suite_version"], **merged}

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self._results and not self._files:
            return
        terminalreporter.section("gradclip conformance")
        if not self._results:
            terminalreporter.line(f"No such test ran: {', '.join(self._files)} not written.")
            return
        report = self._report()
        for target in report.targets:
            counts = report.counts(target)
            terminalreporter.line(f"{target}: " + ", ".join(f"{count} {status}" for status, count in counts.items() if count))
        for file in self._files:
            terminalreporter.line(f"written: {file}")

    def pytest_sessionfinish(self) -> None:
        if self._is_worker or not self._results:
            return
        from gradclip.conformance.report import lay_out, write_html, write_json

        for file in self._files:
            if file.endswith(".json"):
                write_json(self._report(), file)
            else:
                write_html(lay_out(self._report()), file)

    def _report(self) -> Any:
        from gradclip.conformance.result import Report

        report = Report.from_json({**self._found, "results": list(self._results.values())})
        for name, entry in report.targets.items():
            entry["seconds"] = sum(result.seconds for result in report.results if result.target == name)
        return report
