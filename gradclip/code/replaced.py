"""Functions of the table that a source replaces: ``torch.nn.utils.clip_grad_norm_ = mine``, ``mock.patch("...")``."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from gradclip.code.resolve import Resolver
from gradclip.code.source import Source, last_name
from gradclip.natives import BY_NAME

__all__ = ["replacements"]

_PATCHES = frozenset({"patch", "setattr", "delattr", "object"})  # mock's, pytest's monkeypatch's, and the builtins


def replacements(source: Source, resolver: Resolver) -> Mapping[cst.CSTNode, str]:
    """The places that replace a function -> the qualified name of the function."""
    found: dict[cst.CSTNode, str] = {}
    for assigned in source.any(cst.AssignTarget):
        if isinstance(assigned.target, cst.Attribute):
            found[assigned.target] = resolver.name(assigned.target)
    for call in source.any(cst.Call):
        if last_name(call.func) in _PATCHES:
            found[call] = _patched(call, resolver)
    return {node: name for node, name in found.items() if name in BY_NAME}


def _patched(call: cst.Call, resolver: Resolver) -> str:
    """The function that ``patch("a.b")``, ``patch.object(a, "b")`` or ``setattr(a, "b", mine)`` replaces."""
    values = [argument.value for argument in call.args[:2]]
    if not values:
        return ""
    if isinstance(values[0], cst.SimpleString):
        return str(values[0].raw_value)
    if len(values) == 2 and isinstance(values[1], cst.SimpleString):
        return f"{resolver.name(values[0])}.{values[1].raw_value}"
    return ""
