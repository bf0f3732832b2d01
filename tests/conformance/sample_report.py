"""A report written by hand, with every status, reason and outcome, and the vector files that it refers to."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from gradclip.conformance.array import rounded
from gradclip.conformance.load import Flag, Vector, VectorFile
from gradclip.conformance.report.view import View, view
from gradclip.conformance.result import Report, Result

NORM, GLOBAL, VALUE = "torch.clip_grad_norm_", "tensorflow.clip_by_global_norm", "optax.clip"
HOSTILE = '<script>document.title = "pwned"</script>&amp;\'"'


def number(value: float) -> str:
    return rounded(float(value), "float32").hex()


def array(*values: float) -> dict[str, Any]:
    return {"dtype": "float32", "shape": [len(values)], "values": [number(value) for value in values]}


def outcome(*gradients: Any, norm: float | None = None) -> dict[str, Any]:
    return {"gradients": list(gradients), "norm": None if norm is None else {"dtype": "float32", "value": number(norm)}}


def vector(name: str, comment: str, flags: list[str], gradients: list[Any], **arguments: float) -> dict[str, Any]:
    given = {key: {"float": float(value).hex()} for key, value in arguments.items()}
    return {"id": name, "comment": comment, "flags": flags, "gradients": gradients, "iterator": False, "arguments": given}


def file(operation: str, flags: dict[str, Flag], *vectors: dict[str, Any]) -> VectorFile:
    link = f"https://example.org/{operation}"
    formula = "g * min(1, max_norm / (norm + 1e-6))"
    return VectorFile("", operation, "1.0.0", formula, link, {}, flags, tuple(Vector(operation, json) for json in vectors))


INFINITE = Flag(
    "A limit of infinity only measures.",
    "Every gradient becomes NaN with the first step, and every parameter with it.",
    ("https://github.com/tensorflow/tensorflow/issues/109146",),
)
OVERFLOW = Flag(
    "The squares of finite gradients leave the dtype.",
    f"A healthy gradient is taken for an infinite one; {HOSTILE}.",
    ("https://github.com/pytorch/pytorch/issues/193006", "https://example.org/?a=1&b=2"),
)

BIG = array(3e30, 4e30)
FILES = (
    file(
        NORM,
        {"InfiniteLimit": INFINITE, "Overflow": OVERFLOW},
        vector("A1", "the norm is above the limit", [], [array(3, 4)], max_norm=1),
        vector("E4", "a limit of infinity only measures", ["InfiniteLimit"], [array(3, math.inf), None], max_norm=math.inf),
        vector("H1", "squares that overflow", ["Overflow"], [BIG, {"same_as": 0}], max_norm=1e31),
        vector("H2", "squares that overflow, and a second tensor", ["Overflow"], [BIG, array(1)], max_norm=1e31),
    ),
    file(GLOBAL, {"InfiniteLimit": INFINITE}, vector("E4", "", ["InfiniteLimit"], [array(3, 4)], clip_norm=math.inf)),
)
CHECKS = {
    "order_invariance": SimpleNamespace(
        description="The order of the gradients is of no effect.",
        training="Two runs that register the same layers in another order part.",
    )
}


def _result(target: str, operation: str, name: str, status: str, **more: Any) -> Result:
    kind = more.pop("kind", "vector")
    return Result(target, operation, f"{operation}/{name}", kind, status, **more)


def results() -> list[Result]:
    """Return the results of three targets: one is right, one is wrong in every way, and one claims little."""
    infinite = {"flags": ("InfiniteLimit",), "expected": [outcome(array(3, math.inf), None, norm=math.inf)]}
    overflow = {"flags": ("Overflow",), "expected": [outcome(BIG, BIG, norm=5e30)], "got": outcome(array(0, 0), array(0, 0))}
    long = {"dtype": "float32", "shape": [2**20], "values": ["0x1p+0"] * 20, "total": 2**20}
    names = ("A1", "E4", "H1", "H2")
    good = [_result("gradclip:torch", NORM, name, "pass", seconds=0.01) for name in names]
    return [
        *good,
        _result("gradclip:torch", NORM, "order_invariance", "pass", kind="check"),
        _result("gradclip:torch", GLOBAL, "E4", "pass"),
        _result("gradclip:torch", VALUE, "A1", "unclaimed", needs=("float32",)),
        _result("my_clip", NORM, "A1", "pass"),
        _result(
            "my_clip",
            NORM,
            "E4",
            "fail",
            message="gradient 0[0] is nan, not 3.0",
            got=outcome(array(math.nan, math.nan), None, norm=math.inf),
            ulps=math.inf,
            **infinite,
        ),
        _result("my_clip", NORM, "H1", "fail", message="gradient 0[0] is 0.0, not 3e+30", ulps=12345678.0, **overflow),
        _result("my_clip", NORM, "H2", "fail", reason="raised", message=f"raised ValueError: {HOSTILE}", flags=("Overflow",)),
        _result(
            "my_clip",
            NORM,
            "order_invariance",
            "fail",
            kind="check",
            message="the gradients in another order are clipped to other values",
            expected=[outcome(long)],
            got=outcome({**long, "dtype": "float16"}),
            ulps=3.0,
        ),
        _result("my_clip", VALUE, "A1", "fail", reason="hung", message="did not end within 5 seconds"),
        _result("native:tensorflow", NORM, "A1", "unclaimed", needs=("float32",)),
        _result("native:tensorflow", NORM, "E4", "unclaimed", needs=("none",)),
        _result("native:tensorflow", GLOBAL, "E4", "expected", message="NaN, as tensorflow#109146 says", **infinite),
        _result("native:tensorflow", GLOBAL, "A9", "unexpected", message="declared: it was once wrong", flags=("Gone",)),
    ]


def report() -> Report:
    entry = {"versions": {"torch": "2.13.0"}, "device": "cpu", "seconds": 1.25}
    targets = {"gradclip:torch": entry, "my_clip": {**entry, "versions": {"numpy": "2.4.6"}}, "native:tensorflow": entry}
    return Report("1.0.0", {NORM: "1.0.0", GLOBAL: "1.0.0", VALUE: "1.1.0"}, targets, results())


def sample() -> View:
    return view(report(), FILES, CHECKS)
