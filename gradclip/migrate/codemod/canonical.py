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
from gradclip.migrate.codemod.decision import Decision, Need
from gradclip.migrate.codemod.imports import spell

__all__ = ["beside_torch", "rewritten"]

_MOST = 6  #: the maximal number of statements in one clip
_GRAD = "_p.grad"
_SQUARES = (f"total({_GRAD} ** 2)", f"norm({_GRAD}) ** 2")
#: the norm as :class:`_Plain` normalises it; a name with an underscore matches any expression
_NORMS = (
    *(f"_N = sqrt(sum({square} for _p in _P))" for square in _SQUARES),
    f"_N = norm([norm({_GRAD}) for _p in _P])",
    *(f"_N = 0\nfor _p in _P:\n    _N += {square}\n_N = sqrt(_N)" for square in _SQUARES),
    f"_N = 0\nfor _p in _P:\n    _x = norm({_GRAD})\n    _N += _x ** 2\n_N = sqrt(_N)",
)
_LOOP = "for _q in _P:\n    _q.grad *= "
_SCALES = (
    f"if _N > _L:\n{textwrap.indent(_LOOP + '_L / _N', '    ')}",
    f"if _N > _L:\n    _C = _L / _N\n{textwrap.indent(_LOOP + '_C', '    ')}",
    f"_C = _L / (_N + _E)\nif _C < 1:\n{textwrap.indent(_LOOP + '_C', '    ')}",
    f"_C = min(_L / (_N + _E), 1)\n{_LOOP}_C",
    f"_C = min(_L / _N, 1)\n{_LOOP}_C",
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


def rewritten(node: cst.BaseExpression, context: Context) -> Decision | None:
    """The call that is equivalent to the statements around a quotient; None if they are not a clip of a known dialect."""
    modules, options = context.resolver.modules, context.options
    for_torch = "torch" in modules and "mxnet" not in modules and (not options.sources or "torch" in options.sources)
    if not for_torch or options.to != "gradclip" or options.lint:
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
) -> Decision | None:
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
    comments = (f"{indent}{comment}{source.newline}" for comment in _comments(replaced))
    edit = Edit(begin, end, f"{''.join(comments)}{indent}{text}{source.newline}")
    dialect = "torch's" if has_epsilon else "Paddle's"
    return Decision(
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


def _comments(text: str) -> Iterator[str]:
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
    body = [one for part in ast.parse(textwrap.dedent(text)).body for one in _Plain().statements(part)]
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


class _Plain(ast.NodeTransformer):
    """Normalise equivalent spellings to one: ``torch.sqrt(x)`` and ``x ** 0.5`` become ``sqrt(x)``."""

    def statements(self, node: ast.stmt) -> Iterator[ast.stmt]:
        """A statement, or the body of an ``if`` that tests for None."""
        made = self.visit(node)
        if isinstance(made, ast.For):
            made.body = [inner for one in made.body for inner in self._guarded(one, made.target)]
        elif isinstance(made, ast.If):
            made.body = [inner for one in made.body for inner in self.statements(one)]
        yield made

    def _guarded(self, node: ast.stmt, target: ast.expr) -> Iterator[ast.stmt]:
        grad = f"{ast.unparse(target)}.grad"
        test = ast.unparse(node.test) if isinstance(node, ast.If) and not node.orelse else ""
        if isinstance(node, ast.If) and test == f"{grad} is not None":
            yield from node.body
        elif not (isinstance(node, ast.If) and test == f"{grad} is None" and [*map(type, node.body)] == [ast.Continue]):
            yield node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        self.generic_visit(node)
        call = node.value
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr == "mul_"
            and len(call.args) == 1
        ):
            return ast.AugAssign(call.func.value, ast.Mult(), call.args[0])  # type: ignore[arg-type]  # any expression is a target here
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        self.generic_visit(node)
        value, target = node.value, node.targets[0]
        if isinstance(value, ast.Constant) and value.value == 0:
            value.value = 0
        product = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult)
        if product and ast.unparse(target).endswith(".grad") and ast.unparse(value.left) == ast.unparse(target):  # type: ignore[attr-defined]
            return ast.AugAssign(target, ast.Mult(), value.right)  # type: ignore[arg-type, attr-defined]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        return node.value if node.attr == "data" else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        return node.value if ast.unparse(node.slice) == ":" else node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return ast.Constant(int(node.value)) if isinstance(node.value, float) and node.value in (1.0, 2.0) else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.ops[0], ast.GtE):
            node.ops = [ast.Gt()]
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        half = isinstance(node.op, ast.Pow) and ast.unparse(node.right) in ("0.5", "1 / 2")
        return _function("sqrt", node.left) if half else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = (
            node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
        )
        method = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) not in _NAMESPACES
        given = [node.func.value, *node.args] if method and isinstance(node.func, ast.Attribute) else list(node.args)
        told = {one.arg: ast.unparse(one.value) for one in node.keywords}
        rest = [ast.unparse(one) for one in given[1:]]
        if not given:
            return node
        if (
            name in ("item", "detach", "float", "clone", "stack", "tensor", "as_tensor")
            and not rest
            and not told.keys() - {"device"}
        ):
            return given[0]
        if name in ("sqrt", "sum", "square") and not rest and not told:
            return self._summed(name, given[0], isinstance(node.func, ast.Name))
        if name in ("pow", "square") and rest == ["2"]:
            return ast.BinOp(given[0], ast.Pow(), ast.Constant(2))
        if name in ("norm", "vector_norm") and rest in ([], ["2"]) and told in ({}, {"p": "2"}):
            return _function("norm", given[0])
        if (name in ("clamp", "clamp_", "clip") and told == {"max": "1"} and not rest) or (name == "min" and rest == ["1"]):
            return ast.Call(ast.Name("min"), [given[0], ast.Constant(1)], [])
        if name == "min" and len(given) == 2 and ast.unparse(given[0]) == "1":
            return ast.Call(ast.Name("min"), [given[1], ast.Constant(1)], [])
        return node

    def _summed(self, name: str, value: ast.expr, builtin: bool) -> ast.expr:
        if name == "square":
            return ast.BinOp(value, ast.Pow(), ast.Constant(2))
        if name == "sqrt":
            return _function("sqrt", value)
        if isinstance(value, (ast.ListComp, ast.GeneratorExp)):
            return _function("sum", ast.GeneratorExp(value.elt, [self._all(one) for one in value.generators]))
        return ast.Call(ast.Name("sum" if builtin else "total"), [value], [])

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        self.generic_visit(node)
        return ast.ListComp(node.elt, [self._all(one) for one in node.generators])

    @staticmethod
    def _all(part: ast.comprehension) -> ast.comprehension:
        """A comprehension without its test that a gradient exists."""
        ifs = [one for one in part.ifs if ast.unparse(one) != f"{ast.unparse(part.target)}.grad is not None"]
        return ast.comprehension(part.target, part.iter, ifs, part.is_async)


_NAMESPACES = frozenset({"torch", "th", "np", "numpy", "math", "torch.linalg", "torch.nn.utils"})


def _function(name: str, value: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name), [value], [])
