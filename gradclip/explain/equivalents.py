"""The equivalents of one call in each framework: the nearest native and what differs, and how gradclip does the same."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gradclip.core.rule import Scope
from gradclip.explain import words
from gradclip.explain.call import Call
from gradclip.explain.differences import differences
from gradclip.natives import Kind, Native
from gradclip.natives.code import code, is_exact, notes
from gradclip.natives.meaning import dialect_arguments, value_of
from gradclip.natives.model import NO_EFFECT
from gradclip.natives.nearest import FRAMEWORKS, Match, Wanted, nearest
from gradclip.natives.targets import Target, targets

__all__ = [
    "EXACT",
    "FRAMEWORKS",
    "NEAREST",
    "NONE",
    "ROUNDING",
    "SELF",
    "Equivalent",
    "code_for",
    "equivalents",
    "rule_code",
]

EXACT, ROUNDING, NEAREST, NONE, SELF = "exact", "within rounding", "nearest", "no native equivalent", "this call"
#: how to apply any rule with gradclip, by framework
_GRADCLIP = {
    "torch": "gradclip.clip_(model.parameters(), rule)",
    "tensorflow": "grads = gradclip.clip(grads, rule).grads",
    **dict.fromkeys(("keras", "paddle", "jax"), "optimizer = gradclip.clipped(optimizer, rule)"),
}
#: how to apply a rule with a known norm; ``n`` is the norm's source
_BY_NORM = {
    "torch": "gradclip.scale_by_norm_(model.parameters(), rule, {n})",
    "tensorflow": "grads = gradclip.scale_by_norm(grads, rule, {n}).grads",
    "keras": "grads = gradclip.scale_by_norm(grads, rule, {n}).grads",
    "paddle": "gradclip.scale_by_norm_(model.parameters(), rule, {n})",
    "jax": "grads = gradclip.scale_by_norm(grads, rule, {n}).grads",
}
_SUMMED = "result = gradclip.clip(grads, rule)"


@dataclass(frozen=True, slots=True)
class Equivalent:
    """The equivalent in one framework."""

    framework: str
    mark: str  #: "exact", "within rounding", "nearest", "no native equivalent", "this call"
    code: str
    note: str = ""
    differs: tuple[str, ...] = ()  #: of the nearest: what it does otherwise, one sentence each
    exactly: str = ""  #: beside the nearest: how gradclip does exactly the same


def equivalents(call: Call, to: str = "") -> list[Equivalent]:
    """The equivalents in gradclip and in each framework; none if no rule describes the call or gradclip refuses it.

    Args:
        call: the call to find equivalents for.
        to: return only the equivalents in this framework.

    >>> from gradclip.explain.call import find
    >>> [(found.framework, found.mark) for found in equivalents(find("optax.clip(1.0)"), to="torch")]
    [('gradclip', 'exact'), ('torch', 'exact')]
    """
    if call.rule is None or call.refused:
        return []
    wanted = [to] if to in FRAMEWORKS else [] if to else list(FRAMEWORKS)
    ours = targets(call.api).get("gradclip")
    if call.is_only_here:
        ours_alone = _by_gradclip(call, "tensorflow")
        return [Equivalent("gradclip", EXACT, ours_alone), *(Equivalent(one, NONE, _by_gradclip(call, one)) for one in wanted)]
    found = [] if ours is None else [_in_gradclip(call, ours)]
    return found + [_equivalent(call, framework) for framework in wanted]


def _in_gradclip(call: Call, target: Target) -> Equivalent:
    lost = tuple(f"It has no {name}=." for name in _not_in_the_rule(call) if name in target.dropped)
    mark = NEAREST if lost else EXACT if target.exact else ROUNDING
    return Equivalent("gradclip", mark, code_for(call, target), target.note, lost)


def _equivalent(call: Call, framework: str) -> Equivalent:
    match = _nearest(call, framework)
    if framework == call.api.family and call.api.stays:
        return Equivalent(framework, SELF, "" if match is None or call.is_native else code(match, _tensors(call)))
    if match is None:
        return Equivalent(framework, NONE, _by_gradclip(call, framework))
    line, note, differs = code(match, _tensors(call)), " ".join(notes(match)), tuple(differences(match))
    if differs:
        return Equivalent(framework, NEAREST, line, note, differs, _by_gradclip(call, framework))
    return Equivalent(framework, EXACT if is_exact(match) else ROUNDING, line, note)


def _by_gradclip(call: Call, framework: str) -> str:
    """How gradclip does what the call does, in a framework."""
    if call.api.kind is Kind.MEASURE:
        return "gradclip.norm(grads, rule)"
    known = words.known_norm(call)
    if known:
        return _BY_NORM[framework].format(n=known)
    if call.rule is None or call.rule.scope is Scope.EXAMPLE:
        return _SUMMED
    line = _GRADCLIP[framework]
    if call.is_only_here:  # an optimizer keeps the state
        line = _SUMMED if framework == "tensorflow" else _GRADCLIP["jax"]
    return line if call.rule.relative_to is None else line.replace("clip(grads, rule)", "clip(grads, rule, params=params)")


def _tensors(call: Call) -> str:
    """The source of the call's gradients, or of what holds them."""
    first = next(iter(call.api.signature.parameters), "")
    return call.arguments.get(first, first)


# ---- the nearest native ---------------------------------------------------------------------------------------------------


def _nearest(call: Call, framework: str) -> Match | None:
    """The nearest native of a framework; None if none is near."""
    if call.api.does_more or words.known_norm(call):
        return None
    match = nearest(_wanted(call), framework)
    return match if match is not None and match.is_equivalent else None


def _wanted(call: Call) -> Wanted:
    rule, native = call.rule, call.api
    assert rule is not None
    written = words.sources(call)
    lower, limit = words.bounds(call, rule, written)
    if isinstance(value_of(limit), (str, bytes)):  # torch's and Paddle's functions take text
        lower, limit = (repr(bound) for bound in ((rule.lower, rule.upper) if rule.is_by_value else (-rule.limit, rule.limit)))
    of_rule = dialect_arguments(native, call.arguments)
    given = {name: source for name, source in of_rule.items() if name not in NO_EFFECT and source not in (lower, limit)}
    is_known = bool(call.arguments) and not call.unknown and rule.lower == -rule.upper
    return Wanted(
        native=native,
        rule=rule,
        written={**given, "lower": lower, "limit": limit},
        is_symmetric=is_known or lower == words.negative(limit),
        lost=tuple(_not_in_the_rule(call)),
    )


def _not_in_the_rule(call: Call) -> Iterator[str]:
    """The call's arguments that change what it does, and that no rule describes."""
    parameters = call.api.signature.parameters
    of_rule = dialect_arguments(call.api, {name: name for name in parameters}).values()
    for name, source in call.arguments.items():
        default = parameters[name].default
        is_told = default is not inspect.Parameter.empty and source != repr(default)
        if is_told and name not in {*of_rule, *NO_EFFECT} and (name != "dtype" or call.api.kind is Kind.MEASURE):
            yield name


# ---- the code in gradclip -------------------------------------------------------------------------------------------------


def code_for(call: Call, target: Target) -> str:
    """A target's line of code with the call's arguments; an argument that is not given appears as its name.

    >>> from gradclip.explain.call import find
    >>> code_for(find("torch.nn.utils.clip_grad_value_(p, 0.5)"), targets(find("GT103").api)["jax"])
    'optax.chain(optax.clip(0.5), optimizer)'
    """
    api = call.api
    if target.by_hand:
        return target.form.format_map({**_placeholders(call), "rule": rule_code(call)})
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


def _needed(api: Native) -> dict[str, str]:
    """The parameters that a call or its dialect requires."""
    of_rule = dialect_arguments(api, {parameter: parameter for parameter in api.signature.parameters})
    natives = {native for dialect, native in of_rule.items() if dialect in api.needed}
    return {p.name: p.name for p in api.signature.parameters.values() if p.default is p.empty or p.name in natives}


def _arguments(given: Mapping[str, str], positional: int, names: Mapping[str, str]) -> str:
    """The source of a call's arguments; all by name if the target's names differ."""
    if names:
        return ", ".join(f"{names[name]}={source}" for name, source in given.items() if name in names)
    return ", ".join(source if place < positional else f"{name}={source}" for place, (name, source) in enumerate(given.items()))


def _leading(api: Native, given: Mapping[str, str]) -> int:
    """How many arguments come first in the signature."""
    return sum(name == parameter for name, parameter in zip(given, api.signature.parameters, strict=False))


def _placeholders(call: Call) -> dict[str, str]:
    parameters = {name: name for name in call.api.signature.parameters}
    placeholders = {**parameters, **call.arguments}
    written = words.sources(call)
    for native in parameters:
        dialect = call.api.called.get(native, native)
        if dialect in written and native not in call.arguments:
            placeholders[native] = written[dialect]
    return placeholders


def rule_code(call: Call) -> str:
    """The dialect's call that makes the rule.

    >>> from gradclip.explain.call import find
    >>> rule_code(find("tf.linalg.global_norm(grads)"))
    'gradclip.dialects.tensorflow.clip_by_global_norm(clip_norm=float("inf"))'
    """
    if not call.api.dialect:
        return ""
    needed = {name: name for name in call.api.needed}
    if call.api.kind is Kind.MEASURE:
        needed = dict.fromkeys(needed, 'float("inf")')
    told = {name: source for name, source in call.arguments.items() if name not in NO_EFFECT}
    given = dialect_arguments(call.api, told)
    written = ", ".join(f"{name}={source}" for name, source in {**needed, **given}.items())
    made = f"gradclip.dialects.{call.api.dialect}({written})"
    changed = "".join(f", {name}={source}" for name, source in call.changed.items())
    return f"dataclasses.replace({made}{changed})" if changed else made
