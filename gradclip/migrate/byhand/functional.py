"""A clip by norm, written out, that returns gradients, or scales arrays in place.

``norms`` finds the quotient; here the expression or the statement around it that scales gradients is read exactly (``exact``).
It is a clip if its value is ``g * min(1, limit / norm)``, with the norm of ``g`` or of the whole collection.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from gradclip.migrate.byhand.coefficients import Clipped, Coefficients, is_short
from gradclip.migrate.byhand.exact import Exact
from gradclip.migrate.byhand.guards import without_guard
from gradclip.migrate.byhand.measures import is_tensor
from gradclip.source.byhand.algebra import Form, leaves, product
from gradclip.source.found import Context
from gradclip.source.resolve import Resolver
from gradclip.source.source import last_name, receiver

__all__ = ["Exactly", "Functional", "is_no_grad"]

_METHODS = {"mul_": 1.0, "div_": -1.0, "multiply_": 1.0, "divide_": -1.0, "set_value": 0.0, "copy_": 0.0}
_EXPRESSIONS = (cst.Call, cst.BinaryOperation, cst.ListComp, cst.GeneratorExp, cst.IfExp)
_SMALL = (cst.Assign, cst.AugAssign, cst.Return, cst.Expr)


@dataclass(frozen=True, slots=True)
class Exactly:
    """A clip that was read exactly."""

    site: cst.CSTNode  #: the expression or the statement that is the whole clip
    tensors: str
    clip: Clipped
    framework: str
    keeps: bool  #: whether it leaves its arguments as they are
    to: str = ""  #: what it is assigned to
    replaces: bool = False  #: whether each parameter gets a new gradient: ``p.grad = p.grad * c``


class Functional:
    """The clips of one source."""

    def __init__(self, context: Context, framework: str) -> None:
        """Read the clips of arrays of a framework, and those of torch's parameters where the source imports torch."""
        self._framework, self._source, self._resolver = framework, context.source, context.resolver
        self._values = context.values
        self.exact = Exact(context)
        self._coefficients = Coefficients(context, self.exact)

    def clips(self, places: Sequence[cst.CSTNode]) -> Iterator[Exactly]:
        """The clips whose quotient reaches some places; nothing where a value is not certain."""
        for place in (*places, *self._nested(places)):
            for site in self._sites(place):
                if (made := self._read(site)) is not None:
                    yield made

    def _nested(self, places: Sequence[cst.CSTNode]) -> Iterator[cst.CSTNode]:
        """The uses of the names of some values in functions within the function."""
        for place in places:
            target = self._source.target(place)
            if isinstance(target, cst.Name):
                yield from self._within.get((self._source.function(place), target.value), ())

    @functools.cached_property
    def _within(self) -> Mapping[tuple[cst.CSTNode, str], list[cst.Name]]:
        """The names that functions within a function read, by that function and the name."""
        found: dict[tuple[cst.CSTNode, str], list[cst.Name]] = defaultdict(list)
        for name in self._source.all(cst.Name):
            outer = self._source.function(self._source.function(name))
            if isinstance(outer, cst.FunctionDef):
                found[outer, name.value].append(name)
        return found

    # ---- where it scales -------------------------------------------------------------------------------------------------

    def _sites(self, place: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The statements and the expressions around a place that may be the whole clip, the largest first."""
        found: list[cst.CSTNode] = []
        for outer in (place, *self._source.ancestors(place)):
            if isinstance(outer, _EXPRESSIONS):
                found.append(outer)
            elif isinstance(outer, cst.Return):
                found += self._values.takers(self._source.function(outer))
            elif isinstance(outer, cst.Lambda):
                found += self._values.takers(outer)
            elif isinstance(outer, (cst.AugAssign, cst.Assign, cst.Expr, cst.For, cst.If)):
                found.append(outer)
            elif isinstance(outer, cst.FunctionDef):
                break
        yield from reversed(found)

    def _read(self, site: cst.CSTNode) -> Exactly | None:
        if isinstance(site, cst.BaseExpression):
            return self._expression(site)
        if isinstance(site, (cst.For, cst.If)):
            return self._block(site)
        return self._in_place(site, site, None) if isinstance(site, (cst.AugAssign, cst.Expr)) else None

    def _expression(self, site: cst.BaseExpression) -> Exactly | None:
        form = self.exact.again(site)
        if form.op == "list":
            each, collection = form.parts
            over = site.for_in.iter if isinstance(site, (cst.ListComp, cst.GeneratorExp)) else None
            over = site.args[1].value if isinstance(site, cst.Call) and len(site.args) > 1 else over
            clip = (
                self._coefficients.clip(each, Form("item", (collection,)), site)
                if over is not None and not form.value
                else None
            )
            if clip is None or clip.norm.value == "one" or not is_short(over):
                return None
            return Exactly(site, self._source.one_line(over), clip, self._framework, keeps=True)
        for leaf in leaves(form):
            if (
                leaf.op == "norm"
                and leaf.value == "one"
                and (clip := self._coefficients.clip(form, leaf.parts[0], site)) is not None
            ):
                shown = self._shown(leaf.parts[0], site)
                return Exactly(site, shown, clip, self._framework, keeps=True) if shown else None
        return None

    def _block(self, site: cst.For | cst.If) -> Exactly | None:
        """A loop that scales each gradient in place, or an ``if`` around it or around an assignment."""
        if isinstance(self._source.parents[site], cst.If):
            return None  # an `elif`
        if isinstance(site, cst.For):
            return self._scaling(site, site, None)
        if site.orelse is not None and not self._is_idle(site.orelse):
            return None
        *before, last = site.body.body
        made = self._scaling(site, last, site.test)
        read = {self._source.statement(place) for place in self.exact.read}
        return made if read.issuperset(before) else None

    def _scaling(self, site: cst.CSTNode, inner: cst.CSTNode | None, test: cst.BaseExpression | None) -> Exactly | None:
        if isinstance(inner, cst.With) and all(is_no_grad(one.item, self._resolver) for one in inner.items):
            inner = _only(inner.body)
        if isinstance(inner, cst.For):
            loop, lines = inner, without_guard(inner)
            small = _small(lines[0] if len(lines) == 1 else None)
            return self._in_place(site, small, loop, test) if small is not None and loop.orelse is None else None
        small = _small(inner)
        if isinstance(small, (cst.AugAssign, cst.Expr)):
            return self._in_place(site, small, None, test)
        if not isinstance(small, cst.Assign) or len(small.targets) != 1 or test is None:
            return None
        target = small.targets[0].target
        form, shown = self.exact.again(small.value), self._source.code(target)
        over = _collection_of(form, small.value)
        if form.op == "list" and over is not None and self._source.code(over) == shown and not form.value:
            item = Form("item", (form.parts[1],))
            clip = self._coefficients.clip(self.exact.chosen(test, form.parts[0], item), item, site)
            clip = None if clip is not None and clip.norm.value == "one" else clip
        else:
            tensor = Form("name", value=shown)
            clip = self._coefficients.clip(self.exact.chosen(test, form, tensor), tensor, site)
        return Exactly(site, shown, clip, self._framework, keeps=True, to=shown) if clip is not None else None

    def _is_idle(self, branch: cst.If | cst.Else) -> bool:
        """Whether an ``else`` does nothing: ``grads = grads``."""
        small = _small(_only(branch.body)) if isinstance(branch, cst.Else) else None
        same = isinstance(small, cst.Assign) and [self._source.code(one.target) for one in small.targets]
        return bool(same) and isinstance(small, cst.Assign) and same == [self._source.code(small.value)]

    def _in_place(
        self, site: cst.CSTNode, small: cst.CSTNode, loop: cst.For | None, test: cst.BaseExpression | None = None
    ) -> Exactly | None:
        """``g *= ...`` or ``p.grad.mul_(...)``, alone or in a loop over the gradients."""
        scaled = self._scaled(small)
        if scaled is None:
            return None
        target, value, power = scaled
        self.exact.again(target)
        listed = self._listed(target, loop)
        item = self.exact.of(target) if listed is None else Form("item", (self.exact.of(listed),))
        form = product((item, 1), (self.exact.of(value), power)) if power else self.exact.of(value)
        form = form if test is None else self.exact.chosen(test, form, item)
        clip = self._coefficients.clip(form, item, site) if is_tensor(item) else None
        of_parameters = item.op == "item" and item.value == "grad"
        if clip is None or (clip.norm.value == "one") != (loop is None):
            return None
        if listed is not None:  # the elements of a list are replaced
            shown = self._source.code(listed)
            return Exactly(site, shown, clip, self._framework, keeps=True, to=f"{shown}[:]")
        if loop is not None and not isinstance(loop.target, cst.Name):
            return None  # zip and enumerate give pairs, and zip may end early
        new = isinstance(small, cst.Assign) and not of_parameters  # `g = g * c` in a loop changes nothing
        framework = "torch" if of_parameters and "torch" in self._resolver.modules else self._framework
        if new or framework in ("jax", "tensorflow") or (framework == "numpy") == of_parameters:
            return None
        over = target if loop is None else loop.iter
        shown = self._source.code(over)
        if of_parameters and loop is None:
            shown = shown.removesuffix(".data").removesuffix(".grad")
        replaces = isinstance(small, cst.Assign) and last_name(target) == "grad"
        return Exactly(site, shown, clip, framework, keeps=False, replaces=replaces) if is_short(over) else None

    def _listed(self, target: cst.BaseExpression, loop: cst.For | None) -> cst.BaseExpression | None:
        """The list in ``for i, g in enumerate(grads): grads[i] = ...``."""
        call = loop.iter if loop is not None else None
        if not isinstance(target, cst.Subscript) or not isinstance(call, cst.Call) or last_name(call.func) != "enumerate":
            return None
        pair = loop.target if loop is not None and isinstance(loop.target, cst.Tuple) else None
        code = self._source.code
        index = code(pair.elements[0].value) if pair is not None else ""
        same = len(call.args) == 1 and code(target) == f"{code(call.args[0].value)}[{index}]"
        return target.value if same and isinstance(target.value, cst.Name) else None

    def _scaled(self, small: cst.CSTNode) -> tuple[cst.BaseExpression, cst.BaseExpression, float] | None:
        """What a statement scales, by what, and 1 or -1; or what it sets, to what, and 0."""
        if isinstance(small, cst.AugAssign) and isinstance(small.operator, (cst.MultiplyAssign, cst.DivideAssign)):
            whole = self._source.one_line(small.target).endswith(("[:]", "[...]"))
            target = small.target.value if whole and isinstance(small.target, cst.Subscript) else small.target
            return target, small.value, 1.0 if isinstance(small.operator, cst.MultiplyAssign) else -1.0
        if isinstance(small, cst.Assign) and len(small.targets) == 1:
            return small.targets[0].target, small.value, 0.0
        call = small.value if isinstance(small, cst.Expr) else None
        inner = receiver(call, *_METHODS)
        if inner is None or not isinstance(call, cst.Call) or len(call.args) != 1:
            return None
        scaled = inner
        while (inner := receiver(scaled, "detach")) is not None:
            scaled = inner
        return scaled, call.args[0].value, _METHODS[last_name(call.func)]

    def _shown(self, tensor: Form, site: cst.BaseExpression) -> str:
        """The code of a tensor in an expression."""
        begin, end = self._source.span(site)
        nodes: list[cst.BaseExpression] = [*self._source.between(cst.Attribute, begin, end)]
        nodes += self._source.between(cst.Name, begin, end)
        return next((self._source.code(one) for one in nodes if self.exact.of(one) == tensor), "")


def is_no_grad(node: cst.BaseExpression, resolver: Resolver) -> bool:
    """Whether it is torch's or Paddle's context without gradients."""
    return isinstance(node, cst.Call) and not node.args and resolver.name(node.func) in ("torch.no_grad", "paddle.no_grad")


def _collection_of(form: Form, value: cst.BaseExpression) -> cst.BaseExpression | None:
    if form.op != "list":
        return None
    if isinstance(value, (cst.ListComp, cst.GeneratorExp)):
        return value.for_in.iter
    return value.args[1].value if isinstance(value, cst.Call) and len(value.args) > 1 else None


def _only(block: cst.BaseSuite) -> cst.CSTNode | None:
    """The only statement of a block."""
    return block.body[0] if len(block.body) == 1 else None


def _small(node: cst.CSTNode | None) -> cst.CSTNode | None:
    """The only small statement of a line."""
    if isinstance(node, cst.SimpleStatementLine):
        return node.body[0] if len(node.body) == 1 and isinstance(node.body[0], _SMALL) else None
    return node if isinstance(node, _SMALL) else None
