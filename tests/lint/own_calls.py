"""A program with gradclip's functions in the place of the natives, by the table that ``gradclip migrate`` has."""

from __future__ import annotations

import libcst as cst

from gradclip.migrate.codemod import _imports
from gradclip.migrate.codemod.decision import Rewrite
from gradclip.migrate.codemod.rewrite import rewritten
from gradclip.natives import Native
from gradclip.natives.targets import targets
from gradclip.source.bind import keyword
from gradclip.source.byhand.clamps import ByValue
from gradclip.source.byhand.norms import ByNorm
from gradclip.source.found import ApiCall, Context, Decision
from gradclip.source.model import Migrated, Options
from gradclip.source.sites import decided, read

__all__ = ["as_own", "replaced"]


def as_own(program: str) -> str:
    """The program with each native replaced, also where it is a mistake and ``gradclip migrate`` leaves it."""
    return read(program, Options(), lambda context: _rewritten(context, [])).source


def replaced(program: str) -> list[Native]:
    """The natives of a program that gradclip's functions can replace."""
    made: list[Rewrite] = []
    read(program, Options(), lambda context: _rewritten(context, made))
    return [one.api for one in made if one.api is not None]


def _rewritten(context: Context, made: list[Rewrite]) -> Migrated:

    def replace(found: ApiCall | ByValue | ByNorm) -> list[Decision]:
        target = targets(found.api).get("gradclip") if isinstance(found, ApiCall) else None
        rewrite = rewritten(found, target) if target is not None and not target.by_hand else None
        made.extend([rewrite] if isinstance(rewrite, Rewrite) else [])
        return []

    for one in decided(context, replace):
        if one.api is not None and one.api.keyword and isinstance(one.node, cst.Call):  # a keyword that clips nothing
            given = {name: x for x in one.node.args if (name := keyword(x)) == one.api.keyword}
            replace(ApiCall(context, one.node, one.api, one.api.names[0], given, targets(one.api)["gradclip"], "keras"))
    edits = [edit for one in made for edit in one.edits]
    return Migrated(context.source.edited([*edits, *(_imports(made, context) if made else [])]))
