"""GM102: a call clips only its own arguments, so a loop clips each tensor or group separately."""

from __future__ import annotations

import libcst as cst

from gradclip.migrate.objections.elsewhere import rule
from gradclip.natives import Kind
from gradclip.source.found import ApiCall, Finding
from gradclip.source.source import root

__all__ = ["check"]


def check(found: ApiCall) -> Finding | None:
    """A clip in a loop over its own arguments that has to change its form: one rule would take one norm over all of them."""
    if not found.crosses or found.api.kind is not Kind.IN_PLACE or found.context.options.to in ("torch", "paddle"):
        return None
    tensors = found.tensors
    if tensors is None or found.clips_by_value:
        return None
    elements = tensors.elements if isinstance(tensors, (cst.List, cst.Tuple)) else ()
    parts = (root(part) for part in (tensors, *(element.value for element in elements)))
    loop = found.context.source.loop(found.call, *(part.value for part in parts if isinstance(part, cst.Name)))
    if loop is None:
        return None
    over = found.context.source.code(loop.iter)
    advice = f"Write: [gradclip.clip(g, {rule(found)}).grads for g in grads], with one g for each pass over {over}."
    return Finding("GM102", f"Each pass of the loop over {over} clips by a norm of its own.", advice)
