"""Marks on functions that tell tracers to call them unchanged. The frameworks' own decorators would need an import.

torch.compile, tf.function and paddle.jit.to_static rewrite the Python source that they trace. gradclip needs no rewriting,
because its control flow depends on Python values only; rewritten, it would take seconds to trace (TensorFlow), fail (Paddle),
or stop at the look-up of a type (torch). Each tracer calls a function unchanged if it has a mark:

- AutoGraph: the mark of ``tf.autograph.experimental.do_not_convert``,
  https://www.tensorflow.org/api_docs/python/tf/autograph/experimental/do_not_convert
- Paddle: the mark of ``paddle.jit.not_to_static``,
  https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/jit/not_to_static_en.html
  In its default mode, SOT, Paddle runs a marked function between two programs, like ``paddle.jit.marker.force_dynamic``.
- torch: the mark of ``torch.compiler.assume_constant_result``, for a function of Python values only,
  https://docs.pytorch.org/docs/stable/generated/torch.compiler.assume_constant_result.html
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["MARKED", "constant", "untraced"]

F = TypeVar("F", bound=Callable[..., object])


#: every function that :func:`untraced` marks
MARKED: list[Callable[..., object]] = []


class _Untraced:
    """Paddle's mark has two methods, and one attribute up to Paddle 3.1."""

    not_convert = True

    def need_transform(self, mode: Any) -> bool:
        if mode.name != "SOT":
            return False
        importlib.import_module("gradclip.backends.paddle")  # its import tells SOT to run these functions
        return True

    def need_capture_control_flow(self) -> bool:
        return False


def untraced(function: F) -> F:
    """Mark a function: AutoGraph and paddle.jit.to_static call it and do not rewrite it."""
    function.autograph_info__ = None  # type: ignore[attr-defined]
    function.___jit_transform_options___ = _Untraced()  # type: ignore[attr-defined]
    function.__jst_not_to_static = _Untraced()  # type: ignore[attr-defined]
    MARKED.append(function)
    return function


def constant(function: F) -> F:
    """Mark a function of Python values: torch.compile calls it while tracing, and its result is a constant."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
