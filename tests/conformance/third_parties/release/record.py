"""``python -m conformance.third_parties.release.record torch`` writes down the suite's result for each clip on a framework."""

from __future__ import annotations

import json
import sys
import warnings
from importlib.metadata import packages_distributions, version
from typing import Any

from conformance.third_parties.clips import FRAMEWORKS, Clip, clips_of
from conformance.third_parties.following import FOLLOWERS, Follower, wrong_steps
from conformance.third_parties.table import FOUND, PAGE, markdown

from gradclip.conformance import check_target

__all__ = ["followed", "found", "version_of"]

DIALECTS = {"torch": "torch", "tensorflow": "tensorflow", "paddle": "paddle", "jax": "optax"}


def found(clip: Clip, framework: str) -> dict[str, Any]:
    """Return one clip's entry for ``found.json``."""
    has_native = clip.operation.startswith(f"{DIALECTS[framework]}.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from the packages' own code
        target = clip.make()
        report = check_target(target, dialects=[clip.operation])
        like = check_target(target, dialects=[clip.operation], like=f"native:{DIALECTS[framework]}") if has_native else None
    return {
        "package": clip.package,
        "version": version(clip.package),
        "operation": clip.operation,
        "passed": sum(result.status == "pass" for result in report.results),
        "failed": _failed(report),
        "like": None if like is None else _failed(like),
    }


def followed(follower: Follower) -> dict[str, Any]:
    """Return one limit's entry for ``found.json``."""
    return {
        "package": follower.package,
        "version": version(follower.package),
        "rule": follower.rule,
        "wrong": wrong_steps(follower),
    }


def version_of(framework: str) -> str:
    """The version of a framework, without the build."""
    return version(packages_distributions()[framework][0]).partition("+")[0]


def _failed(report: Any) -> list[str]:
    return [result.case.partition("/")[2] for result in report.results if result.status in ("fail", "native")]


def _write(frameworks: list[str]) -> None:
    document = json.loads(FOUND.read_text(encoding="utf-8"))
    if "torch" in frameworks:
        document["following"] = {one.name: followed(one) for one in FOLLOWERS}
    for one in frameworks:
        document["versions"][one] = version_of(one)
        document["clips"][one] = {clip.name: found(clip, one) for clip in clips_of(one)}
        FOUND.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(markdown(), encoding="utf-8")


if __name__ == "__main__":
    _write(sys.argv[1:] or list(FRAMEWORKS))
