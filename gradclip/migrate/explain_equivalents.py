"""The equivalents of one call in each framework: exact, within rounding, or none; then gradclip does the clipping."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from gradclip.migrate import explain_words as words
from gradclip.migrate.apis.meaning import dialect_arguments, dialect_function, differences
from gradclip.migrate.apis.model import Api, Kind, Target
from gradclip.migrate.explain_call import Call, find
from gradclip.rule import Scope

__all__ = ["EXACT", "FRAMEWORKS", "NONE", "ROUNDING", "SELF", "Equivalent", "code_for", "equivalents", "rule_code"]

FRAMEWORKS = ("torch", "tensorflow", "keras", "paddle", "jax")  #: the values of ``--to``, besides gradclip
EXACT, ROUNDING, NONE, SELF = "exact", "within rounding", "no native equivalent", "this call"
#: how to apply any rule with gradclip, by framework
_GRADCLIP = {
    "torch": "gradclip.clip_(model.parameters(), rule)",
    "tensorflow": "grads = gradclip.clip(grads, rule).grads",
    "keras": "gradclip.backends.keras.clipped(optimizer, rule)",
    "paddle": "grad_clip=gradclip.backends.paddle.grad_clip(rule)",
    "jax": "optax.chain(gradclip.backends.jax.gradient_transformation(rule), optimizer)",
}
#: how to apply a rule with a known norm; ``n`` is the norm's source
_BY_NORM = {
    "torch": "gradclip.scale_by_norm_(model.parameters(), rule, {n})",
    "tensorflow": "grads = gradclip.scale_by_norm(grads, rule, {n}).grads",
    "keras": "grads = gradclip.scale_by_norm(grads, rule, {n}).grads",
    "paddle": "gradclip.scale_by_norm_(model.parameters(), rule, {n})",
    "jax": "grads = gradclip.scale_by_norm(grads, rule, {n}).grads",
}
_NO_EFFECT = {"name", "foreach", "group_name", "dtype"}
_SUMMED = "result = gradclip.clip(grads, rule)"


@dataclass(frozen=True, slots=True)
class Equivalent:
    """The equivalent in one framework."""

    framework: str
    mark: str  #: "exact", "within rounding", "no native equivalent", "this call"
    code: str
    note: str = ""


def equivalents(call: Call, to: str = "") -> list[Equivalent]:
    """The equivalents in gradclip and in each framework; none if no rule describes the call or gradclip refuses it.

    Args:
        call: the call to find equivalents for.
        to: return only the equivalents in this framework.

    >>> [(found.framework, found.mark) for found in equivalents(find("optax.clip(1.0)"), to="torch")]
    [('gradclip', 'exact'), ('torch', 'exact')]
    """
    if call.rule is None or call.refused:
        return []
    wanted = [to] if to in FRAMEWORKS else [] if to else list(FRAMEWORKS)
    found = [_in_gradclip(call)] if "gradclip" in call.api.targets else []
    return found + [_equivalent(call, framework) for framework in wanted]


def _in_gradclip(call: Call) -> Equivalent:
    target = call.api.targets["gradclip"]
    return Equivalent("gradclip", EXACT if target.exact else ROUNDING, code_for(call, target), target.note)


def _equivalent(call: Call, framework: str) -> Equivalent:
    target = call.api.targets.get(framework)
    own = {"optax": "jax"}.get(call.api.framework, call.api.framework)
    if framework == own and target is None and call.api.status != "removed":
        return Equivalent(framework, SELF, "")
    if target is not None:
        code = code_for(call, target)
        if _means_the_same(call, target, code):
            return Equivalent(framework, EXACT if target.exact else ROUNDING, code, target.note)
    if call.api.kind is Kind.MEASURE:
        return Equivalent(framework, NONE, "gradclip.norm(grads, rule)")
    known = words.known_norm(call)
    if known:
        return Equivalent(framework, NONE, _BY_NORM[framework].format(n=known))
    summed = call.rule is not None and call.rule.scope is Scope.EXAMPLE
    return Equivalent(framework, NONE, _SUMMED if summed else _GRADCLIP[framework])


def _means_the_same(call: Call, target: Target, code: str) -> bool:
    """Whether a target's line of code does the same as the call with these arguments; the table describes the target too."""
    other, rule = find(code), call.rule
    if rule is None or other.rule is None or not _is_all_in_rule(call):
        return False
    written = words.sources(call)
    told = set(call.unknown)
    if target.symmetric_bounds:
        low, high = words.BOUNDS[call.api.dialect]
        if not _is_symmetric(call, written[low], written[high]):
            return False
        told -= {low}
    passed_on = " ".join(other.arguments.values())
    if not all(re.search(rf"(?<!\w){re.escape(written[parameter])}(?!\w)", passed_on) for parameter in told):
        return False  # a value that the target does not receive is arbitrary
    if target.ordinary_limit and rule.scope is not Scope.VALUE and rule.limit in (0.0, math.inf):
        return False
    if call.api.kind is Kind.MEASURE:
        return not {"scope", "order", "axes", "mean"}.intersection(differences(rule, other.rule))
    return not differences(rule, other.rule)


def _is_all_in_rule(call: Call) -> bool:
    """Whether the rule describes the call completely: the call has no other option, such as a known norm."""
    of_rule = {*dialect_arguments(call.api, {parameter: parameter for parameter in call.arguments}).values()} - {"use_norm"}
    for parameter, source in call.arguments.items():
        default = call.api.signature.parameters[parameter].default
        if parameter not in of_rule | _NO_EFFECT and default is not inspect.Parameter.empty and source != repr(default):
            return False
    return True


def _is_symmetric(call: Call, low: str, high: str) -> bool:
    known = call.rule is not None and call.arguments and not call.unknown and call.rule.lower == -call.rule.upper
    return bool(known or low == words.negative(high))


def code_for(call: Call, target: Target) -> str:
    """A target's line of code with the call's arguments; an argument that is not given appears as its name.

    >>> code_for(find("torch.nn.utils.clip_grad_value_(p, 0.5)"), find("GT103").api.targets["jax"])
    'optax.chain(optax.clip(0.5), optimizer)'
    """
    api = call.api
    if target.by_hand:
        return target.form.format_map(_placeholders(call))
    given = dict(call.arguments) or _needed(api)
    if api.keyword:
        value = given.get(api.keyword, api.keyword)
        return f"{target.wrapper}({call.rest or 'optimizer'}, {target.name}({value}))"
    tensors = [p for p in api.signature.parameters.values() if p.default is p.empty and p.name not in given]
    given = {**{p.name: p.name for p in tensors}, **given}  # a dialect's call has no tensors
    kept = {name: source for name, source in given.items() if name not in target.dropped}
    positional = call.positional if tensors == [] and not target.arguments else 0
    code = f"{target.name}({_arguments(kept, positional or _leading(api, kept), target.arguments)})"
    return f"{target.wrapper}({code})" if target.wrapper else code


def _needed(api: Api) -> dict[str, str]:
    """The parameters that a call or its dialect requires."""
    function = dialect_function(api)
    wanted = {} if function is None else inspect.signature(function).parameters
    of_rule = dialect_arguments(api, {parameter: parameter for parameter in api.signature.parameters})
    natives = {native for dialect, native in of_rule.items() if wanted[dialect].default is inspect.Parameter.empty}
    return {p.name: p.name for p in api.signature.parameters.values() if p.default is p.empty or p.name in natives}


def _arguments(given: Mapping[str, str], positional: int, names: Mapping[str, str]) -> str:
    """The source of a call's arguments; all by name if the target's names differ."""
    if names:
        return ", ".join(f"{names[name]}={source}" for name, source in given.items() if name in names)
    return ", ".join(source if place < positional else f"{name}={source}" for place, (name, source) in enumerate(given.items()))


def _leading(api: Api, given: Mapping[str, str]) -> int:
    """How many arguments come first in the signature."""
    return sum(name == parameter for name, parameter in zip(given, api.signature.parameters, strict=False))


def _placeholders(call: Call) -> dict[str, str]:
    parameters = {name: name for name in call.api.signature.parameters}
    placeholders = {**parameters, **call.arguments}
    written = words.sources(call)
    for native in parameters:
        dialect = call.api.dialect_arguments.get(native, native)
        if dialect in written and native not in call.arguments:
            placeholders[native] = written[dialect]
    return placeholders


def rule_code(call: Call) -> str:
    """The dialect's call that makes the rule.

    >>> rule_code(find("tf.linalg.global_norm(grads)"))
    'gradclip.dialects.tensorflow.clip_by_global_norm(clip_norm=float("inf"))'
    """
    function = dialect_function(call.api)
    if function is None:
        return ""
    needed = {p.name: p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty}
    if call.api.kind is Kind.MEASURE:
        needed = dict.fromkeys(needed, 'float("inf")')
    told = {name: source for name, source in call.arguments.items() if name not in {"use_norm", *_NO_EFFECT}}
    given = dialect_arguments(call.api, told)
    written = ", ".join(f"{name}={source}" for name, source in {**needed, **given}.items())
    return f"gradclip.dialects.{call.api.dialect}({written})"
