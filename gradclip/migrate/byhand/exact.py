"""The exact value of an expression, as a form (``algebra``); None of its parts is guessed.

``forms`` finds what may be a clip, by names too. Here a name stands for the one value that reaches it, a call for what a known
function computes, or what a function of the source returns. Anything else is opaque: a "name" with its text. Beyond the forms
of ``algebra``: an "item" of a collection, a "flat" tensor, a "cast" one, and a "list" with one form for each item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeGuard

import libcst as cst

from gradclip.migrate.byhand.called import adds, larger_first, read
from gradclip.migrate.byhand.certain import Certain
from gradclip.migrate.byhand.guards import guard, is_unguarded, items, none_test
from gradclip.migrate.byhand.measures import (
    added,
    bare,
    cast,
    every,
    flat,
    is_small,
    is_tensor,
    norm,
    says_more,
    summed,
)
from gradclip.source.bind import literal, number
from gradclip.source.byhand import vocabulary
from gradclip.source.byhand.algebra import ONE, Form, extreme, product
from gradclip.source.found import Context
from gradclip.source.source import last_name, words

__all__ = ["Exact"]

_MAPS = words("map tree_map tree_multimap map_structure")
_PARTED = words("tree_flatten flatten ravel_pytree")
_CAST = words("dtype device")
_DEPTH = 40


class Exact:
    """The exact forms of one source's expressions."""

    def __init__(self, context: Context) -> None:
        self._source, self._resolver = context.source, context.resolver
        self.certain = Certain(context)
        self._given: dict[cst.CSTNode, Form] = {}  #: the values of parameters while a body is read
        self._depth = 0
        self.read: set[cst.CSTNode] = set()  #: the bindings whose values it has followed
        self.over: set[cst.CSTNode | str] = set()  #: the collections: the binding of a list that it has followed, or the code
        self.opaque: list[cst.BaseExpression] = []  #: the parts that stay as they are
        self.entered: set[cst.CSTNode] = set()  #: the functions whose values it has followed

    def again(self, node: cst.BaseExpression) -> Form:
        """The form of an expression, with fresh ``read``, ``over``, ``opaque`` and ``entered``."""
        self.read, self.over, self.opaque, self.entered = set(), set(), [], set()
        return self.of(node)

    def made_before(self) -> set[cst.CSTNode | str]:
        """The binding of the one list that all loops are over: they alone read its gradients, wherever it is made before."""
        return self.over if len(self.over) == 1 else set()

    def of(self, node: cst.BaseExpression) -> Form:
        """The form of an expression."""
        if self._depth >= _DEPTH:
            return self._opaque(node)
        self._depth += 1
        try:
            return self._of(node)
        finally:
            self._depth -= 1

    def _opaque(self, node: cst.BaseExpression) -> Form:
        self.opaque.append(node)
        return Form("name", value=self._source.one_line(node), node=node)

    def _of(self, node: cst.BaseExpression) -> Form:
        known = number(node)
        if known is not None:
            return Form("number", value=known)
        if isinstance(node, cst.Name):
            return self._name(node)
        if isinstance(node, cst.Attribute):
            return self._attribute(node)
        if isinstance(node, cst.BinaryOperation):
            return self._operation(node)
        if isinstance(node, cst.IfExp):
            return self.chosen(node.test, self.of(node.body), self.of(node.orelse))
        if isinstance(node, (cst.ListComp, cst.GeneratorExp)):
            return self._list(node)
        if isinstance(node, cst.Call):
            return self._call(node)
        if isinstance(node, cst.Subscript):
            return self._subscript(node)
        return self._opaque(node)

    # ---- names -----------------------------------------------------------------------------------------------------------

    def _name(self, node: cst.Name) -> Form:
        place = self.certain.place(node)
        if place is None:
            return self._opaque(node)
        if place in self._given:
            return self._given[place]
        holder = self._source.parents.get(place)
        if isinstance(holder, cst.AugAssign):
            return self._total(place, holder) or self._opaque(node)
        given = self._resolver.given(place)
        if given is not None and given.each and not given.part:
            return Form("item", (self._collection(given.value),))
        if given is not None and given.part == (0,) and not given.each:  # `leaves, tree = tree_flatten(grads)`
            call = given.value
            return self._first(call) if self._is_parted(call) else self._opaque(node)
        return self._value(place) or self._opaque(node)

    def _value(self, place: cst.CSTNode) -> Form | None:
        """The form of the value that a binding has, if it says more than the name."""
        value = self.certain.value(place)
        known = len(self.opaque), set(self.read)
        made = self.of(value) if value is not None and not isinstance(value, cst.Name) else None
        if made is not None and says_more(made):
            self.read.add(place)
            return made
        del self.opaque[known[0] :]
        self.read = known[1]
        return None

    def _collection(self, node: cst.BaseExpression) -> Form:
        place = self.certain.place(node) if isinstance(node, cst.Name) else None
        value = self.certain.value(place) if place not in self._given else None
        leaves = isinstance(value, cst.Call) and read(value, self._resolver)[0] in vocabulary.LEAVES and len(value.args) == 1
        before = self.over.copy()  # without those that its own value is made of
        made = self.of(value if leaves and value is not None else node)
        self.read |= {place} if leaves and place is not None else set()
        self.over = before | {place if place is not None and place in self.read else self._source.code(node)}
        return made if made.op != "list" else made.parts[1] if made.parts[0] == Form("item", (made.parts[1],)) else made

    def _total(self, place: cst.CSTNode, holder: cst.AugAssign) -> Form | None:
        """``n = 0; for g in grads: n += ...``: a sum over the items."""
        loop = self._source.within(place, cst.For)
        if loop is None or not isinstance(holder.operator, cst.AddAssign) or not isinstance(loop.target, cst.Name):
            return None
        first = self.certain.before(loop, place)
        if first is None or not is_unguarded(holder, loop, self._source):
            return None
        value = self.certain.value(first)
        start = number(value) if value is not None else None
        if start is None and isinstance(value, cst.Call) and value.args:
            start = number(value.args[0].value) if last_name(value.func) in vocabulary.CASTS else None
        if start != 0:
            return None
        self.read |= {first, place}
        return summed(Form("list", (self.of(holder.value), self._collection(loop.iter))))

    def _attribute(self, node: cst.Attribute) -> Form:
        if node.attr.value in ("data", "T"):
            return self.of(node.value) if node.attr.value == "data" else self._opaque(node)
        inner = self.of(node.value) if isinstance(node.value, (cst.Name, cst.Attribute)) else None
        if inner is not None and inner.op == "item" and node.attr.value == "grad":
            return Form("item", inner.parts, "grad")
        target = self.certain.place(node)
        return (self._value(target) if target is not None else None) or self._opaque(node)

    def _subscript(self, node: cst.Subscript) -> Form:
        """``tree_flatten(grads)[0]``, or a part that is opaque."""
        if self._source.one_line(node).endswith("[0]") and self._is_parted(node.value):
            return self._first(node.value)
        return self._opaque(node)

    def _is_parted(self, node: cst.BaseExpression) -> TypeGuard[cst.Call]:
        return isinstance(node, cst.Call) and bool(node.args) and read(node, self._resolver)[0] in _PARTED

    def _first(self, call: cst.Call) -> Form:
        made = self._collection(call.args[0].value)
        return Form("flat", (every(made),)) if read(call, self._resolver)[0] == "ravel_pytree" else made

    # ---- operations ------------------------------------------------------------------------------------------------------

    def _operation(self, node: cst.BinaryOperation) -> Form:
        left, right = self.of(node.left), self.of(node.right)
        if isinstance(node.operator, (cst.Multiply, cst.Divide)):
            return product((left, 1), (right, 1 if isinstance(node.operator, cst.Multiply) else -1))
        if isinstance(node.operator, cst.Power) and right.op == "number":
            return product((left, right.number))
        if isinstance(node.operator, cst.Add):
            return added(left, right)
        return self._opaque(node)

    def chosen(self, test: cst.BaseExpression, one: Form, other: Form) -> Form:
        """The first form where a test holds, the other elsewhere. A missing gradient stays None, and chooses the other."""
        none = none_test(test)
        if none:
            assert isinstance(test, cst.Comparison)
            kept, left = (one, other) if none == "is not" else (other, one)
            is_missing = left == Form("name", value="None") and kept.contains(self.of(test.left))
            return kept if left == kept or is_missing else self._opaque(test)
        sides = self._compared(test)
        if sides is None:
            return self._opaque(test)
        return Form("choice", (one, other), sides, test)

    def _compared(self, test: cst.BaseExpression) -> tuple[Form, Form] | None:
        sides = larger_first(test, self._resolver, self._followed)
        return None if sides is None else (self.of(sides[0]), self.of(sides[1]))

    def _followed(self, name: cst.Name) -> cst.BaseExpression | None:
        place = self.certain.place(name)
        self.read |= {place} if place is not None else set()
        return self.certain.value(place)

    def _list(self, node: cst.ListComp | cst.GeneratorExp) -> Form:
        loop = node.for_in
        plain = isinstance(loop.target, cst.Name) and loop.inner_for_in is None and loop.asynchronous is None
        if not plain or not all(guard(one.test, items(loop)) == "is not" for one in loop.ifs):
            return self._opaque(node)
        return Form("list", (self.of(node.elt), self._collection(loop.iter)), bool(loop.ifs), node)

    # ---- calls -----------------------------------------------------------------------------------------------------------

    def _call(self, node: cst.Call) -> Form:
        name, given, told = read(node, self._resolver)
        if not name:
            return self._own(node) or self._opaque(node)
        if name in _MAPS and len(given) == 2:
            return self._mapped(given[0], given[1], node)
        made = self._bounded(name, given, told) or self._measured(name, given, told, self._resolver.name(node.func))
        if made is None and given and told.keys() <= _CAST:
            if name in vocabulary.LEAVES:
                made = self._collection(given[0]) if len(given) == 1 else None
            elif name in vocabulary.CASTS:
                made = cast(self.of(given[0]), name)
        if made is None and given and name in vocabulary.FLAT and not told and len(given) <= 2:
            one_axis = len(given) == 1 or self._source.one_line(given[1]) in ("-1", "(-1,)", "[-1]")
            made = flat(self.of(given[0])) if one_axis else None
        if made is None and name in vocabulary.JOINS and given and not told.keys() - {"axis", "dim"}:
            made = flat(self.of(given[0]))
        return made or self._own(node) or self._opaque(node)

    def _bounded(self, name: str, given: Sequence[cst.BaseExpression], told: Mapping[str, cst.BaseExpression]) -> Form | None:
        """A minimum, a maximum, a choice, a product, a sum; None for another function."""
        if name in vocabulary.CLAMPS and given:
            return self._clamped(given, told)
        if name in ("ones_like", "ones"):
            return ONE
        if told:
            return None
        if name in vocabulary.CHOICES and len(given) == 3:
            return self.chosen(given[0], self.of(given[1]), self.of(given[2]))
        if len(given) != 2 or not (
            name.rstrip("_") in vocabulary.EXTREMES or name in vocabulary.PRODUCTS or name in ("add", "add_")
        ):
            return None
        one, other = self.of(given[0]), self.of(given[1])
        if name.rstrip("_") in vocabulary.EXTREMES:
            return extreme(name, one, other, is_small=is_small)
        return product((one, 1), (other, vocabulary.PRODUCTS[name])) if name in vocabulary.PRODUCTS else added(one, other)

    def _clamped(self, given: Sequence[cst.BaseExpression], told: Mapping[str, cst.BaseExpression]) -> Form | None:
        """A coefficient with an upper bound, and with no lower bound over 0."""
        low, high = vocabulary.bounds(given, told)
        if len(given) > 3 or not told.keys() <= vocabulary.BOUNDS:
            return None  # it may write to `out`
        least = number(low) if low is not None else None
        open_ = low is None or literal(low) is None or (least is not None and least <= 0)
        return extreme("min", self.of(given[0]), self.of(high)) if open_ and high is not None else None

    def _measured(
        self, name: str, given: Sequence[cst.BaseExpression], told: Mapping[str, cst.BaseExpression], qualified: str
    ) -> Form | None:
        """A norm, a sum of squares, or a power; None for another function."""
        orders = [value for key, value in told.items() if key != "dtype"]
        if not given or told.keys() - {"dtype", "p", "ord"} or any(literal(order) not in (2, 2.0) for order in orders):
            return None
        if (name in vocabulary.GLOBAL_NORMS or qualified.startswith("optax.tree")) and len(given) == 1:
            over = self._collection(given[0])
            return norm(over if over.op == "list" else every(over)) if name in vocabulary.GLOBAL_NORMS | {"norm"} else None
        if name in vocabulary.NORMS and (len(given) == 1 or (len(given) == 2 and literal(given[1]) in (2, 2.0))):
            inner = self.of(given[0])
            spectral = (len(given) == 2 or bool(orders)) and qualified.endswith("linalg.norm")  # of a matrix
            return None if spectral and is_tensor(bare(inner)) else norm(inner)
        if name in vocabulary.DOTS and len(given) == 2:
            one, other = self.of(given[0]), self.of(given[1])
            made = norm(one) if one == other and (name == "vdot" or one.op == "flat") else None
            return product((made, 2)) if made is not None else None
        if name in vocabulary.REDUCES and len(given) in (2, 3) and adds(given[0], self._resolver):
            return summed(self.of(given[1])) if len(given) == 2 or number(given[2]) == 0 else None
        exponent = number(given[1]) if name in ("pow", "power") and len(given) == 2 else vocabulary.POWERS.get(name)
        if exponent is not None and (len(given) == 1 or name not in vocabulary.POWERS):
            return product((self.of(given[0]), exponent))
        sums = name in vocabulary.SUMS and len(given) == 1
        return summed(self.of(given[0]), builtin=qualified.startswith("builtins")) if sums else None

    def _mapped(self, function: cst.BaseExpression, over: cst.BaseExpression, node: cst.Call) -> Form:
        """``map(lambda g: ..., grads)``; the function may also have a name."""
        inner = self.certain.function(function)
        collection = self._collection(over)
        if inner is None:
            known = self._resolver.name(function).rpartition(".")[2]
            made = norm(Form("item", (collection,))) if known in vocabulary.NORMS else None
            return Form("list", (made, collection)) if made is not None else self._opaque(node)
        parameters, body = inner
        if len(parameters) != 1:
            return self._opaque(node)
        self._enter(function)
        if isinstance(function, cst.Name) and (place := self.certain.place(function)) is not None:
            self.read.add(place)
        return Form("list", (self._within(parameters, [Form("item", (collection,))], body), collection), node=node)

    def _own(self, node: cst.Call) -> Form | None:
        """What a function of the source returns."""
        inner = self.certain.function(node.func)
        if inner is None or any(a.keyword is not None or a.star for a in node.args) or len(inner[0]) != len(node.args):
            return None
        made = self._within(inner[0], [self._collection(argument.value) for argument in node.args], inner[1])
        if says_more(made):
            self._enter(node.func)
        return made if says_more(made) else None

    def _enter(self, function: cst.BaseExpression) -> None:
        called = self.certain.called(function)
        self.entered |= {called} if called is not None else set()

    def _within(self, parameters: Sequence[cst.Param], values: Sequence[Form], body: cst.BaseExpression) -> Form:
        before = self._given
        self._given = {**before, **dict(zip(parameters, values, strict=True))}
        try:
            return self.of(body)
        finally:
            self._given = before
