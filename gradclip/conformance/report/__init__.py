"""A report for reading: text, one HTML page, or JSON with a schema."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

from gradclip.conformance.checks import CHECKS
from gradclip.conformance.load import VectorFile, load_vectors
from gradclip.conformance.report.view import View, view
from gradclip.conformance.result import Report

__all__ = ["as_json", "lay_out", "schema", "write_html", "write_json"]


def lay_out(report: Report, files: Iterable[VectorFile] | None = None) -> View:
    """A report with its cases explained; ``files``: the vectors of the run, if not gradclip's own."""
    return view(report, load_vectors() if files is None else files, CHECKS)


def as_json(report: Report) -> str:
    """A report as JSON, which :func:`schema` describes."""
    text = json.dumps(report.as_json(), indent=1, allow_nan=False, default=repr)  # a target may return anything
    return f"{text}\n"


def write_json(report: Report, path: Path | str) -> None:
    """Write a report as JSON."""
    Path(path).write_text(as_json(report), encoding="utf-8")


def write_html(view: View, path: Path | str) -> None:
    """Write a report as one HTML page.

    Raises:
        ModuleNotFoundError: if jinja2 is not installed.
    """
    from gradclip.conformance.report.html import page  # here: it needs jinja2, which nothing else does

    Path(path).write_text(page(view), encoding="utf-8")


def schema() -> dict[str, Any]:
    """The JSON Schema of a report."""
    text = resources.files(__name__).joinpath("report.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded
