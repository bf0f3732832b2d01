"""The meaning of a written name: a native, a dialect's function or one of gradclip's own."""

from __future__ import annotations

import ast
import difflib
import inspect
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gradclip.core.errors import ArgumentError
from gradclip.core.spelling import same
from gradclip.explain.own import public
from gradclip.natives import BY_DIALECT, BY_NAME, DIALECTS, KEYWORDS, Native
from gradclip.natives.libraries import library, other
from gradclip.natives.own import BY_RULE, reproduced

__all__ = ["EXAMPLE", "CallError", "Named", "NoKeywordError", "NoNameError", "meaning"]

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
_LONG = 300  #: characters of a text that an error shows
_RULE = 'gradclip explain "gradclip.dialects.torch.clip_grad_norm(1.0)"'
EXAMPLE = 'gradclip explain "tf.clip_by_norm(g, 5.0, axes=[0])"'


class CallError(ArgumentError):
    """A text that names no call that clips, or a call that its signature does not allow."""

    def __init__(self, what: str, received: str = "", hint: str = "", /) -> None:
        super().__init__(what, received if len(received) <= _LONG else f"{received[:_LONG]}...", hint)


class NoNameError(CallError):
    """The name is not in the table."""


class NoKeywordError(NoNameError):
    """An optimizer that clips, without the keyword that says so."""


class Named(NamedTuple):
    """The meaning of a written name."""

    name: str
    api: Native
    of_dialect: bool = False


def meaning(name: str, node: ast.Call | None) -> Named:
    """The meaning of a name; if ``node`` is given, the name is that of a called function."""
    for candidate in _candidates(name):
        dialect = candidate.removeprefix("gradclip.dialects.")
        if candidate in BY_NAME and not (candidate == name in DIALECTS and node is not None and _is_of_dialect(node, name)):
            return Named(candidate, BY_NAME[candidate])
        if node is not None and candidate in KEYWORDS:
            return Named(candidate, _keyword(candidate, node))
        if dialect in DIALECTS:
            return Named(dialect, _of_dialect(dialect), True)
        drop_in = reproduced(candidate)
        if drop_in is not None:
            return Named(candidate, drop_in)
    for candidate in _candidates(name):
        spelled = same(candidate.removeprefix("gradclip.dialects."), DIALECTS)
        if spelled is not None:
            return _spelled(spelled, node)
    known = library(name, node)
    return _by_ending(name, node) if known is None else Named(known.names[0], known)


def _spelled(dialect: str, node: ast.Call | None) -> Named:
    """A dialect's function in the native's spelling: ``torch.clip_grad_norm_``, ``paddle.ClipGradByNorm``."""
    api = _of_dialect(dialect)
    if node is not None and not api.keyword and _fits(node, api.signature):
        return Named(api.names[0], api)
    return Named(dialect, api, True)


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


def _by_ending(name: str, node: ast.Call | None) -> Named:
    """The meaning of an imported name without its module: ``ClipGradByNorm``, ``SGD``."""
    known = [*BY_NAME, *(KEYWORDS if node is not None else ()), *DIALECTS]
    found: dict[str, Named] = {}
    for candidate in known:
        if candidate.endswith(f".{name}"):
            named = meaning(candidate, node)
            found.setdefault(named.api.code, named)
    if len({named.api.framework for named in found.values()}) == 1:
        return next(iter(found.values()))
    if found:
        names = ", ".join(sorted(named.name for named in found.values()))
        raise CallError("More than one framework has that name.", name, f"say which: {names}.")
    if name in BY_RULE:
        raise NoNameError(f"{name} does what its rule says.", name, f"explain a rule: {_RULE}")
    known_by_sight = other(name)
    if known_by_sight is not None:
        advice = known_by_sight.advice.format("parameters", "limit")
        raise NoNameError(f"{known_by_sight.does}.", name, advice[0].lower() + advice[1:])
    raise NoNameError("gradclip knows no clip of that name.", name, _hint(name))


def _hint(name: str) -> str:
    last = name.rpartition(".")[2]
    if last in _CLAMPS:
        return "for gradients, write gradclip.clip_by_value(g, low, high); gradclip can explain that."
    known = dict.fromkeys([*(native for native in BY_NAME if "(" not in native), *DIALECTS, *public()])
    near = difflib.get_close_matches(list(_candidates(name))[-1], known, 2, 0.7)
    return f"did you mean {' or '.join(near)}?" if near else EXAMPLE


def _keyword(name: str, node: ast.Call) -> Native:
    """The API of the keyword that a call passes."""
    given = [keyword.arg for keyword in node.keywords if ast.unparse(keyword.value) != "None"]
    apis = [api for api in KEYWORDS[name] if api.keyword in given or _position(api) < len(node.args)]
    known = ", ".join(f"{api.keyword}=" for api in KEYWORDS[name])
    if not apis:
        raise NoKeywordError(f"{name} clips by a keyword, which the call does not pass.", ast.unparse(node), f"it has {known}.")
    if len(apis) > 1:
        raise CallError("An optimizer clips in one way only.", ast.unparse(node), f"keep one of {known}.")
    return apis[0]


def _position(api: Native) -> float:
    parameter = api.signature.parameters[api.keyword]
    return math.inf if parameter.kind is parameter.KEYWORD_ONLY else list(api.signature.parameters).index(api.keyword)
