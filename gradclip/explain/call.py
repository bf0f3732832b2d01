"""Find the call of the table that a text names, and its arguments.

A text is code, the name of a native, of a dialect's function or of gradclip's own, or a code such as GT101.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from gradclip.errors import ArgumentError, GradclipError, message
from gradclip.natives import BY_CODE, BY_DIALECT, BY_NAME, DIALECTS, KEYWORDS, NATIVES, Kind, Native
from gradclip.natives.libraries import library
from gradclip.natives.meaning import UNKNOWN, dialect_arguments, value_of
from gradclip.natives.targets import targets
from gradclip.rule import Rule
from gradclip.spelling import same

__all__ = ["Call", "CallError", "find", "with_limit"]

#: the usual first part of a name -> its meanings, the likeliest first
_ALIASES: Mapping[str, tuple[str, ...]] = {
    "tf": ("tensorflow",),
    "dialects": ("gradclip.dialects",),
    "th": ("torch",),
    "nn": ("torch.nn", "paddle.nn"),
    "utils": ("torch.nn.utils",),
    "fluid": ("paddle.fluid",),
    "slim": ("tensorflow.contrib.slim",),
    "optimizers": ("keras.optimizers", "jax.example_libraries.optimizers"),
}
_CLAMPS = ("clip", "clip_", "clamp", "clamp_")
_SAMPLES: Mapping[str, Any] = {"axes": (0,), "axis": (0,), "norm_type": 2.0, "clip_value_min": -1.0, "min": -1.0}
_LONG = 300  #: characters of a text that an error shows
_EXAMPLE = 'gradclip explain "tf.clip_by_norm(g, 5.0, axes=[0])"'


class CallError(ArgumentError):
    """A text that names no call that clips, or a call that its signature does not allow."""

    def __init__(self, what: str, received: str = "", hint: str = "", /) -> None:
        super().__init__(what, received if len(received) <= _LONG else f"{received[:_LONG]}...", hint)


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
        raise CallError("The call is not text.", ascii(text), _EXAMPLE) from None
    except ValueError as error:  # Python refuses numbers of more than 4300 digits, and NUL
        raise CallError(f"The call cannot be read: {str(error).partition(';')[0]}.", ascii(text)) from None


def _find(text: str) -> Call:
    if text.upper() in BY_CODE:
        api = BY_CODE[text.upper()]
        return _call(text, _Named(api.names[0], api), {})
    if "(" not in text or text.endswith("=)"):
        return _call(text, _named(text, None), {})
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise CallError("The call is not valid Python.", f"{text!r}: {error.msg}", _EXAMPLE) from None
    first = None
    for node in ast.walk(tree):  # the outermost first; _bound finds a clip inside a chain or an optimizer
        if isinstance(node, ast.Call):
            try:
                named = _named(ast.unparse(node.func), node)
            except _NoNameError as error:
                first = first or error
                continue
            return _bound(node, named, text)
    raise first or CallError("The text contains no call.", repr(text), _EXAMPLE)


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


# ---- names --------------------------------------------------------------------------------------------------------------


class _NoNameError(CallError):
    """The name is not in the table."""


class _Named(NamedTuple):
    """The meaning of a written name."""

    name: str
    api: Native
    of_dialect: bool = False


def _named(name: str, node: ast.Call | None) -> _Named:
    """The meaning of a name; if ``node`` is given, the name is that of a called function."""
    for candidate in _candidates(name):
        dialect = candidate.removeprefix("gradclip.dialects.")
        if candidate in BY_NAME and not (candidate == name in DIALECTS and node is not None and _is_of_dialect(node, name)):
            return _Named(candidate, BY_NAME[candidate])
        if node is not None and candidate in KEYWORDS:
            return _Named(candidate, _keyword(candidate, node))
        if dialect in DIALECTS:
            return _Named(dialect, _of_dialect(dialect), True)
        drop_in = _drop_in(candidate)
        if drop_in is not None:
            return _Named(candidate, drop_in)
    for candidate in _candidates(name):
        spelled = same(candidate.removeprefix("gradclip.dialects."), DIALECTS)
        if spelled is not None:
            return _spelled(spelled, node)
    known = library(name, node)
    return _by_ending(name, node) if known is None else _Named(known.names[0], known)


def _spelled(dialect: str, node: ast.Call | None) -> _Named:
    """A dialect's function in the native's spelling: ``torch.clip_grad_norm_``, ``paddle.ClipGradByNorm``."""
    api = _of_dialect(dialect)
    if node is not None and not api.keyword and _fits(node, api.signature):
        return _Named(api.names[0], api)
    return _Named(dialect, api, True)


def _candidates(name: str) -> Iterator[str]:
    first, dot, rest = name.partition(".")
    for module in (first, *_ALIASES.get(first, ())):
        yield f"{module}{dot}{rest}"


def _is_of_dialect(node: ast.Call, name: str) -> bool:
    """Whether a call fits the dialect's function and not the native of the same name, which also takes tensors."""
    return _fits(node, inspect.signature(DIALECTS[name])) and not _fits(node, BY_NAME[name].signature)


def _fits(node: ast.Call, signature: inspect.Signature) -> bool:
    try:
        signature.bind(*node.args, **{str(keyword.arg): keyword for keyword in node.keywords})
    except TypeError:
        return False
    return True


def _of_dialect(dialect: str) -> Native:
    """The native that gives a dialect's function its name."""
    if dialect not in BY_DIALECT:
        raise CallError("The catalogue has no native with this rule, so gradclip cannot explain it.", dialect)
    return BY_DIALECT[dialect]


def _drop_in(name: str) -> Native | None:
    """The native with the same name as one of gradclip's own functions."""
    found = ((api, targets(api).get("gradclip")) for api in NATIVES)
    alike = [api for api, target in found if target and target.name == name and not target.by_hand and not target.wrapper]
    return min(alike, key=lambda api: api.status != "current", default=None)


def _by_ending(name: str, node: ast.Call | None) -> _Named:
    """The meaning of an imported name without its module: ``ClipGradByNorm``, ``SGD``."""
    known = [*BY_NAME, *(KEYWORDS if node is not None else ()), *DIALECTS]
    found: dict[str, _Named] = {}
    for candidate in known:
        if candidate.endswith(f".{name}"):
            named = _named(candidate, node)
            found.setdefault(named.api.code, named)
    if len({named.api.framework for named in found.values()}) == 1:
        return next(iter(found.values()))
    if found:
        names = ", ".join(sorted(named.name for named in found.values()))
        raise CallError("More than one framework has that name.", name, f"say which: {names}.")
    raise _NoNameError("gradclip knows no clip of that name.", name, _hint(name))


def _hint(name: str) -> str:
    last = name.rpartition(".")[2]
    if last in _CLAMPS:
        return "for gradients, write gradclip.clip_by_value(g, low, high); gradclip can explain that."
    known = dict.fromkeys([*(native for native in BY_NAME if "(" not in native), *DIALECTS])
    near = difflib.get_close_matches(list(_candidates(name))[-1], known, 2, 0.7)
    return f"did you mean {' or '.join(near)}?" if near else _EXAMPLE


def _keyword(name: str, node: ast.Call) -> Native:
    """The API of the keyword that a call passes."""
    given = [keyword.arg for keyword in node.keywords if ast.unparse(keyword.value) != "None"]
    apis = [api for api in KEYWORDS[name] if api.keyword in given or _position(api) < len(node.args)]
    known = ", ".join(f"{api.keyword}=" for api in KEYWORDS[name])
    if not apis:
        raise CallError(f"{name} clips by a keyword, which the call does not pass.", ast.unparse(node), f"it has {known}.")
    if len(apis) > 1:
        raise CallError("An optimizer clips in one way only.", ast.unparse(node), f"keep one of {known}.")
    return apis[0]


def _position(api: Native) -> float:
    parameter = api.signature.parameters[api.keyword]
    return math.inf if parameter.kind is parameter.KEYWORD_ONLY else list(api.signature.parameters).index(api.keyword)


# ---- arguments ----------------------------------------------------------------------------------------------------------


def _bound(node: ast.Call, named: _Named, text: str) -> Call:
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
    if api.kind is Kind.GLOBAL_STATE:
        inner = _set(node, arguments)
        if inner is not None:
            return replace(inner, text=text, name=name, api=_as_set(api, inner.api))
    _check_limit(node, named, arguments)
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


def _check_limit(node: ast.Call, named: _Named, arguments: Mapping[str, str]) -> None:
    """Refuse a call that its signature allows but that fails when it clips."""
    if not named.api.dialect or named.api.kind is Kind.MEASURE:
        return
    missing = set(named.api.needed) - dialect_arguments(named.api, arguments).keys()
    if missing:
        natives = {dialect: native for native, dialect in named.api.called.items()}
        names = " and ".join(natives.get(parameter, parameter) for parameter in sorted(missing))
        raise CallError(f"{named.name} cannot clip without {names}.", ast.unparse(node))


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


def _call(text: str, named: _Named, arguments: Mapping[str, str], positional: int = 0, rest: str = "") -> Call:
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
