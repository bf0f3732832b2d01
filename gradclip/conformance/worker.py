"""The process of one target: runs the cases and sends each result. ``python -m gradclip.conformance.worker JSON``.

:mod:`gradclip.conformance.processes` defines its messages.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from typing import Any

from gradclip.conformance.cases import Plan, plan
from gradclip.conformance.children import Message, channel
from gradclip.conformance.declared import xfails_of_run
from gradclip.conformance.engine import new_report, run_plan
from gradclip.conformance.like import as_native
from gradclip.conformance.protocol import name_of
from gradclip.conformance.specification import Specification
from gradclip.core.errors import ArgumentError

__all__: list[str] = []


_STARTING = 300  # seconds for the import of a framework
_TRIALS = 10  # seconds at least for trial calls that hold the interpreter


def run(task: Message, send: Any) -> bool:
    """Run the cases of a task.

    Returns:
        Whether a case still hangs.
    """
    made: Plan = as_native(plan(task["dialects"], task["select"], task["vectors"]), task["like"])
    report, hangs = new_report(made), False

    def start(index: int) -> None:
        _watch(2 * task["seconds"] + 1)  # the thread with the time limit cannot run while a call holds the interpreter
        send({"start": index})

    _watch(_STARTING)
    try:
        told = {name: task[name] for name in ("arrays", "takes", "in_place")}
        trying = (lambda: _watch(max(_TRIALS, 2 * task["seconds"] + 1))) if task["tries"] else None
        target = Specification.parse(task["target"]).load(task["operation"], **told, trying=trying)
        getattr(target, "claims", None)  # a function is tried here at the latest
        _watch(_STARTING)
        xfails = xfails_of_run(task["shipped"], task["xfails"])
        send({"target": name_of(target)})
        for result in run_plan(target, made, xfails, report, task["seconds"], task["skip"], start, task["hopeless"]):
            hangs = hangs or result.reason == "hung"
            send({"result": result.as_json()})
    except ArgumentError as error:  # also a declared case that does not exist
        send({"usage": error.args})
        return hangs
    send({"targets": report.targets})
    return hangs


def _watch(seconds: float) -> None:
    """End the process after some seconds, even if a call holds the interpreter and no thread can run."""
    faulthandler.dump_traceback_later(seconds, exit=True)


if __name__ == "__main__":
    with channel() as send:
        hangs = run(json.loads(sys.argv[1]), send)
    faulthandler.cancel_dump_traceback_later()
    if hangs:
        os._exit(0)  # else Python would wait for the thread, or crash at exit
