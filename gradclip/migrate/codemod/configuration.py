"""Keys of trainers' configurations: reported, never rewritten."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from gradclip.migrate.apis import KEYWORDS
from gradclip.migrate.codemod.bind import literal
from gradclip.migrate.codemod.calls import manual, unchanged
from gradclip.migrate.codemod.found import Context, Decision, Finding
from gradclip.migrate.codemod.source import last_name

__all__ = ["KEYS", "assigned", "attribute", "entry", "keyword"]

KEYS = {
    "gradient_clip_val": "GM501",
    "gradient_clip_algorithm": "GM501",
    "max_grad_norm": "GM502",
    "gradient_clipping": "GM503",
    "grad_clip": "GM504",
    "clip_grad": "GM504",
    "CLIP_GRADIENTS": "GM504",
}
_CLIPS = frozenset({"clipnorm", "global_clipnorm", "clipvalue"})
_TRAINERS = re.compile(r"(Trainer|Arguments|Config|PPO\w*|A2C|TRPO|make_private\w*|PrivacyEngine|Learner|Args)$")


def keyword(node: cst.Arg, context: Context) -> Iterator[Decision]:
    """``Trainer(gradient_clip_val=0.5)``, ``TrainingArguments(max_grad_norm=1.0)``, ``dict(grad_clip=dict(max_norm=35))``."""
    call = context.source.parents.get(node)
    if node.keyword is None or not isinstance(call, cst.Call):
        return
    key, name = node.keyword.value, last_name(call.func)
    if literal(node.value) is None:
        yield unchanged(node, "GM003", f"`{key}=None` is off.")
    elif key in ("grad_clip", "clip_grad"):
        if _is_settings(node.value, context):
            yield _manual(node, key, context)
    elif key == "max_grad_norm" and not _TRAINERS.search(name):
        yield unchanged(
            node, "GM207", f"`{key}` is handed to `{context.source.code(call.func)}`, which is the project's own to read."
        )
    elif name == "dict" or key != "gradient_clipping" or _TRAINERS.search(name):
        yield _manual(node, key, context)


def entry(node: cst.DictElement, context: Context) -> Iterator[Decision]:
    """``{"gradient_clipping": 1.0}``, ``{"clipnorm": 1.0}``."""
    key = node.key.raw_value if isinstance(node.key, cst.SimpleString) else None
    if not isinstance(key, str) or literal(node.value) is None:
        return
    if key in KEYS and (KEYS[key] != "GM504" or _is_settings(node.value, context)):
        yield _manual(node, key, context)
    elif key in _CLIPS and KEYWORDS:
        reason = f'"{key}" is a keyword of Keras\'s optimizers, in a configuration.'
        yield manual(
            node, Finding("GM504", reason, "Make the optimizer from it, then gradclip.backends.keras.clipped(optimizer, rule).")
        )


def attribute(node: cst.Attribute, context: Context) -> Iterator[Decision]:
    """``cfg.SOLVER.CLIP_GRADIENTS.ENABLED = True``."""
    if isinstance(context.source.within(node, cst.AssignTarget), cst.AssignTarget):
        yield _manual(node, "CLIP_GRADIENTS", context)


def assigned(node: cst.Attribute, context: Context) -> Iterator[Decision]:
    """``optimizer.clipnorm = 1.0``; not ``self.clipnorm = clipnorm``, by which a class keeps what it was given."""
    holder = context.source.parents[node]
    statement = context.source.parents.get(holder)
    if not isinstance(holder, cst.AssignTarget) or not isinstance(statement, cst.Assign) or last_name(node.value) == "self":
        return
    written = context.source.code(node)
    if literal(statement.value) is None:
        yield unchanged(node, "GM003", f"`{written} = None` is off.")
        return
    reason = f"`{written}` is what an optimizer of Keras clips by."
    yield manual(node, Finding("GM504", reason, "Leave it out, and write: gradclip.backends.keras.clipped(optimizer, rule)."))


def _manual(node: cst.CSTNode, key: str, context: Context) -> Decision:
    return manual(node, Finding(KEYS[key]))


def _is_settings(node: cst.BaseExpression, context: Context) -> bool:
    """``dict(max_norm=35, norm_type=2)``: what mmcv's and others' configurations hand to torch's clip."""
    settings = isinstance(node, cst.Dict) or (isinstance(node, cst.Call) and last_name(node.func) == "dict")
    return settings and re.search(r"max_norm|clip_value|norm_type|type", context.source.code(node)) is not None
