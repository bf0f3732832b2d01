"""The process of one rank, to which :mod:`gradclip.conformance.ranks.runs` gives its orders."""

from __future__ import annotations

import faulthandler
import importlib
import os
import sys
import traceback
import warnings
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from gradclip.conformance.array import Array, number_to_json
from gradclip.conformance.cases import plan
from gradclip.conformance.children import Message, told
from gradclip.conformance.compare import compare
from gradclip.conformance.load import Vector
from gradclip.conformance.ranks.fits import fits
from gradclip.conformance.specification import Specification
from gradclip.conformance.vector import MOST, words_of
from gradclip.core.errors import ArgumentError

__all__ = ["main"]

_STARTING = 300  # seconds for the import of the framework


def main(task: Message, pipe: Connection, log: Path) -> None:
    """Run this rank. What the framework and the clip print goes to the log."""
    with log.open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    try:
        _run(task, pipe)
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        with suppress(OSError):
            pipe.send({"end": told(error)})
    finally:
        os._exit(0)  # other ranks may be gone, and a process group waits for them


def _run(task: Message, pipe: Connection) -> None:
    """Run each case that the command asks for, until it closes the pipe."""
    faulthandler.dump_traceback_later(_STARTING, exit=True)
    try:
        name, function = _function(Specification.parse(task["target"]))  # first: torch takes seconds to import
        framework = importlib.import_module("gradclip.backends.targets.torch_ranks")
        clip = framework.clip_of(function)
    except ArgumentError as error:
        pipe.send({"usage": error.args})
        return
    cases = plan(task["dialects"], task["select"], task["vectors"], task["ranks"]).cases
    world, group = framework.World(task["rank"], task["ranks"], Path(task["folder"])), task["group"]
    world.renew(group)
    world.warm_up()
    pipe.send({"ready": name, "optional": sorted(clip.optional), "versions": framework.versions})
    while True:
        order = pipe.recv()
        # the command ends the process sooner; this is for a process whose command was killed
        faulthandler.dump_traceback_later(2 * task["seconds"] + _STARTING, exit=True)
        if order["group"] != group:
            group = order["group"]
            world.renew(group)
        pipe.send({"case": order["case"], **_outcome(cases[order["case"]].content, world, clip)})


def _function(specification: Specification) -> tuple[str, Any]:
    """The function to test, and its name."""
    if specification.kind == "object":
        found = specification.read()
        if callable(found) and not isinstance(found, type):
            return getattr(found, "__name__", type(found).__name__), found
        hint = "def clip(parameters, max_norm): ..., which clips in place."
        raise ArgumentError("--ranks tests a function.", specification.text, hint)
    if specification.name != "torch":
        hint = "gradclip:torch, native:torch, or a function of yours."
        raise ArgumentError("--ranks tests clips of torch's tensors.", specification.text, hint)
    module = "gradclip" if specification.kind == "gradclip" else "torch.nn.utils"
    return f"{module}.clip_grad_norm_", importlib.import_module(module).clip_grad_norm_


def _limit(vector: Vector) -> tuple[float, float]:
    """The limit and the order of a vector."""
    given = vector.arguments
    return tuple(float(getattr(x, "value", x)) for x in (given["max_norm"], given.get("norm_type", 2.0)))  # type: ignore[return-value]


def _outcome(vector: Vector, world: Any, clip: Any) -> Message:
    """What came of a vector on this rank."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings are not tested
        try:
            before, got, want = world.run(vector, clip)
        except (Exception, SystemExit) as error:
            return {"raised": words_of(error)}
    difference = compare(got, want, vector.ulp)
    norm = got.norm.values[0] if isinstance(got.norm, Array) and got.norm.values else got.norm
    return {
        "wrong": difference.message,
        "fits": fits(before, got.gradients, *_limit(vector)) if difference.message else None,
        "ulps": min(difference.ulps, sys.float_info.max),  # JSON has no infinity
        "got": got.as_json(MOST),
        "expected": want.as_json(MOST),
        "norm": number_to_json(norm),
    }
