"""Replace a handwritten clip by norm (a loop for the norm, a coefficient, a product) with one call of gradclip."""

from __future__ import annotations

import ast
import bisect
import io
import re
import textwrap
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import libcst as cst

from gradclip.code.found import Context
from gradclip.code.model import Outcome
from gradclip.code.resolve import Resolver
from gradclip.code.source import Edit, Source
from gradclip.migrate.codemod.decision import Need, Rewrite
from gradclip.migrate.codemod.imports import spell
from gradclip.migrate.codemod.plain import Plain

__all__ = ["beside_torch", "comments", "rewritten"]

_MOST = 6  #: the maximal number of statements in one clip
_GRAD = "_p.grad"
_SQUARES = (f"total({_GRAD} ** 2)", f"norm({_GRAD}) ** 2")
#: the norm as :class:`Plain` normalises it; a name with an underscore matches any expression
_NORMS = (
    *(f"_N = sqrt(sum({square} for _p in _P))" for square in _SQUARES),
    f"_N = norm([norm({_GRAD}) for _p in _P])",
    f"_N = norm(cat([{_GRAD} for _p in _P]))",
    *(f"_N = 0\nfor _p in _P:\n    _N += {square}\n_N = sqrt(_N)" for square in _SQUARES),
    f"_N = 0\nfor _p in _P:\n    _x = norm({_GRAD})\n    _N += _x ** 2\n_N = sqrt(_N)",
)
_LOOP = "for _q in _P:\n    _q.grad *= "
_UNDER_ONE = ("min(_L / (_N + _E), 1)", "min(_L / _N, 1)", "_L / max(_N, _L)", "_L / max(_L, _N)")
_SCALES = (
    f"if _N > _L:\n{textwrap.indent(_LOOP + '_L / _N', '    ')}",
    f"if _N > _L:\n    _C = _L / _N\n{textwrap.indent(_LOOP + '_C', '    ')}",
    *(f"_C = {c}\nif 1 > _C:\n{textwrap.indent(_LOOP + '_C', '    ')}" for c in ("_L / (_N + _E)", "_L / _N")),
    *(f"_C = {c}\n{_LOOP}_C" for c in _UNDER_ONE),
    *(f"{_LOOP}{c}" for c in _UNDER_ONE),
    *(f"_C = max({sides})\n{_LOOP}1 / _C" for sides in ("_N / _L, 1", "1, _N / _L")),
)
_TEMPLATES = tuple(ast.parse(f"{norm}\n{scale}").body for norm in _NORMS for scale in _SCALES)
_SHAPES = frozenset(tuple(type(one).__name__ for one in template) for template in _TEMPLATES)
_EPSILON = 1e-6  #: torch's epsilon; no dialect uses another one
_NUMBER = re.compile(r"\.item\(|float\(|math\.|np\.|numpy\.")


@dataclass(frozen=True, slots=True)
class _Found:
    """A clip found in a block."""

    statements: Sequence[cst.CSTNode]
    names: dict[str, ast.expr]


#: the starts of the places that bind a name, and the starts of the uses that read from them, by function
_Meaning = tuple[list[int], dict[cst.CSTNode, list[int]]]


def rewritten(node: cst.BaseExpression, context: Context) -> Rewrite | None:
    """The call that is equivalent to the statements around a quotient; None if they are not a clip of a known dialect."""
    modules, options = context.resolver.modules, context.options
    for_torch = "torch" in modules and "mxnet" not in modules and (not options.sources or "torch" in options.sources)
    if not for_torch or options.to != "gradclip":
        return None
    try:
        found = _found(node, context)
    except ValueError:  # an integer of more digits than Python converts
        return None
    if found is None:
        return None
    parameters, limit, norm = (ast.unparse(found.names[name]) for name in ("_P", "_L", "_N"))
    epsilon = found.names.get("_E")
    if epsilon is not None and not (isinstance(epsilon, ast.Constant) and epsilon.value == _EPSILON):
        return None
    return _call(node, found, parameters, limit, norm, epsilon is not None, context)


def _call(
    node: cst.CSTNode, found: _Found, parameters: str, limit: str, norm: str, has_epsilon: bool, context: Context
) -> Rewrite | None:
    source, resolver = context.source, context.resolver
    first, last = found.statements[0], found.statements[-1]
    begin, end = source.line_start(source.start(first)), source.next_line(source.end(last))
    bound = {ast.unparse(name) for key, name in found.names.items() if key in ("_C", "_x", "_p", "_q")}
    if {norm, *bound} & {
        ast.unparse(part) for key in ("_L", "_P") for part in ast.walk(found.names[key]) if isinstance(part, ast.expr)
    }:
        return None
    if any(_is_wanted(name, begin, end, first, context) for name in bound):
        return None
    names: list[cst.Name] = source.once(_call, lambda: source.all(cst.Name))
    at = names[bisect.bisect_left(names, begin, key=source.start)]
    if has_epsilon:
        spelled = spell("gradclip.clip_grad_norm_", at, source, resolver)
        text, needs = f"{spelled.text}({parameters}, {limit})", spelled.needs
    else:
        spelled = spell("gradclip.clip_", at, source, resolver)
        rule = spell("gradclip.dialects.paddle.clip_grad_by_global_norm", at, source, resolver)
        text, needs = f"{spelled.text}({parameters}, {rule.text}({limit}))", (*spelled.needs, *rule.needs)
    replaced = source.data[begin:end].decode()
    if _is_wanted(norm, begin, end, first, context):
        text = f"{norm} = {text}" + ("" if has_epsilon else ".norm")
        text += ".item()" if _NUMBER.search(replaced) else ""
    indent = source.data[begin : source.start(first)].decode()
    kept = (f"{indent}{comment}{source.newline}" for comment in comments(replaced))
    edit = Edit(begin, end, f"{''.join(kept)}{indent}{text}{source.newline}")
    dialect = "torch's" if has_epsilon else "Paddle's"
    return Rewrite(
        node,
        "GM402",
        Outcome.REWRITTEN,
        f"It is {dialect} clip by one norm over all gradients, written out.",
        edits=(edit,),
        needs=beside_torch(needs, context),
        assumption="finite gradients: if the norm is NaN, an `if` clips nothing, and gradclip makes every gradient NaN",
    )


def beside_torch(needs: Sequence[Need], context: Context) -> tuple[Need, ...]:
    """The same imports, placed beside the import of torch."""
    torch = (one for one in context.resolver.bindings if one.qualified.partition(".")[0] == "torch")
    anchor = min((one.node for one in torch), key=context.source.start, default=None)
    return tuple(replace(need, anchor=anchor) for need in needs)


def comments(text: str) -> Iterator[str]:
    """The comments in the replaced text; the rewrite preserves them."""
    for token in tokenize.generate_tokens(io.StringIO(textwrap.dedent(text)).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def _is_wanted(name: str, begin: int, end: int, first: cst.CSTNode, context: Context) -> bool:
    """Whether other code reads a name that the replaced statements bind."""
    source, resolver, function = context.source, context.resolver, context.source.function(first)
    if not name.isidentifier():
        return True  # an attribute or an element, which any code may read
    meanings: list[_Meaning] = source.once((_is_wanted, name), lambda: _meanings(name, source, resolver))
    for places, uses in meanings:
        first_bound, next_bound = bisect.bisect_left(places, begin), bisect.bisect_left(places, end)
        if first_bound == next_bound:
            continue  # the statements do not bind it
        if any((of[0] < begin or of[-1] >= end) and one is not function for one, of in uses.items()):
            return True
        here = uses.get(function, [])
        if here and here[0] < min(begin, places[0]):
            return True
        after = bisect.bisect_left(here, end)
        if after < len(here) and (next_bound == len(places) or places[next_bound] > here[after]):
            return True
    return False


def _meanings(name: str, source: Source, resolver: Resolver) -> list[_Meaning]:
    found: dict[int, _Meaning] = {}
    for use in sorted(resolver.uses.get(name, ()), key=source.start):
        places = resolver.assigned_at(use)
        if id(places) not in found:
            found[id(places)] = sorted(map(source.start, places)), {}
        found[id(places)][1].setdefault(source.function(use), []).append(source.start(use))
    return list(found.values())


# ---- finding -----------------------------------------------------------------------------------------------------------


def _numbered(body: Sequence[cst.CSTNode]) -> dict[cst.CSTNode, int]:
    return {statement: number for number, statement in enumerate(body)}


def _found(node: cst.BaseExpression, context: Context) -> _Found | None:
    source = context.source
    inner: cst.CSTNode = node
    for block in source.ancestors(node):
        if isinstance(block, (cst.IndentedBlock, cst.Module)):
            body = block.body
            places: dict[cst.CSTNode, int] = source.once((_found, block), partial(_numbered, body))
            place = places[inner]
            for start in range(max(0, place - _MOST + 1), place + 1):
                for stop in range(place + 1, min(len(body), start + _MOST) + 1):
                    names = _matched(body[start:stop], source)
                    if names is not None:
                        return _Found(body[start:stop], names)
            if isinstance(source.parents.get(block), cst.FunctionDef):
                return None
        inner = block
    return None


def _matched(statements: Sequence[cst.CSTNode], source: Source) -> dict[str, ast.expr] | None:
    if not any(len(shape) == len(statements) and all(map(_has_shape, shape, statements)) for shape in _SHAPES):
        return None
    begin = source.line_start(source.start(statements[0]))
    text = source.data[begin : source.end(statements[-1])].decode()
    if not text[: source.start(statements[0]) - begin].isspace() and source.start(statements[0]) != begin:
        return None
    body = [one for part in ast.parse(textwrap.dedent(text)).body for one in Plain().statements(part)]
    for template in _TEMPLATES:
        names: dict[str, ast.expr] = {}
        if _unify(template, body, names):
            return names
    return None


def _has_shape(shape: str, statement: cst.CSTNode) -> bool:
    """Whether a statement can match a template's: a parse of each candidate would take most of the time."""
    return isinstance(statement, {"For": cst.For, "If": cst.If}.get(shape, cst.SimpleStatementLine))


def _unify(template: object, node: object, names: dict[str, ast.expr]) -> bool:
    """Whether a tree matches a template; each name with an underscore in the template matches one expression."""
    if isinstance(template, ast.Name) and template.id.startswith("_"):
        if not isinstance(node, ast.expr):
            return False
        known = names.setdefault(template.id, node)
        return known is node or ast.unparse(known) == ast.unparse(node)
    if isinstance(template, list):
        return (
            isinstance(node, list)
            and len(template) == len(node)
            and all(_unify(one, other, names) for one, other in zip(template, node, strict=True))
        )
    if isinstance(template, ast.AST):
        fields = (name for name in template._fields if name not in ("ctx", "type_comment", "kind"))
        return type(template) is type(node) and all(_unify(getattr(template, f), getattr(node, f), names) for f in fields)
    return template == node
