"""Normal forms of expressions: a coefficient has one form, however it is spelt.

A form is a number, a name, a norm, a product of powers, a sum, a minimum, a maximum or a choice. Names stand for their values,
and calls of the source's own functions for what these return. A minimum and a maximum are distributed over positive factors, so
``limit / max(norm, limit)`` and ``minimum(1, limit / norm)`` have one form.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping, Sequence

import libcst as cst

from gradclip.source.bind import keyword, literal, number
from gradclip.source.byhand import vocabulary
from gradclip.source.byhand.algebra import ONE, Form, extreme, is_tiny, last_word, power_of_norm, product
from gradclip.source.found import Context
from gradclip.source.source import dotted, last_name, receiver, words

__all__ = ["Forms", "epsilon"]

_MORE = "half double cuda data unsqueeze expand_dims to_local abs type_as type contiguous from_iter"
_SAME = vocabulary.CASTS | vocabulary.LEAVES | vocabulary.FLAT | vocabulary.JOINS | words(_MORE)
_OWN = "_get_total_norm matrix_norm get_grad_norm calc_grad_norm l2_norm unitwise_norm"
_NORMS = vocabulary.NORMS | vocabulary.GLOBAL_NORMS | words(_OWN)
_SUMS = vocabulary.SUMS | words("tree_sum")
_MEANS = words("mean reduce_mean")
_CLAMPS = vocabulary.CLAMPS | words("clip_")
_CHOICES = vocabulary.CHOICES | words("cond")
_ELEMENTWISE = (
    vocabulary.EXTREMES | vocabulary.DOTS | vocabulary.PRODUCTS.keys() | vocabulary.POWERS.keys() | words("add pow power")
)
_MEASURED = re.compile(
    r"(?!.*((layer|batch|instance|group|rms|weight|spectral|param|max|clip|pp?|w|x)_?norm|normal|norm_?(type|ord)))\w*norms?(_\w+)?\d*|total",
    re.IGNORECASE,
)
_LIMITS = re.compile(r"(?!grad\w*_?norm|g_?norm|un?clip|pre_?clip)\w*(clip|max|limit|thresh|cutoff)", re.IGNORECASE)
_NO_LIMIT = re.compile(r"None|([\w.]+\.)?inf|float\([\"']inf(inity)?[\"']\)")
_EARLIER = 4  #: values of a name to look at before its last one
_DEPTH = 24  #: names and functions to follow, one within another
_MODULES = words(
    "np jnp jax lax torch th tf tensorflow math K F nn linalg utils optax paddle numpy keras ops"
)  # without imports
_COMPREHENSIONS = (cst.ListComp, cst.GeneratorExp, cst.SetComp)


class Forms:
    """The normal forms of one source's expressions."""

    def __init__(self, context: Context) -> None:
        self._source, self._resolver, self._values = context.source, context.resolver, context.values
        self._made: dict[cst.CSTNode, Form] = {}
        self._lint = context.options.lint

    def of(self, node: cst.BaseExpression, depth: int = _DEPTH) -> Form:
        """The form of an expression."""
        if node in self._made:
            return self._made[node]
        if depth == 0:
            return self._named(node)
        self._made[node] = self._named(node)  # for an expression that refers to itself
        made = self._of(node, depth - 1)
        if made.op in ("name", "norm") and made.node is None:
            made = Form(made.op, made.parts, made.value, node)
        self._made[node] = made
        return made

    def _of(self, node: cst.BaseExpression, depth: int) -> Form:
        known = number(node)
        if known is not None:
            return Form("number", value=known)
        if isinstance(node, cst.Name):
            return self._name(node, depth)
        if isinstance(node, cst.Attribute):
            return self._attribute(node, depth)
        if isinstance(node, cst.Subscript):
            inner = self.of(node.value, depth)
            return inner if inner.op == "norm" else self._named(node)
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
            return product((Form("number", value=-1.0), 1), (self.of(node.expression, depth), 1))
        if isinstance(node, cst.BinaryOperation):
            return self._operation(node, depth)
        if isinstance(node, cst.IfExp):
            kept = self._given(node)
            if kept is not None:
                return self.of(kept, depth)
            return Form("choice", (self.of(node.body, depth), self.of(node.orelse, depth)), node=node.test)
        if isinstance(node, _COMPREHENSIONS):
            return self.of(node.elt, depth)
        if isinstance(node, (cst.List, cst.Tuple)) and len(node.elements) == 1:
            return self.of(node.elements[0].value, depth)
        if isinstance(node, cst.Lambda):
            return self.of(node.body, depth)
        if isinstance(node, cst.NamedExpr):
            made = self.of(node.value, depth)
            return self.of(node.target, depth) if made.op == "name" else made
        return self._call(node, depth) if isinstance(node, cst.Call) else self._named(node)

    def _given(self, node: cst.IfExp) -> cst.BaseExpression | None:
        """``limit`` in ``inf if limit is None else limit``; None for any other choice."""
        sides = (node.body, node.orelse), (node.orelse, node.body)
        tested = "None" in self._source.code(node.test)
        return next((one for one, other in sides if tested and _NO_LIMIT.fullmatch(self._source.code(other))), None)

    def _named(self, node: cst.BaseExpression) -> Form:
        text = self._source.one_line(node)
        last = last_word(text.partition("[")[0])
        if isinstance(node, (cst.Name, cst.Attribute, cst.Subscript)) and _MEASURED.fullmatch(last) and not _LIMITS.match(last):
            return Form("norm", (Form("name", value=text),), "name", node)
        return Form("name", value=text, node=node)

    def _name(self, node: cst.Name, depth: int) -> Form:
        made = self._bound(node, depth)
        return (self._before(node, depth) or made) if made.op == "name" and not self._lint else made

    def _before(self, node: cst.Name, depth: int) -> Form | None:
        """The norm that a name stood for before a value that says nothing: ``n = reduced(n)``, ``n *= 2``."""
        last = self._values.last(node)
        places, orders = self._resolver.ordered_at(node)
        number = bisect.bisect_left(orders, self._source.order(last)) if last is not None else 0
        for place in reversed(places[max(0, number - _EARLIER) : number]):
            if self._source.function(place) is not self._source.function(places[number]):
                break
            value, holder = self._resolver.value(place), self._source.parents.get(place)
            made = self.of(value, depth) if value is not None else None
            if isinstance(holder, cst.AugAssign):
                made = self._total(holder.value, "l2", depth)
            if made is not None and (kind := power_of_norm(made)):
                norm = made if made.op == "norm" else made.parts[0]
                return product((Form("norm", norm.parts, "given", norm.node), kind))
        return None

    def _bound(self, node: cst.Name, depth: int) -> Form:
        place = self._values.last(node)
        value = self._resolver.value(place)
        if value is not None and self._is_before(value, node):
            made = self.of(value, depth)
            keeps = made.op == "number" and _LIMITS.match(
                last_word(node.value)
            )  # the name of a limit says more than its number
            return self._named(node) if keeps or (made.op == "name" and self._named(node).op == "norm") else made
        holder = self._source.parents.get(place) if place is not None else None
        if isinstance(holder, cst.AugAssign) and isinstance(holder.operator, cst.AddAssign):
            return self._total(holder.value, "l2", depth)
        if isinstance(place, cst.Param) and len(given := self._values.given(place)) == 1:
            made = self.of(given[0], depth)
            return made if made.op in ("norm", "product", "min") else self._named(node)
        return self._named(node)

    def _is_before(self, value: cst.CSTNode, node: cst.CSTNode) -> bool:
        """Whether a value is assigned before a place, or in another function."""
        other = self._source.function(value) is not self._source.function(node)
        return other or self._source.start(value) < self._source.start(node)

    def _attribute(self, node: cst.Attribute, depth: int) -> Form:
        if node.attr.value in ("data", "T"):
            return self.of(node.value, depth)
        value = self._values.value_of(node)
        return self.of(value, depth) if value is not None else self._named(node)

    def _operation(self, node: cst.BinaryOperation, depth: int) -> Form:
        left, right = self.of(node.left, depth), self.of(node.right, depth)
        if isinstance(node.operator, (cst.Multiply, cst.Divide)):
            return product((left, 1), (right, 1 if isinstance(node.operator, cst.Multiply) else -1))
        if isinstance(node.operator, cst.Power):
            return self._power(left, right)
        if isinstance(node.operator, cst.Add):
            return self._sum(left, right)
        return self._named(node)

    @staticmethod
    def _sum(*parts: Form) -> Form:
        """A sum without its epsilons; a sum of squares is one."""
        kept = [part for part in parts if not is_tiny(part)]
        if len(kept) == 1:
            return kept[0]
        squares = [part for part in kept if power_of_norm(part) == 2]
        return squares[0] if squares and len(squares) == len(kept) else Form("sum", tuple(kept))

    def _power(self, base: Form, exponent: Form) -> Form:
        if exponent.op == "number":
            return product((base, exponent.number))
        return Form("name", value="?")

    def _total(self, node: cst.BaseExpression, kind: str, depth: int) -> Form:
        """The sum of squares is the square of a norm; any other sum has no form."""
        inner = self.of(node, depth)
        if inner.op != "product" or inner.value != (2.0,):
            return self._named(node)
        base = inner.parts[0]
        parts, known = (base.parts, base.value) if base.op == "norm" else ((base,), "l2")
        return product((Form("norm", parts, kind if known == "l2" else known, base.node), 2.0))

    # ---- calls -----------------------------------------------------------------------------------------------------------

    def _call(self, node: cst.Call, depth: int) -> Form:
        name = last_name(node.func)
        given = self._arguments(node)
        values = [value for key, value in given if not key] or [value for key, value in given[:1] if key in vocabulary.FIRST]
        if name in _NORMS and values:
            return self._norm(values[0], {key: value for key, value in given if key}, depth)
        if name in _SUMS | _MEANS and values:
            return self._total(values[0], "l2" if name in _SUMS else "rms", depth)
        if name in vocabulary.REDUCES and len(values) > 1:
            return self._total(values[1], "l2", depth)
        if name in _CLAMPS and values:
            return self._clamp(given, depth)
        if name in _CHOICES and len(values) == 3:
            return Form("choice", (self.of(values[1], depth), self.of(values[2], depth)), node=values[0])
        if (made := self._elementwise(name.removeprefix("_foreach_").rstrip("_"), values, depth)) is not None:
            return made
        if "map" in name and len(values) >= 2:
            return self.of(self._values.returned(values[0]) or values[0], depth)
        if name in ("ones", "ones_like"):
            return ONE
        if name in _SAME and values:
            return self.of(values[0], depth)
        body = self._values.returned(node.func)
        made = self.of(body, depth) if body is not None else None
        if made is not None and (kind := power_of_norm(made)) and values:
            norm = next(part for part in (made, *made.parts) if part.op == "norm")
            return product((Form("norm", (Form("name", value=self._source.one_line(values[0])),), norm.value, values[0]), kind))
        return made if made is not None and made.op in ("min", "choice") else self._named(node)

    def _elementwise(self, name: str, values: Sequence[cst.BaseExpression], depth: int) -> Form | None:
        """A product, a power, a sum, a minimum or a maximum; None for another function."""
        if not values or name not in _ELEMENTWISE:
            return None
        first, *others = parts = [self.of(value, depth) for value in values]
        if name in vocabulary.LEAST and not others:
            return Form("name", value="?")
        if name in vocabulary.PRODUCTS or name in vocabulary.DOTS:
            return product((first, 1), *((part, vocabulary.PRODUCTS.get(name, 1)) for part in others))
        if name in vocabulary.POWERS or not others:
            return product((first, vocabulary.POWERS.get(name, 1)))
        if name in ("pow", "power"):
            return self._power(first, others[0])
        return self._sum(*parts) if name == "add" else extreme(name, *parts)

    def _arguments(self, node: cst.Call) -> list[tuple[str, cst.BaseExpression]]:
        """The arguments with their keywords; of a method, its object comes first."""
        if clamped := vocabulary.lax_clamp(node, self._resolver):
            return clamped
        found = [(keyword(one), one.value) for one in node.args if not one.star]
        owner = receiver(node)
        if owner is not None and not self._resolver.names(owner).qualified:
            parts = dotted(owner)
            if parts is None or (parts != ("self",) and parts[0] not in _MODULES):
                found.insert(0, ("", owner))
        return found

    def _norm(self, value: cst.BaseExpression, told: Mapping[str, cst.BaseExpression], depth: int) -> Form:
        inner = self.of(value, depth)
        order = told.get("p", told.get("ord", told.get("norm_type")))
        kind = "l2" if order is None or literal(order) == 2 else f"order {self._source.one_line(order)}"
        kind = f"{kind} of axes" if {"dim", "axis"} & told.keys() else kind
        if inner.op == "norm" and inner.value != "name":
            return inner
        return Form("norm", (Form("name", value=self._source.one_line(value)),), kind, value)

    def _clamp(self, given: Sequence[tuple[str, cst.BaseExpression]], depth: int) -> Form:
        values = [value for key, value in given if not key]
        low, high = vocabulary.bounds(values, dict(given))
        made = self.of(values[0], depth)
        if low is not None and literal(low) is not None:
            made = extreme("max", made, self.of(low, depth))
        return extreme("min", made, self.of(high, depth)) if high is not None and literal(high) is not None else made


def epsilon(node: cst.BaseExpression, context: Context) -> str:
    """The epsilon beside the norm in a quotient; "" if there is none."""
    parts = [node.right, node.left] if isinstance(node, cst.BinaryOperation) else [node]
    shown = [context.source.code(part) for part in parts]
    shown += [context.source.code(value) for part in parts[:1] if (value := context.values.value_of(part)) is not None]
    for code in shown:
        if found := re.search(
            r"\+\s*(\d[\d.]*(e-?\d+)?|[\w.]+)|(\d[\d.]*(e-?\d+)?|[\w.]*eps\w*)\s*\+|add_?\((\d[\d.]*(e-?\d+)?)", code
        ):
            eps = next(filter(None, (found[1], found[3], found[5])))
            return f"{float(eps):g}" if re.fullmatch(r"\d.*", eps) else eps
    return ""
