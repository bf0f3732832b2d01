"""What the expressions of a source probably are (``facts``), by the names, the values and the calls in them."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Sequence

from gradclip.source.byhand import masks, vocabulary
from gradclip.source.byhand.facts import (
    NOTHING,
    Fact,
    Value,
    by_name,
    either,
    is_tiny,
    measured,
    power,
    product,
    quotient,
    root,
    summed,
)
from gradclip.source.byhand.noted import EARLIER, Noted
from gradclip.source.reading.program import last
from gradclip.source.source import words

__all__ = ["Guesses"]

_SUMS = vocabulary.SUMS | vocabulary.REDUCES | words("mean reduce_mean tree_sum tree_reduce")
_SAME = (
    vocabulary.CASTS
    | vocabulary.LEAVES
    | vocabulary.FLAT
    | vocabulary.JOINS
    | words(
        "abs type_as type half double cuda data get_value asscalar zip enumerate reversed filter items full full_like "
        "broadcast_to pop get sorted chain from_iterable mean_ detach_ to_local contiguous identity stop_gradient ravel_pytree "
        "Variable psum pmean pmax"
    )
)
_PARTS = words("data T values grads real grad_data value")
_TWO = ast.Constant(2)
_KINDS = {
    "square": words("square"),
    "root": words("sqrt"),
    "inverse root": words("rsqrt"),
    "inverse": words("reciprocal reciprocal_no_nan"),
    "power": words("pow power"),
    "dot": vocabulary.DOTS | words("l2_loss"),
    "sum": _SUMS,
    "addition": words("add"),
    "product": words("mul multiply scale scal rescale _foreach_mul scalar_mul multi_tensor_scale multi_tensor_applier einsum"),
    "quotient": words("div divide true_divide truediv div_no_nan _foreach_div"),
    "extreme": words("clip clamp min max minimum maximum clip_by_value clamp_min clamp_max"),
    "choice": vocabulary.CHOICES | words("switch cond choose ifelse"),
    "comparison": vocabulary.COMPARES.keys(),
    "filling": words("masked_fill"),
    "store": words("set_value assign copy fill"),
    "same": _SAME,
    "unit": words("normalize l2_normalize"),
}
_KIND = {name: kind for kind, names in reversed(_KINDS.items()) for name in names}
_FLAT = re.compile(r"(?i)\w*(flat|vector|ravel|concat)\w*")  #: functions that put tensors together, or take them apart
_REDUCED = re.compile(r"(?i)\w*(all_?reduce|all_?gather|broadcast|reduce_(from|to|scatter|over|across))\w*")  #: over processes


class Guesses(Noted):
    """The facts of one function or class, and the divisions that make coefficients of gradients there."""

    def _bind(self, targets: Sequence[ast.expr], value: Value, given: ast.expr) -> None:
        for target in targets:
            if isinstance(target, (ast.Tuple, ast.List)):
                same = isinstance(given, (ast.Tuple, ast.List)) and len(given.elts) == len(target.elts)
                for number, part in enumerate(target.elts):
                    one = given.elts[number] if same and isinstance(given, (ast.Tuple, ast.List)) else None
                    self._bind([part], self._of(one) if one is not None else self._part(part, value), one or given)
            elif isinstance(target, ast.Subscript) and self._of(target.slice).has(Fact.OVER):
                self._noted(target, self._of(target.value).has(Fact.GRADIENT))  # `g[g > limit] = limit`
            elif (key := _key(target)) and (value.facts or key in self._values):
                told = by_name(last(target)).facts & Fact.GRADIENTS if value.has(Fact.MEASURED) else 0
                self._values[key] = value.with_(told)

    @staticmethod
    def _part(target: ast.expr, value: Value) -> Value:
        """A part of a value with several: a gradient only where its name says so, or says nothing else."""
        return NOTHING if value.has(Fact.GRADIENT) and last(target) in ("p", "v", "var", "param", "name", "i", "w") else value

    # ---- expressions -------------------------------------------------------------------------------------------------------

    def _of(self, node: ast.expr | None) -> Value:
        if node.__class__ is ast.Constant:  # first, because it is frequent
            return NOTHING
        match node:
            case ast.Name() | ast.Attribute() | ast.Subscript():
                return self._stored(node)
            case ast.BinOp():
                return self._operation(node)
            case ast.Call():
                return self._call(node)
            case ast.Compare():
                return self._comparison(node)
            case ast.IfExp():
                test = self._of(node.test)
                made = either((self._of(node.body), self._of(node.orelse)))
                return made.with_(Fact.BOUNDED) if test.has(Fact.TEST) else made
            case ast.BoolOp():
                return either([*map(self._of, node.values)])
            case ast.UnaryOp():
                made = self._of(node.operand)
                if isinstance(node.op, ast.Invert):
                    return either((masks.inverted(made), made.only(Fact.TEST)))
                return made if isinstance(node.op, ast.USub) else made.only(Fact.TEST)
            case ast.List() | ast.Tuple() | ast.Set():
                return either([*map(self._of, node.elts)])
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
                for one in node.generators:
                    self._bind([one.target], self._of(one.iter), one.iter)
                return self._of(node.value if isinstance(node, ast.DictComp) else node.elt)
            case ast.NamedExpr():
                made = self._of(node.value)
                self._bind([node.target], made, node.value)
                return made
            case ast.Lambda():
                return self._of(node.body)
            case ast.Starred():
                return self._of(node.value)
        return NOTHING

    def _stored(self, node: ast.Name | ast.Attribute | ast.Subscript) -> Value:
        key = _key(node)
        if (known := self._values.get(key, NOTHING)).facts:
            return known
        if isinstance(node, ast.Name):
            return by_name(node.id)
        if isinstance(node, ast.Subscript):
            return self._of(node.value)
        if node.attr in _PARTS:
            return either((self._of(node.value), by_name(node.attr)))
        return by_name(node.attr)

    def _operation(self, node: ast.BinOp) -> Value:
        left, right = self._of(node.left), self._of(node.right)
        if isinstance(node.op, ast.Mult):
            self._noted(node, masks.keeps_small([left, right]))
            if _key(node.left) and _key(node.left) == _key(node.right):
                return power(left, _TWO, node)
            self._multiplied(left, right)
            return product(left, right)
        if isinstance(node.op, ast.Div):
            self._divided(left, right, node)
            return quotient(left, right, node)
        if isinstance(node.op, ast.Pow):
            return power(left, node.right, node)
        if isinstance(node.op, ast.Add):
            return either((left, right))
        if not isinstance(node.op, ast.Sub):
            return NOTHING
        if left.has(Fact.MEASURED) and right.has(Fact.MEASURED) and right.has(Fact.GRADIENTS):
            return Value(Fact.EARLIER)  # how far a norm is from the average of earlier ones
        return left.only(Fact.GRADIENT)

    def _comparison(self, node: ast.Compare) -> Value:
        sides = [node.left, *node.comparators]
        values = [*map(self._of, sides)]
        ordered = any(isinstance(one, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for one in node.ops)
        return (
            either((masks.compared(sides, values, isinstance(node.ops[0], (ast.Gt, ast.GtE))), self._test(sides, values)))
            if ordered
            else NOTHING
        )

    def _test(self, sides: Sequence[ast.expr], values: Sequence[Value]) -> Value:
        told = Fact.MEASURED | Fact.SCALES | Fact.RATIO | Fact.EARLIER
        known = [one.has(told) for one in values]
        others = [side for side, is_known in zip(sides, known, strict=True) if not is_known]
        if all(known):  # `norm > factor * average`
            others = [s for s, one in zip(sides, values, strict=True) if isinstance(s, ast.BinOp) or one.has(Fact.RATIO)]
        if not any(known) or not others or all(is_tiny(one) for one in others):
            return NOTHING
        numbers = {one.value if isinstance(one, ast.Constant) else None for one in others if not is_tiny(one)}
        earlier = {EARLIER} if any(one.has(Fact.EARLIER) for one in values) else set()
        self._compared.setdefault(self._here, set()).update(numbers | earlier)
        for side, one in zip(sides, values, strict=True):
            if one.facts and "." in _key(side) and not numbers.isdisjoint({None, 1}):
                self._values[_key(side)] = one.with_(Fact.BOUNDED)  # an attribute: another method may scale by it
        return Value(Fact.TEST)

    # ---- calls -------------------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> Value:
        name = last(node.func)
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        of_owner = self._of(owner) if owner is not None else NOTHING
        given = [*node.args, *(one.value for one in node.keywords)]
        self._passed(node, name)
        if "map" in name and len(node.args) > 1:
            return self._mapped(node.args)
        sides = [owner, *given] if owner is not None and of_owner.facts else given
        values = [self._of(one) for one in sides]
        if (made := self._known(name, node, sides, values)) is not None:
            return made
        if isinstance(node.func, ast.Name) or (isinstance(owner, ast.Name) and owner.id == "self"):
            passed = self._given.setdefault(name, {})
            for number, one in enumerate(values, start=owner is not None):
                if one.facts:
                    passed[number] = either((passed.get(number, NOTHING), one))
            made = self._returned.get(name, NOTHING)
            if made.facts:
                of_gradients = any(one.has(Fact.GRADIENT) for one in values)
                return made.with_(Fact.GRADIENTS) if of_gradients and not made.has(Fact.GRADIENT) else made
        if _REDUCED.fullmatch(name):
            if len(node.args) > 1 and not values[-1].facts:  # MPI's: `comm.Allreduce(local, total)`
                self._bind([node.args[1]], either(values), node.args[0])
            return either(values)
        made = measured(name, either(values))
        return either(values) if not made.facts and _FLAT.fullmatch(name) else made

    def _passed(self, node: ast.Call, name: str) -> None:
        """Give the parameters of lambdas what ``reduce`` or ``lax.cond`` passes to them."""
        first = 1 if name in vocabulary.REDUCES else 0  #: the first parameter of a sum is the sum so far
        if not first and _KIND.get(name) != "choice":
            return
        lambdas = [one for one in node.args if isinstance(one, ast.Lambda)]
        items = either(self._of(one) for one in node.args if one not in lambdas) if lambdas else NOTHING
        for one in lambdas if items.facts else ():
            self._values.update({parameter.arg: items for parameter in one.args.args[first:]})

    def _known(self, name: str, node: ast.Call, sides: Sequence[ast.expr], values: Sequence[Value]) -> Value | None:
        """The value of a call of arithmetic; None for another call."""
        kind = _KIND.get(name) or _KIND.get(name.rstrip("_"))
        if kind is None or not sides:
            return None
        first, rest = values[0], either(values[1:])
        match kind:
            case "square":
                return power(first, _TWO, node)
            case "root":
                return root(first)
            case "inverse root":
                return quotient(NOTHING, root(first), node)
            case "power" if len(sides) > 1:
                return power(first, sides[1], node)
            case "dot":
                return summed(power(first, _TWO, node))
            case "sum":
                return summed(either(values))
            case "product" if len(sides) > 1 and values[-1].has(Fact.GRADIENT) and ast.dump(sides[-1]) == ast.dump(sides[-2]):
                made = power(values[-1], _TWO, node)
                return summed(made) if name == "einsum" else made
            case "product":
                self._noted(node, masks.keeps_small(values))
                for one, other in itertools.combinations(values, 2):
                    self._multiplied(one, other)
                return product(first, rest)
            case "quotient" | "inverse":
                one, other = (NOTHING, first) if kind == "inverse" else (first, rest)
                self._divided(one, other, node)
                return quotient(one, other, node)
            case "extreme":
                return self._extreme(name, node, sides, values)
            case "choice" if len(sides) > 2:
                self._noted(node, masks.chooses_small(values))
                return rest.with_(Fact.BOUNDED) if first.has(Fact.TEST) else rest
            case "comparison" if len(sides) > 1:
                made = masks.compared(sides, values, vocabulary.COMPARES[name.rstrip("_")] > 0)
                return either((made, self._test(sides, values)))
            case "filling" if len(sides) > 2:
                self._noted(node, masks.chooses_small([values[1], values[2], first]))
                return first
            case "same":
                return either(values)
            case "unit":
                return first.over(node)
        return self._written(kind, name, node, values)

    def _written(self, kind: str, name: str, node: ast.Call, values: Sequence[Value]) -> Value | None:
        """The value of a call that writes to its object or its first argument; None for another call."""
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if kind == "addition":
            made = either(values)
            if name == "add_" and owner is not None:
                self._bind([owner], made, owner)
            return made
        if kind != "store":
            return None
        target = node.args[0] if len(node.args) > 1 else owner  # `K.set_value(x, made)`, `x.set_value(made)`
        made = values[-1]
        if target is not None:
            self._bind([target], made, node.args[-1] if node.args else target)
        if made.has(Fact.SCALES) and not made.has(Fact.NORM) and not name.endswith("_"):
            self._reached(made)
        return NOTHING

    def _extreme(self, name: str, node: ast.Call, sides: Sequence[ast.expr], values: Sequence[Value]) -> Value:
        """A minimum, a maximum or a clamp: bounded, if one of its sides is a limit; a maximum with something small is none."""
        if "max" in name and len(sides) == 1 and values[0].has(Fact.GRADIENT):
            return Value(Fact.NORM | Fact.GRADIENTS)  # the largest element
        scale = either(one for one in values if one.has(Fact.MEASURED | Fact.SCALES))
        limits = [side for side, one in zip(sides, values, strict=True) if not one.has(Fact.MEASURED | Fact.SCALES)]
        limits = [side for side in limits if not is_tiny(side)]
        ratio = either(one for one in values if one.has(Fact.RATIO))
        scaled = isinstance(ratio.division, ast.BinOp) and isinstance(ratio.division.left, ast.BinOp)  # no trust ratio
        if (scaled or ratio.has(Fact.EARLIER)) and any(isinstance(side, ast.Constant) and side.value == 1 for side in limits):
            return Value(Fact.COEFFICIENT | Fact.BOUNDED | ratio.facts & Fact.GRADIENTS, ratio.division)
        if not scale.facts or not limits:
            return either(values)
        told = {one.arg for one in node.keywords}
        lower = (
            "max" in name.removeprefix("clamp_max") or name.startswith("clamp_min") or told & {"min", "a_min"} == told != set()
        )
        if scale.has(Fact.MEASURED) and not scale.has(Fact.SCALES) and not lower:
            return Value(Fact.CAPPED | scale.facts & Fact.GRADIENTS)
        return scale.with_(Fact.BOUNDED)

    def _mapped(self, given: Sequence[ast.expr]) -> Value:
        """What a function makes of the items of lists or trees."""
        function, *lists = given
        values = [*map(self._of, lists)]
        if isinstance(function, ast.Lambda):
            for parameter, one in zip(function.args.args, values, strict=False):
                self._values[parameter.arg] = one
            return self._of(function.body)
        name = last(function)
        self._given.setdefault(name, {}).update({number: one for number, one in enumerate(values) if one.facts})
        return self._returned.get(name) or measured(name, either(values))


def _key(node: ast.expr) -> str:
    """The name of what a value is stored in: ``x``, ``self.x``, ``x['a']``; "" for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    inner = _key(node.value) if isinstance(node, (ast.Attribute, ast.Subscript)) else ""
    if not inner:
        return ""
    if isinstance(node, ast.Attribute):
        return f"{inner}.{node.attr}"
    index = node.slice if isinstance(node, ast.Subscript) else None
    return f"{inner}[{index.value!r}]." if isinstance(index, ast.Constant) and isinstance(index.value, str) else ""
