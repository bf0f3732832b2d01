"""What still holds the old gradients where a clip by hand gives each parameter a new one."""

from __future__ import annotations

import libcst as cst

from gradclip.migrate.byhand.functional import Exactly
from gradclip.migrate.byhand.harmless import aliased
from gradclip.source.found import Context
from gradclip.source.source import target_names

__all__ = ["holds"]


def holds(clip: Exactly, context: Context) -> cst.CSTNode | None:
    """The assignment of gradients to a name that is read after a clip; None if there is none."""
    source = context.source
    function, (start, stop) = source.function(clip.site), source.span(clip.site)
    whole = (0, len(source.data)) if isinstance(function, cst.Module) else source.span(function)
    for one in source.between(cst.Assign, *whole):
        held = any(path.endswith(".grad") for path in aliased(one.value)) and not start <= source.start(one) < stop
        names = {name for target in one.targets for name in target_names(target.target)} if held else set()
        if any(source.start(use) >= stop for name in names for use in context.resolver.uses[name]):
            return one
    return None
