"""``python -m conformance.third_parties.release.record`` writes down the suite's result for each clip."""

from __future__ import annotations

import json
import warnings
from importlib.metadata import version
from typing import Any

import torch
from conformance.third_parties.clips import CLIPS, Clip
from conformance.third_parties.table import FOUND, PAGE, markdown

from gradclip.conformance import check_target

__all__ = ["found"]


def found(clip: Clip) -> dict[str, Any]:
    """Return one clip's entry for ``found.json``."""
    of_torch = clip.operation.startswith("torch.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from the packages' own code
        target = clip.make()
        report = check_target(target, dialects=[clip.operation])
        like = check_target(target, dialects=[clip.operation], like="native:torch") if of_torch else None
    return {
        "package": clip.package,
        "version": version(clip.package),
        "operation": clip.operation,
        "passed": sum(result.status == "pass" for result in report.results),
        "failed": _failed(report),
        "like": None if like is None else _failed(like),
    }


def _failed(report: Any) -> list[str]:
    return [result.case.partition("/")[2] for result in report.results if result.status == "fail"]


def _write() -> None:
    document = {"torch": torch.__version__.partition("+")[0], "clips": {clip.name: found(clip) for clip in CLIPS}}
    FOUND.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(markdown(), encoding="utf-8")


if __name__ == "__main__":
    _write()
