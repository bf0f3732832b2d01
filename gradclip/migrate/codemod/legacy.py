"""Files for obsolete frameworks, in whose environment gradclip cannot run: TensorFlow 1 and ``paddle.fluid``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import libcst as cst

from gradclip.source.codes import CODES
from gradclip.source.found import ApiCall, Context, Decision, Finding
from gradclip.source.model import Verdict
from gradclip.source.source import Source, last_name, once, words
from gradclip.source.traps.paddle import fluid

__all__ = ["check", "is_legacy", "warned_once"]

_CODE = "GM117"
#: names that TensorFlow 2 has only in tf.compat.v1, or lacks
_OLD = re.compile(
    r"tensorflow\.(contrib\b.*|(Interactive)?Session|placeholder(_with_default)?|global_variables_initializer|app\b.*|flags\b.*|"
    r"train\.\w*Optimizer|train\.(get_or_create_global_step|MonitoredTrainingSession|Supervisor)|get_variable|variable_scope|"
    r"trainable_variables|get_collection|ConfigProto|reset_default_graph|layers\.\w+|logging\.\w+|gfile\.\w+|estimator\.tpu\b.*)"
)
_LAST = words(
    "Session InteractiveSession placeholder placeholder_with_default global_variables_initializer run contrib get_variable "
    "get_or_create_global_step MonitoredTrainingSession Supervisor variable_scope trainable_variables get_collection "
    "ConfigProto reset_default_graph"
)


def check(found: ApiCall) -> Finding | None:
    """Why a call cannot become gradclip's: gradclip cannot run in the environment of its file."""
    if found.context.options.to != "gradclip":
        return None
    family = "paddle" if found.api.framework == "paddle" else "tensorflow"
    if found.api.framework not in ("tensorflow", "keras", "paddle"):
        return None
    what = is_legacy(found.context, family)
    if not what:
        return None
    name = f"`{what}` of paddle.fluid" if family == "paddle" else f"`{what}` of TensorFlow 1"
    advice = (
        f"Migrate the file to current {'Paddle' if family == 'paddle' else 'TensorFlow'} first: gradclip migrate --to {family}."
    )
    return Finding(_CODE, f"The file uses {name}, which cannot run beside gradclip: no clip in it is rewritten.", advice)


@once
def is_legacy(context: Context, family: str) -> str:
    """The part of a source that uses an obsolete framework; "" if there is none."""
    source, resolver = context.source, context.resolver
    if family == "paddle":
        return fluid(context)
    for binding in resolver.bindings:
        if f"{binding.qualified}.".startswith("tensorflow.contrib."):
            return binding.qualified
    for node in reversed(source.all(cst.Attribute)):
        name = last_name(node)
        if (name in _LAST or name.endswith("Optimizer")) and _OLD.fullmatch(resolver.name(node)):
            return source.code(node)
    return ""


def warned_once(decisions: Sequence[Decision], source: Source) -> list[Decision]:
    """Warn once per file: after the first such call or re-exported function, only list the others."""
    seen: set[str] = set()
    found = []
    for decision in decisions:
        if decision.code == _CODE and decision.reason in seen:
            reason = f"{CODES[_CODE].reason.removesuffix('.')}, as said above."
            decision = replace(decision, outcome=Verdict.UNCHANGED, reason=reason, advice="")
        elif decision.code == _CODE:
            seen.add(decision.reason)
        elif decision.code == "GM205" and _is_offered(decision.node, source):
            if "GM205" in seen:
                decision = replace(decision, outcome=Verdict.UNCHANGED, advice="")
            seen.add("GM205")
        found.append(decision)
    return found


def _is_offered(node: cst.CSTNode, source: Source) -> bool:
    """Whether a module re-exports a clip: in ``clip = transforms.clip`` it is another name for other files to import."""
    holder = source.parents[node]
    return isinstance(holder, cst.Assign) and source.function(node) is source.module
