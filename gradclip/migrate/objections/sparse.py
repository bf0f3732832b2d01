"""GM111: sparse gradients, and gradients that are None."""

from __future__ import annotations

import re

import libcst as cst

from gradclip.natives import Kind
from gradclip.source.bind import keywords, literal
from gradclip.source.found import ApiCall, Context, Finding
from gradclip.source.source import Source, last_name, once, target_names, words

__all__ = ["assumption", "check"]

_SPARSE = words(
    "IndexedSlices embedding_lookup embedding_lookup_sparse safe_embedding_lookup_sparse embedding_column shared_embeddings "
    "TokenAndPositionEmbedding SelectedRows embed_sequence"
)


def check(found: ApiCall) -> Finding | None:
    """Duplicate rows that the native counts separately; a list from which code drops the Nones."""
    return _dropped(found) or _sparse(found)


def assumption(found: ApiCall) -> str:
    """The assumption that a rewrite makes if no code in the source shows whether gradients are sparse; usually ""."""
    kinds = (Kind.RETURNED, Kind.MEASURE, Kind.KEYWORD)
    if found.api.framework not in ("tensorflow", "keras") or found.api.kind not in kinds or not found.api.dialect:
        return ""
    if found.clips_by_value or _is_dense(found):
        return ""
    return "dense gradients: in sparse ones (IndexedSlices), gradclip merges duplicate rows first"


def _sparse(found: ApiCall) -> Finding | None:
    if found.api.framework not in ("tensorflow", "keras", "paddle") or found.api.dialect == "":
        return None
    if found.clips_by_value or _is_dense(found):
        return None
    known = found.tensors is not None and _is_asked_for(found, found.tensors, True)
    own = "IndexedSlices" if known else _evidence(found.context, found.api.framework == "paddle")
    where = f"`{own}`" if own is not None else found.context.options.about.sparse if found.api.framework != "paddle" else ""
    if not where:
        return None
    reason = f"{where} gives sparse gradients, whose duplicate rows the native counts separately; gradclip merges them."
    return Finding("GM111", reason, changes=True)


def _is_dense(found: ApiCall) -> bool:
    """Whether it is ``x.values``, or an ``if`` has ruled out IndexedSlices."""
    tensors = found.tensors
    if tensors is None:
        return False
    if isinstance(tensors, cst.Attribute) and tensors.attr.value == "values":
        return True
    return _is_asked_for(found, tensors, False)


def _is_asked_for(found: ApiCall, tensors: cst.BaseExpression, answer: bool) -> bool:
    """Whether an ``if`` around the call has asked ``isinstance(x, tf.IndexedSlices)``, with this answer."""
    source = found.context.source
    calls = (test for test, holds in source.tests(found.call) if holds is answer and isinstance(test, cst.Call))
    asked = (call.args for call in calls if last_name(call.func) == "isinstance" and len(call.args) == 2)
    shown = source.code(tensors)
    return any(source.code(one.value) == shown and last_name(kind.value) == "IndexedSlices" for one, kind in asked)


@once
def _evidence(context: Context, paddle: bool) -> str | None:
    """The code in the source that makes gradients sparse, if any."""
    source, resolver = context.source, context.resolver
    for binding in resolver.bindings:
        if re.match(r"transformers\.TF[A-Z][a-z]", binding.qualified) and not paddle:  # all embed words
            return binding.local
    for node in (*source.all(cst.Attribute), *source.all(cst.Name)):
        name = last_name(node)
        parent = source.parents[node]
        whole = not (isinstance(parent, cst.Attribute) and parent.attr is node)
        if name in _SPARSE and whole and (name != "IndexedSlices" or not _is_asked(node, source)):
            return source.code(node)
        if name == "gather" and isinstance(parent, cst.Call) and parent.func is node and _gathers(parent, context):
            return source.code(node)
        if name == "Embedding" and isinstance(parent, cst.Call) and parent.func is node:
            qualified = resolver.name(node)
            dense = paddle and not _is_sparse(parent)
            if qualified.partition(".")[0] in ("tensorflow", "keras", "paddle") and not dense:
                return source.code(node)
    return None


def _is_asked(node: cst.CSTNode, source: Source) -> bool:
    """Whether a class is an argument of ``isinstance``."""
    outer = source.within(node, cst.Call)
    return isinstance(outer, cst.Call) and last_name(outer.func) == "isinstance"


def _gathers(call: cst.Call, context: Context) -> bool:
    """Whether it is ``tf.gather(table, ids)`` of a variable; any other argument has a dense gradient."""
    if not call.args or not context.resolver.name(call.func).startswith("tensorflow."):
        return False
    table = call.args[0].value
    value = context.values.value_of(table)
    if isinstance(value, cst.Call):
        return last_name(value.func) in ("get_variable", "Variable", "add_weight")
    return re.search(r"embed|table|lookup|emb$|vocab", last_name(table), re.IGNORECASE) is not None


def _is_sparse(call: cst.Call) -> bool:
    told = keywords(call)
    return any(literal(told[name]) is True for name in ("sparse", "is_sparse") if name in told)


def _dropped(found: ApiCall) -> Finding | None:
    """``tf.clip_by_global_norm([g for g in grads if g is not None], c)``, and a later zip with all variables."""
    if found.api.kind is not Kind.RETURNED or found.tensors is None:
        return None
    source, values = found.context.source, found.context.values
    listed = values.value_of(found.tensors) or found.tensors
    if not isinstance(listed, cst.ListComp) or not isinstance(listed.elt, cst.Name):
        return None
    if not any("is not None" in source.code(condition.test) for condition in listed.for_in.ifs):
        return None
    holder = source.parents[found.call]
    target: cst.BaseExpression | None = holder.targets[0].target if isinstance(holder, cst.Assign) else None
    if isinstance(target, cst.Tuple):
        target = target.elements[0].value
    names = frozenset() if target is None else target_names(target)
    for call in source.calls.get("zip", ()):
        zipped = call.args and source.start(call) > source.start(found.call)
        if zipped and isinstance(call.args[0].value, cst.Name) and call.args[0].value.value in names:
            reason = (
                f"Gradients that are None are left out before the clip, and {source.shown(call)} pairs the rest by position."
            )
            return Finding("GM111", reason, "Leave them in: the clip returns None for None.")
    return None
