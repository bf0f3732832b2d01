"""The conformance suite: whether a clipping implementation does what its name says.

The public names are imported on demand, so the pytest plugin, which pytest always loads, costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradclip.conformance.adapted import gradclip_target, native_target
    from gradclip.conformance.array import Array
    from gradclip.conformance.engine import check_target
    from gradclip.conformance.function import function_target
    from gradclip.conformance.load import load_vectors
    from gradclip.conformance.parametrize import parametrize_with_checks
    from gradclip.conformance.result import Report, Result
    from gradclip.conformance.target import Target

__all__ = [
    "Array",
    "Report",
    "Result",
    "Target",
    "check_target",
    "function_target",
    "gradclip_target",
    "load_vectors",
    "native_target",
    "parametrize_with_checks",
]

_WHERE = {
    "Array": "array",
    "Report": "result",
    "Result": "result",
    "Target": "target",
    "check_target": "engine",
    "function_target": "function",
    "gradclip_target": "adapted",
    "load_vectors": "load",
    "native_target": "adapted",
    "parametrize_with_checks": "parametrize",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_WHERE]
