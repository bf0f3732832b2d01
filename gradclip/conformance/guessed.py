"""Which operation a function claims to be, if the command does not say: its name, its arguments and its file's imports tell."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence

from gradclip.conformance.chosen import chosen
from gradclip.conformance.located import source_of
from gradclip.conformance.target import ARRAYS_OF, OPERATIONS, dialect_of
from gradclip.core.errors import ArgumentError
from gradclip.core.spelling import same
from gradclip.natives.meaning import differences

__all__ = ["choice", "guess", "likeliest"]

_MOST = 3  # operations to choose from
_COMMON = frozenset({"clip", "grad", "by"})  # words that tell no operation from another
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = _Function | ast.ClassDef


def guess(where: str, name: str, among: Collection[str]) -> str | None:
    """The operation that a function of a file or a module claims to be; the source is read, and not run.

    Args:
        where: the module, or the file.
        name: the function; with dots for a method.
        among: the operations that it may be.

    Returns:
        The operation; None where the source does not show a function: the object may be a target.

    Raises:
        ValueError: if several operations are as likely.
    """
    source = source_of(where)
    try:
        found = _defined(ast.parse(source), name)
    except (ValueError, SyntaxError):  # its import will say what is wrong
        return None
    if found is None:
        return None
    try:
        framework = chosen(source, name.rpartition(".")[2], f"{where}:{name}")
    except ArgumentError:  # the file imports several
        framework = ""
    likely = likeliest(name.rpartition(".")[2], found, framework, among)
    if len(likely) == 1:
        return likely[0]
    raise choice(f"{where}:{name}", likely)


def choice(target: str, likely: Sequence[str]) -> ArgumentError:
    """The error for a function that may be several operations, with the command for each."""
    commands = "".join(f"\n  gradclip conformance {target} --dialect {operation}" for operation in likely[:_MOST])
    others = f"\n--dialect also takes {', '.join(likely[_MOST:])}." if likely[_MOST:] else ""
    return ArgumentError("The names of the function do not tell which clip it is.", target, f"run one of:{commands}{others}")


def likeliest(name: str, arguments: Sequence[str], framework: str = "", among: Collection[str] = OPERATIONS) -> list[str]:
    """The operations that the names of a function fit best, of those with one meaning the first.

    An operation's own name tells most, then the framework, then the name of the limit, then the words of all names.

    >>> likeliest("my_clip", ["parameters", "max_norm"], "torch")
    ['torch.clip_grad_norm_']
    >>> likeliest("my_clip", ["grads", "max_norm"])
    ['torch.clip_grad_norm_', 'optax.clip_by_global_norm']
    """
    said = set().union(*map(_words, (name, *arguments)))

    def fit(operation: str) -> tuple[bool, bool, int, int]:
        native = OPERATIONS[operation]
        own = _words(native.last)
        is_named = bool(own) and (same(name, [native.last]) is not None or _says(name, native.last))
        is_of = ARRAYS_OF.get(dialect_of(operation), dialect_of(operation)) == framework
        limits = len(set(native.needed) & set(arguments))
        return is_named, is_of, limits, len(said & own.union(*map(_words, native.needed)))

    fits = {operation: fit(operation) for operation in among}
    best = max(fits.values(), default=None)
    found: list[str] = []
    for operation in fits:
        if fits[operation] == best and not any(_is_same(operation, other) for other in found):
            found.append(operation)
    return found


def _is_same(operation: str, other: str) -> bool:
    return not differences(OPERATIONS[operation].rule(), OPERATIONS[other].rule())


def _says(name: str, native: str) -> bool:
    """Whether a name has a native's words in another order, or its initials, as timm's names of ``adaptive_grad_clip``.

    >>> [_says(name, "adaptive_grad_clip") for name in ("adaptive_clip_grad", "timm_agc", "clip_grad")]
    [True, True, False]
    """
    mine, words = _all_words(name), _all_words(native)
    return set(mine) == set(words) or "".join(word[0] for word in words) in mine


def _words(name: str) -> set[str]:
    """The words of a name that tell something: of ``clip_by_global_norm`` and of ``ClipByGlobalNorms`` global and norm."""
    return {*_all_words(name)} - _COMMON


def _all_words(name: str) -> list[str]:
    return [word.lower().removesuffix("s") for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def _defined(tree: ast.Module, name: str) -> list[str] | None:
    """The arguments of a function, of a method, or of a class that is called; None if the source does not define one."""
    *owners, last = name.split(".")
    body: list[ast.stmt] = tree.body
    for owner in owners:
        body = next((node.body for node in _named(body, owner) if isinstance(node, ast.ClassDef)), [])
    node = next(_named(body, last), None)
    if isinstance(node, ast.ClassDef):
        if any(_named(node.body, "run")) or any(_named(node.body, "claims")):  # a target
            return None
        owners, node = [last], next(_named(node.body, "__init__"), None)
    if not isinstance(node, _Function):
        return None
    arguments = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return arguments[bool(owners) :]  # without self


def _named(body: Sequence[ast.stmt], name: str) -> Iterator[_Definition]:
    """The definitions of a name, the last first."""
    yield from (node for node in reversed(body) if isinstance(node, _Definition) and node.name == name)
