"""Handwritten clips by norm: gradients times a quotient of a limit and a norm of gradients, under a bound of one.

It starts at each division whose normal form (``forms``) has a norm, and follows the quotient through products, minima, choices
and names. It is a clip if something on the way bounds it: a minimum with one, a choice, an ``if``, a guard before it.
A condition bounds it only if it compares the norm with the quotient's limit: ``1 / norm`` where the norm is over 5 is no clip.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst

from gradclip.source.byhand.advice import advice
from gradclip.source.byhand.algebra import Clip, Form, has_limit, is_trivial, last_word, leaves, norm_of, ratio, unbounded
from gradclip.source.byhand.conditions import Conditions
from gradclip.source.byhand.forms import Forms
from gradclip.source.found import Context, Decision, Finding, manual
from gradclip.source.source import Source, last_name, once, words
from gradclip.source.traps.iterators import exhausted
from gradclip.source.traps.results import dropped

__all__ = ["ByNorm", "clips"]

_DIVIDES = words("div div_ divide true_divide truediv div_no_nan reciprocal reciprocal_ rsqrt _foreach_div _foreach_div_")
_OF_GRADIENTS = re.compile(
    r"(global|total|g|grads?|gradients?|per_sample|unclipped|l2)_?\w*norms?(_\w+)?|norm_sample|grad_norm\w*|total",
    re.IGNORECASE,
)
_GRADIENT = re.compile(r"\b(\w*_)?(grads?|gradients?|updates)\b|\bd[A-Z]\w*\b|\bg\b")
_MOST = 3  #: names to follow


@dataclass(frozen=True, slots=True)
class ByNorm:
    """A clip by norm, written out."""

    context: Context
    node: cst.BaseExpression  #: the quotient
    places: Sequence[cst.CSTNode]  #: the expressions that it reaches
    finding: Finding


@dataclass(slots=True)
class _Path:
    """What becomes of a quotient."""

    reached: list[tuple[cst.CSTNode, Form]] = field(default_factory=list)
    scales: bool = False  #: whether it multiplies gradients
    in_place: bool = False  #: whether it does so in place


def clips(context: Context) -> Iterator[Decision | ByNorm]:
    """Decide on each quotient that is the coefficient of a clip by norm, bounded or not."""
    if not re.search(r"norm|total|sqrt|\*\* *\(?(0?\.5|1)|rsqrt", context.source.text):
        return
    matcher = _Matcher(context)
    paths = {node: matcher.path(node) for node in matcher.anchors() if not matcher.is_inner(node)}
    later = {one for node, path in paths.items() for one, _ in path.reached if one is not node}
    for node, path in paths.items():
        decision = matcher.decision(node, path) if node not in later else None
        if decision is not None:
            yield decision


class _Matcher:
    """Matches the quotients of one source."""

    def __init__(self, context: Context) -> None:
        self._context, self._source, self._resolver = context, context.source, context.resolver
        self._forms = Forms(context)
        self._conditions = Conditions(context, self._forms)

    # ---- the way of a quotient -------------------------------------------------------------------------------------------

    def anchors(self) -> Iterator[cst.BaseExpression]:
        """The divisions by a norm, or of a norm."""
        for operation in self._source.all(cst.BinaryOperation):
            if isinstance(operation.operator, (cst.Divide, cst.Power)) and norm_of(self._forms.of(operation)):
                power = isinstance(operation.operator, cst.Power)
                if not power or norm_of(self._forms.of(operation))[1] < 0:  # type: ignore[index]
                    yield operation
        for call in self._source.all(cst.Call):
            if last_name(call.func) in _DIVIDES and norm_of(self._forms.of(call)):
                yield call

    def is_inner(self, node: cst.BaseExpression) -> bool:
        """Whether a quotient is in the numerator of another: ``norm / scale`` in ``(norm / scale + eps) / limit``."""
        inner: cst.CSTNode = node
        for outer in self._source.ancestors(node):
            if not isinstance(outer, cst.BinaryOperation):
                return False
            if isinstance(outer.operator, cst.Divide) and inner is outer.left:
                return True
            inner = outer
        return False

    def path(self, node: cst.BaseExpression) -> _Path:
        path = _Path()
        self._climb(node, path, _MOST)
        return path

    def _climb(self, node: cst.BaseExpression, path: _Path, depth: int) -> None:
        """Follow an expression outwards, and through the names that it gets."""
        while True:
            form = self._forms.of(node)
            path.reached.append((node, form))
            path.scales |= any(self._is_gradient(part) for part in leaves(form))
            outer = self._outer(node)
            if outer is None:
                break
            if isinstance(outer, cst.Call) and last_name(outer.func).rstrip("_") in (
                "mul",
                "div",
                "_foreach_mul",
                "_foreach_div",
            ):
                path.in_place |= last_name(outer.func).endswith("_") and ".grad" in self._source.code(outer)
            node = outer
        holder = self._source.parents.get(node)
        if isinstance(holder, cst.AugAssign) and isinstance(holder.operator, (cst.MultiplyAssign, cst.DivideAssign)):
            gradient = self._is_gradient(self._forms.of(holder.target)) or self._is_gradient(Form("name", node=holder.target))
            path.scales |= gradient
            path.in_place |= gradient and ".grad" in self._source.code(holder.target)
            if not gradient and depth and isinstance(holder.target, cst.Name):
                self._follow(holder.target, path, depth)
        elif isinstance(holder, (cst.Assign, cst.NamedExpr)) and depth:
            for target in [t.target for t in holder.targets] if isinstance(holder, cst.Assign) else [holder.target]:
                self._follow(target, path, depth)

    def _follow(self, target: cst.BaseExpression, path: _Path, depth: int) -> None:
        """Follow the later uses of a name or an attribute in its function."""
        start, around = self._source.start(target), self._around(target)
        key = around, self._source.code(target)
        named = self._source.once((_Matcher._follow, *key), lambda: sorted(self._named.get(key, ()), key=self._source.start))
        first = bisect.bisect_right(named, start, key=self._source.start)
        stop = 0
        for use in named[first : first + _USES]:
            if stop and self._source.start(use) >= stop:
                break  # another value from here on
            if isinstance(holder := self._source.parents.get(use), cst.AssignTarget):
                stop = stop or self._source.end(self._source.parents[holder])
            elif all(use is not one for one, _ in path.reached):
                self._climb(use, path, depth - 1)

    def _around(self, node: cst.CSTNode) -> cst.CSTNode:
        return self._source.within(node, cst.FunctionDef) or self._source.module

    @functools.cached_property
    def _named(self) -> Mapping[tuple[cst.CSTNode, str], list[cst.BaseExpression]]:
        """The names and the attributes by the function around them and their code, in any order."""
        found: dict[tuple[cst.CSTNode, str], list[cst.BaseExpression]] = defaultdict(list)
        for name, uses in self._resolver.uses.items():
            for use in uses:
                found[self._around(use), name].append(use)
        for one in self._source.all(cst.Attribute):
            if isinstance(one.value, cst.Name):
                found[self._around(one), f"{one.value.value}.{one.attr.value}"].append(one)
        return found

    def _outer(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """The expression around one, if it is of the same computation."""
        parent = self._source.parents.get(node)
        if isinstance(parent, cst.BinaryOperation) and isinstance(
            parent.operator, (cst.Multiply, cst.Divide, cst.Add, cst.Power)
        ):
            return parent
        if isinstance(parent, cst.IfExp) and node is not parent.test:
            return parent
        if isinstance(parent, cst.Arg):
            call: cst.CSTNode | None = self._source.parents[parent]
        elif isinstance(parent, cst.Attribute):
            call = self._source.parents.get(parent)
            if not (isinstance(call, cst.Call) and call.func is parent):
                return None
        else:
            return None
        is_known = isinstance(call, cst.Call) and re.fullmatch(_CALLS, last_name(call.func)) is not None
        return call if is_known and isinstance(call, cst.Call) else None

    # ---- the decision ----------------------------------------------------------------------------------------------------

    def decision(self, node: cst.BaseExpression, path: _Path) -> Decision | ByNorm | None:
        """A clip, an unbounded coefficient, or nothing."""
        clip = next((found for place, form in path.reached if (found := self._bounded(place, form)) is not None), None)
        quotients = [found for _, form in path.reached if (found := unbounded(form, self._is_gradient)) is not None]
        if clip is None:  # any of them: the limit of `1 / norm * limit` stands in the second
            clip = next((one for one in quotients if self._is_bounded_by_a_condition(path, one)), None)
        found = clip or next(iter(quotients), None)
        if found is None or self._is_without_gradients(node):
            return None
        if any(leaf.op == "norm" and self._is_of_gradients(leaf) for leaf in leaves(found.limit)):
            return None  # a quotient of two norms of gradients: a cosine, an error
        known = self._is_of_gradients(found.norm)
        if clip is not None:
            named = has_limit(clip.limit)
            if not (known and (named or path.scales or known == "value")) and not (path.scales and named):
                return None
            places = [place for place, _ in path.reached]
            return ByNorm(self._context, node, places, self._mistake(places) or advice(node, clip, self._forms, self._context))
        in_place = path.in_place and (known == "value" or re.match(r"(global|total|grads?)_", str(found.norm.parts[0].value)))
        if path.scales and (has_limit(found.limit) or (in_place and found.limit.op == "number" and found.limit.value != 1)):
            if any(part.op == "norm" for part in leaves(found.limit)) and self._is_compared(node, path):
                is_lint = self._context.options.lint
                return None if is_lint else manual(node, advice(node, found, self._forms, self._context))
            if self._is_bounded_by_a_condition(path, Clip(_ANY, found.norm)):
                return self._to_another_limit(node)
            reason = f"{self._source.shown(node)} has no bound of 1 here: small gradients would be scaled up."
            return manual(node, Finding("GM113", reason, "Bound it by 1, or use gradclip's clip."))
        return None

    def _to_another_limit(self, node: cst.BaseExpression) -> Decision | None:
        """A norm is compared with one limit and scaled to another; some mean it, so the linter calls it no mistake."""
        if self._context.options.lint:
            return None
        reason = (
            f"{self._source.shown(node)} scales to a norm that its condition does not compare with: this is not a clip by norm."
        )
        return manual(node, Finding("GM113", reason, "If you mean a clip, use one limit in both, or gradclip's clip."))

    def _mistake(self, places: Sequence[cst.CSTNode]) -> Finding | None:
        """GM101: the loop that scales is over an iterator, which the norm has used up. GM105: no code takes the product."""
        torch = "torch" in self._resolver.modules
        for place in places:
            if last_name(getattr(place, "func", None)) in ("mul", "div", "multiply", "divide") and dropped(
                place, self._context
            ):
                return Finding("GM105")
            for outer in self._source.inside(place):
                over = outer.iter if isinstance(outer, (cst.For, cst.CompFor)) else None
                if isinstance(over, (cst.Name, cst.Attribute)) and (one := exhausted(over, outer, self._context, torch=torch)):
                    return one
        return None

    def _bounded(self, node: cst.CSTNode, form: Form) -> Clip | None:
        """The clip, if a form is one without the code around it."""
        parts = form.parts
        sign = -1 if form.op == "min" else 1
        for one in parts if form.op in ("min", "max") and norm_of(form) else ():
            for other in parts:  # of a coefficient the part with the norm is the small one, of a divisor the large one
                found = ratio(one, other) if norm_of(one) is not None else None
                if found is not None and found[1] == sign and not is_trivial(found[0].limit):
                    return found[0]
        if form.op == "choice" and len(parts) == 2:
            for one, other in (parts, parts[::-1]):
                found = ratio(one, other)
                if found is not None and self._conditions.choose(form, found[0]):
                    return found[0]
        for part in parts if form.op in ("min", "max", "product", "choice", "sum") else ():
            if part.op in ("min", "max", "choice") and (inner := self._bounded(node, part)) is not None:
                return inner
        return None

    def _is_bounded_by_a_condition(self, path: _Path, clip: Clip) -> bool:
        return any(self._conditions.choose(form, clip) or self._conditions.bound(place, clip) for place, form in path.reached)

    def _is_compared(self, node: cst.BaseExpression, path: _Path) -> bool:
        """Whether a choice or an ``if`` compares both sides of a quotient of two norms, as adaptive clipping does."""
        if not isinstance(node, cst.BinaryOperation):
            return False
        sides = [self._names(side) for side in (node.left, node.right)]
        tests = [test for place, _ in path.reached for test, _ in self._conditions.tests(place)]
        for place, form in path.reached:
            tests += [place.args[0].value] if form.op == "choice" and isinstance(place, cst.Call) and place.args else []
        return any(all(self._names(test) & side for side in sides) for test in tests)

    def _names(self, node: cst.BaseExpression) -> set[str]:
        return set(re.findall(r"[^\W\d]\w*", self._source.code(node)))

    # ---- evidence --------------------------------------------------------------------------------------------------------

    def _is_gradient(self, form: Form) -> bool:
        """Whether a leaf of a form is a gradient."""
        node = form.node
        if form.op == "norm" or not isinstance(node, cst.BaseExpression):
            return False
        return self._context.gradients.is_gradient(node) or (
            isinstance(node, (cst.Name, cst.Attribute, cst.Subscript)) and _GRADIENT.search(self._source.code(node)) is not None
        )

    def _is_of_gradients(self, norm: Form) -> str:
        """How it shows that a norm is of gradients: by its "value", by its "name"; "" if it does not."""
        text = str(norm.parts[0].value) if norm.parts else ""
        if norm.value == "name":
            return "name" if _OF_GRADIENTS.fullmatch(last_word(text.partition("[")[0])) else ""
        node = norm.parts[0].node or norm.node
        told = isinstance(node, cst.BaseExpression) and self._context.gradients.is_gradient(node)
        if not told and isinstance(node, cst.BaseExpression) and not self._context.options.lint:
            told = any(_GRADIENT.search(name) for name in self._context.gradients.origins(node))  # `u` of `updates`
        return "value" if told or _GRADIENT.search(text) else ""

    def _is_without_gradients(self, node: cst.CSTNode) -> bool:
        """Whether a function mentions no gradients: then it projects parameters onto a ball."""
        around = [outer for outer in self._source.ancestors(node) if isinstance(outer, cst.FunctionDef)]
        if not around:
            return False
        return not _mentions_gradients(self._source, around[-1])


_USES = 20  #: uses of a name to follow
_ANY = Form("any")  #: a limit that differs from none
_CALLS = (
    r"(_foreach_)?(mul|div|add|minimum|maximum|clamp(_min|_max)?|clip|min|max|pow|sqrt|reciprocal)_?|multiply|divide|true_?div(ide)?"
    r"|div_no_nan|clip_by_value|where|select|cond|float|cast|item|to|detach|astype|tensor|as_tensor|asarray|array|convert_to_tensor"
    r"|stop_gradient|type_as|float32|stack|squeeze|reshape|view"
)


@once
def _mentions_gradients(source: Source, function: cst.FunctionDef) -> bool:
    code = source.code(function).replace("no_grad", "")
    return re.search(r"clip|grad|update|\b\w?g\b", code, re.IGNORECASE) is not None
