"""One spelling for equivalent statements, so that one template matches them all."""

from __future__ import annotations

import ast
from collections.abc import Iterator

__all__ = ["Plain"]


class Plain(ast.NodeTransformer):
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
        method = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
        if method in ("mul_", "div_") and len(call.args) == 1:  # type: ignore[attr-defined]
            return _scaled(call.func.value, call.args[0] if method == "mul_" else _inverse(call.args[0]))  # type: ignore[attr-defined]
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        self.generic_visit(node)
        return _scaled(node.target, _inverse(node.value)) if isinstance(node.op, ast.Div) else node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        self.generic_visit(node)
        value, target = node.value, node.targets[0]
        if isinstance(value, ast.Constant) and value.value == 0:
            value.value = 0
        factor = _factor(value, ast.unparse(target)) if ast.unparse(target).endswith(".grad") else None
        return node if factor is None else _scaled(target, factor)

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
        if len(node.ops) > 1:
            return node
        if isinstance(node.ops[0], (ast.Lt, ast.LtE)):
            return ast.Compare(node.comparators[0], [ast.Gt()], [node.left])
        if isinstance(node.ops[0], ast.GtE):
            node.ops = [ast.Gt()]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        """``limit / norm if norm > limit else 1`` is a minimum with one, and so is its reverse."""
        self.generic_visit(node)
        test = ast.unparse(node.test)
        for one, other, sides in ((node.body, node.orelse, (0, 1)), (node.orelse, node.body, (1, 0))):
            if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div) and ast.unparse(other) == "1":
                names = (ast.unparse(one.right), ast.unparse(one.left))
                if test == f"{names[sides[0]]} > {names[sides[1]]}":
                    return ast.Call(ast.Name("min"), [one, ast.Constant(1)], [])
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.Mult) and ast.unparse(node.left) == ast.unparse(node.right):
            return ast.BinOp(node.left, ast.Pow(), ast.Constant(2))
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
        if (name in ("flatten", "ravel") and not rest) or (name in ("view", "reshape") and rest == ["-1"]):
            return given[0]
        if name in ("cat", "get_total_norm") and not rest and not told:
            return _function("cat", given[0]) if name == "cat" else _function("norm", _function("cat", given[0]))
        if name in ("pow", "square") and rest == ["2"]:
            return ast.BinOp(given[0], ast.Pow(), ast.Constant(2))
        spectral = rest == ["2"] and not _is_vector(given[0]) and ast.unparse(node.func).endswith("linalg.norm")
        if name in ("norm", "vector_norm") and rest in ([], ["2"]) and told in ({}, {"p": "2"}) and not spectral:
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


def _is_vector(value: ast.expr) -> bool:
    """Whether a value surely has one axis; of a matrix ``linalg.norm(..., 2)`` is the spectral norm."""
    return isinstance(value, ast.ListComp) or ast.unparse(value).startswith("cat(")


def _inverse(value: ast.expr) -> ast.expr:
    return ast.BinOp(ast.Constant(1), ast.Div(), value)


def _scaled(target: ast.expr, factor: ast.expr) -> ast.stmt:
    return ast.AugAssign(target, ast.Mult(), factor)  # type: ignore[arg-type]  # any expression is a target here


def _factor(value: ast.expr, scaled: str) -> ast.expr | None:
    """``limit / norm`` in ``grad * limit / norm``; None if a value is no such product."""
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, (ast.Mult, ast.Div)):
        return None
    if ast.unparse(value.left) == scaled:
        return value.right if isinstance(value.op, ast.Mult) else _inverse(value.right)
    inner = _factor(value.left, scaled)
    return None if inner is None else ast.BinOp(inner, value.op, value.right)


def _function(name: str, value: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name), [value], [])
