"""Find the call of the table that a text names, and its arguments.

A text is code, the name of a native, of a dialect's function or of gradclip's own, or a code such as GT101.
"""

from __future__ import annotations

import ast
import inspect
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gradclip.core.errors import GradclipError, message
from gradclip.core.rule import Rule
from gradclip.explain.names import EXAMPLE, CallError, Named, NoKeywordError, NoNameError, meaning
from gradclip.natives import BY_CODE, DIALECTS, KEYWORDS, Kind, Native
from gradclip.natives.meaning import UNKNOWN, dialect_arguments, value_of
from gradclip.natives.model import NO_EFFECT

__all__ = ["Call", "CallError", "find", "with_limit"]

#: the fields of a rule that ``dataclasses.replace`` may set -> their usual values
_CHANGES: Mapping[str, Any] = {"skip_above": None, "if_nonfinite": "propagate"}
_SAMPLES: Mapping[str, Any] = {"axes": (0,), "axis": (0,), "norm_type": 2.0, "clip_value_min": -1.0, "min": -1.0}


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the table."""

    text: str  #: as written
    name: str  #: "tensorflow.clip_by_norm", or a dialect's: "torch.clip_grad_norm"
    api: Native
    arguments: Mapping[str, str]  #: native parameter -> its source, for the given arguments; for a keyword only its own
    positional: int = 0  #: how many arguments are positional
    rest: str = ""  #: for a keyword: the call without it
    rule: Rule | None = None  #: the rule of the call; a sample if only the running program knows a value
    unknown: frozenset[str] = frozenset()  #: the dialect's parameters whose values are unknown
    refused: str = ""  #: why gradclip refuses the values; then the rule is a sample
    is_native: bool = True  #: whether it is the native's own, and no call of gradclip
    changed: Mapping[str, str] = field(default_factory=dict)  #: the fields that ``dataclasses.replace`` sets -> their sources

    @property
    def is_only_here(self) -> bool:
        """Whether only gradclip has such a rule: it skips steps, or its limit follows the run."""
        return bool(self.changed) or any(map(_follows, self.arguments.values()))


def find(text: str) -> Call:
    """The call that a text names.

    Args:
        text: code such as ``"tf.clip_by_norm(g, 5.0, axes=[0])"``, also an entire statement; or the name of a native or of a
            dialect, without arguments; or a code.

    Raises:
        ValueError: if the text names no call or several calls, or the signature does not allow the call.

    >>> find("tf.clip_by_norm(g, 5.0, axes=[0])").api.code
    'GF201'
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of Python about the text
            return _find(text.strip())
    except CallError:
        raise
    except (RecursionError, MemoryError):
        raise CallError("The call is nested too deeply to be explained.", text) from None
    except UnicodeEncodeError:
        raise CallError("The call is not text.", ascii(text), EXAMPLE) from None
    except ValueError as error:  # Python refuses numbers of more than 4300 digits, and NUL
        raise CallError(f"The call cannot be read: {str(error).partition(';')[0]}.", ascii(text)) from None


def _find(text: str) -> Call:
    if text.upper() in BY_CODE:
        api = BY_CODE[text.upper()]
        return _call(text, Named(api.names[0], api), {})
    if "(" not in text or text.endswith("=)"):
        return _call(text, meaning(text, None), {})
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise CallError("The call is not valid Python.", f"{text!r}: {error.msg}", EXAMPLE) from None
    errors: list[NoNameError] = []
    for node in ast.walk(tree):  # the outermost first; _bound finds a clip inside a chain or an optimizer
        if isinstance(node, ast.Call):
            try:
                named = meaning(ast.unparse(node.func), node)
            except NoNameError as error:
                errors.append(error)
                continue
            found = _bound(node, named, text)
            _check_alone(tree, node)
            return _changed(found, tree, node)
    if not errors:
        raise CallError("The text contains no call.", repr(text), EXAMPLE)
    raise next((error for error in errors if isinstance(error, NoKeywordError)), errors[0])


def _check_alone(tree: ast.AST, node: ast.Call) -> None:
    """Refuse other clips beside a call; those in its arguments make its gradients."""
    inside = set(ast.walk(node))
    beside = (other for other in ast.walk(tree) if isinstance(other, ast.Call) and other not in inside)
    others = {ast.unparse(other): other for other in beside if node not in ast.walk(other)}
    clips = dict.fromkeys([ast.unparse(node), *(source for source, other in others.items() if _is_clip(other))])
    if len(clips) > 1:
        hint = "explain each alone; gradclip explain A B compares two."
        raise CallError("The text has several calls that clip.", ", ".join(clips), hint)


def _changed(call: Call, tree: ast.AST, node: ast.Call) -> Call:
    """The call with the fields of its rule that ``dataclasses.replace`` around it sets."""
    around = (x for x in ast.walk(tree) if isinstance(x, ast.Call) and x.args[:1] == [node])
    outer = next((x for x in around if ast.unparse(x.func) in ("dataclasses.replace", "replace")), None)
    rule = call.rule
    if outer is None or rule is None:
        return call
    sources = {str(keyword.arg): ast.unparse(keyword.value) for keyword in outer.keywords}
    if not sources.keys() <= _CHANGES.keys():
        hint = "give the rest to the function that makes the rule."
        raise CallError("Of dataclasses.replace explain knows skip_above= and if_nonfinite=.", ast.unparse(outer), hint)
    values = {name: value_of(source) for name, source in sources.items()}
    given: dict[str, Any] = {name: value for name, value in values.items() if value is not UNKNOWN}
    if values.get("skip_above") is UNKNOWN:
        given["skip_above"] = math.inf  # a sample
    changed = {name: source for name, source in sources.items() if values[name] != _CHANGES[name]}
    if values.get("if_nonfinite") == "raise" and "error_if_nonfinite" in call.api.signature.parameters:
        del changed["if_nonfinite"], given["if_nonfinite"]
        given["error_if_nonfinite"] = True
        call = replace(call, arguments={**call.arguments, "error_if_nonfinite": "True"})
    try:
        rule = replace(rule, **given)
    except GradclipError as error:
        return replace(call, changed=changed, refused=message(*error.args).replace("\n", " "))
    return replace(call, changed=changed, rule=rule)


def _follows(source: str) -> bool:
    """Whether a limit is made by ``gradclip.Adaptive``."""
    return source.partition("(")[0].rpartition(".")[2] == "Adaptive" and source.endswith(")")


def _is_clip(node: ast.Call) -> bool:
    try:
        meaning(ast.unparse(node.func), node)
    except CallError:
        return False
    return True


def with_limit(call: Call, limit: float) -> Rule | GradclipError | None:
    """The call's rule with another limit, or the error that it raises; None for a rule without a limit.

    >>> with_limit(find("keras.clipnorm(1.0)"), 0.0).limit
    inf
    """
    if call.rule is None:
        return None
    values = {name: value_of(source) for name, source in call.arguments.items() if name != "use_norm"}
    given = {name: value for name, value in dialect_arguments(call.api, values).items() if value is not UNKNOWN}
    try:
        return call.api.function(**{**_samples(call.api), **given, call.api.needed[-1]: limit})
    except GradclipError as error:
        return error


# ---- arguments ----------------------------------------------------------------------------------------------------------


def _bound(node: ast.Call, named: Named, text: str) -> Call:
    """The call with its arguments bound to the signature."""
    name, api = named.name, named.api
    signature = inspect.signature(DIALECTS[name]) if named.of_dialect else api.signature
    if not api.keyword and any(isinstance(argument, ast.Starred) for argument in node.args):
        raise CallError("A call with * cannot be explained.", ast.unparse(node), "write the arguments out.")
    if not api.keyword and any(keyword.arg is None for keyword in node.keywords):
        raise CallError("A call with ** cannot be explained.", ast.unparse(node), "write the arguments out.")
    keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg is not None}
    try:
        arguments = signature.bind(*map(ast.unparse, node.args), **keywords).arguments
    except TypeError as error:
        shown = f"its signature is {name}{_plain(signature)}."
        raise CallError(f"{name} cannot be called like that: {error}.", ast.unparse(node), shown) from None
    if api.keyword:
        arguments = {api.keyword: arguments[api.keyword]}
    if named.of_dialect:
        natives = {dialect: native for native, dialect in api.called.items()}
        arguments = {natives.get(parameter, parameter): source for parameter, source in arguments.items()}
    else:  # the dialect has other defaults
        usual = {name: repr(api.signature.parameters[name].default) for name in api.called}
        arguments = {name: source for name, source in arguments.items() if source != usual.get(name)}
    if api.kind is Kind.GLOBAL_STATE:
        inner = _set(node, arguments)
        if inner is not None:
            return replace(inner, text=text, name=name, api=_as_set(api, inner.api))
    _check_limit(node, named, arguments)
    _check_measured(node, named, arguments)
    rest = _without(node, api.keyword) if api.keyword and not named.of_dialect else ""
    return _call(text, named, arguments, len(node.args), rest)


def _set(node: ast.Call, arguments: Mapping[str, str]) -> Call | None:
    """The clip that ``set_gradient_clip`` takes, if the call contains it."""
    clip = arguments.get("clip", "")
    if not any(isinstance(inner, ast.Call) and ast.unparse(inner) == clip for inner in ast.walk(node)):
        return None
    try:
        return find(clip)
    except CallError:
        return None


def _as_set(api: Native, clip: Native) -> Native:
    """A clip that applies to all parameters: it computes the same as the clip itself."""
    note, names = f"{clip.note} {api.note}", (*api.names, *clip.names)
    own = replace(clip, code=api.code, names=names, dialect_name=clip.dialect, returned=api.returns, note=note)
    return replace(own, status=api.status, since=api.since, source=api.source, link=api.link)


def _check_limit(node: ast.Call, named: Named, arguments: Mapping[str, str]) -> None:
    """Refuse a call that its signature allows but that fails when it clips."""
    if not named.api.dialect or named.api.kind is Kind.MEASURE:
        return
    missing = set(named.api.needed) - dialect_arguments(named.api, arguments).keys()
    if missing:
        natives = {dialect: native for native, dialect in named.api.called.items()}
        names = " and ".join(natives.get(parameter, parameter) for parameter in sorted(missing))
        raise CallError(f"{named.name} cannot clip without {names}.", ast.unparse(node))


def _check_measured(node: ast.Call, named: Named, arguments: Mapping[str, str]) -> None:
    """Refuse a norm with an argument that changes it and that no rule has: ``optax.tree.norm(grads, squared=True)``."""
    if named.api.kind is not Kind.MEASURE:
        return
    _, *others = named.api.signature.parameters.values()
    told = {p.name for p in others if arguments.get(p.name, repr(p.default)) != repr(p.default)} - NO_EFFECT
    for name in sorted(told - dialect_arguments(named.api, arguments).keys() - named.api.called.keys()):
        raise CallError(f"No rule has a norm with {name}=.", ast.unparse(node), "explain the call without it.")


def _plain(signature: inspect.Signature) -> str:
    """A signature without annotations."""
    return str(
        inspect.Signature([parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()])
    )


def _without(node: ast.Call, keyword: str) -> str:
    """A call of a constructor without a keyword, in Keras 3's form, where ``lr=`` is ``learning_rate=``."""
    others = [k for k in node.keywords if k.arg != keyword]
    named = [ast.keyword("learning_rate", k.value) if k.arg == "lr" else k for k in others]
    return ast.unparse(ast.Call(func=node.func, args=node.args, keywords=named))


def _call(text: str, named: Named, arguments: Mapping[str, str], positional: int = 0, rest: str = "") -> Call:
    name, api = named.name, named.api
    values = {parameter: value_of(source) for parameter, source in arguments.items() if parameter != "use_norm"}
    of_rule = dialect_arguments(api, values)
    unknown = frozenset(parameter for parameter, value in of_rule.items() if value is UNKNOWN)
    known = {parameter: value for parameter, value in of_rule.items() if parameter not in unknown}
    rule, refused = None, ""
    if api.dialect:
        function = api.function
        samples = _samples(api, math.inf if api.kind is Kind.MEASURE else 1.0)
        samples |= {parameter: _SAMPLES.get(parameter, 1.0) for parameter in unknown}
        try:
            rule = function(**{**samples, **known})
        except GradclipError as error:
            refused = message(*error.args).replace("\n", " ")
            rule = function(**samples)
    is_native = not named.of_dialect and (name in api.names or name in KEYWORDS)
    return Call(text, name, api, dict(arguments), positional, rest, rule, unknown, refused, is_native)


def _samples(native: Native, limit: float = 1.0) -> dict[str, Any]:
    """A value for each required parameter."""
    return {name: _SAMPLES.get(name, limit) for name in native.needed}
