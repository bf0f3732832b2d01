"""Whether an expression is a gradient: its name or the source of its value tells.

A name tells that it may be one. Evidence is its producer (``.grad``, ``grad()``, a tape, a hook) or its consumer (a step).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence

import libcst as cst

from gradclip.source.resolve import Resolver
from gradclip.source.source import Source, dotted, last_name, receiver, target_names, words
from gradclip.source.values import Values

__all__ = ["Gradients", "mentions_norm"]

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_GRADIENT = words("grad grads gradient gradients gvs gradvar gradvars dparam dparams dtheta")
_SOMETHING_ELSE = words(
    "norm norms clip max min requires no use has with enable is scaler scale fn acc accum accumulation steps step action "
    "actions dqda checkpoint checkpointing penalty normed normalized normalised hess hessian len length num count mask"
)
_BY_HAND = re.compile(r"d([A-Z]\w*|[wbuv]\w{0,2})")  # dW, dWxh, db: names from derivations on paper
_MAKES = words(
    "gradient gradients compute_gradients compute_grads get_gradients get_unscaled_gradients grad value_and_grad "
    "clip_by_global_norm clip_by_norm"
)
_KEEPS = words(
    "zip list tuple reversed enumerate filter map tree_map tree_leaves leaves flatten values items clip_by_value "
    "data clone detach numpy convert_to_tensor asarray array"
)
_APPLIES = words("apply_gradients apply apply_updates update")
_NO_DERIVATIVES = ("numpy.gradient", "torch.gradient", "jax.numpy.gradient")  #: differences of neighbours, as of an image
_MODULE_HOOKS = words(
    "register_backward_hook register_full_backward_hook register_full_backward_pre_hook"
)  #: the module is first
_RATE = re.compile(r"(^|[^a-z])(lr|alpha|eta|(learning_?|step_?)?rate|step_?size)([^a-z]|$)", re.IGNORECASE)
_SECOND = re.compile(r"hess(ian)?", re.IGNORECASE)
_NORM = re.compile(r"norm", re.IGNORECASE)
_PARAMETER = re.compile(
    r"^(p|w|b|param|params|parameter|weights?|bias|kernel|theta|var|variables?|embeddings?)\d*$|_(params?|weights?)$"
)


class Gradients:
    """Finds gradients by the names and the values in one source."""

    def __init__(self, source: Source, resolver: Resolver, values: Values, *, by_name: bool = True) -> None:
        """Read a source; without ``by_name`` only the source of a value tells."""
        self._source, self._resolver, self._values, self._by_name = source, resolver, values, by_name

    def is_shown(self, node: cst.BaseExpression, call: cst.Call) -> bool:
        """Whether the producer of a value, or the consumer of it or of a call's result, shows that it is a gradient."""
        shown = self._certain.is_gradient(node)
        takers = self._values.takers(self._source.function(call))
        return shown or any(map(self._is_applied, (call, *takers))) or self._is_consumed(node)

    def _is_consumed(self, node: cst.BaseExpression) -> bool:
        """Whether a step takes a value; of a loop over ``(dW, db)``, whether one takes each of them."""
        if self._consumed.isdisjoint(self.origins(node)):
            return False
        places = self._resolver.assigned_at(node) if isinstance(node, cst.Name) and node.value not in self._consumed else ()
        over = (given.value for place in places if (given := self._resolver.given(place)) is not None and given.each)
        listed = (one.value for value in over if isinstance(value, (cst.List, cst.Tuple)) for one in value.elements)
        return all(not isinstance(one, cst.Name) or one.value in self._consumed for one in listed)

    @functools.cached_property
    def _certain(self) -> Gradients:
        return Gradients(self._source, self._resolver, self._values, by_name=False)

    def origins(self, node: cst.BaseExpression) -> set[str]:
        """The names in an expression, and those of the collections of which they are items."""
        found = set()
        for name in self._source.of(node, cst.Name):
            places = self._resolver.assigned_at(name)
            key = (Gradients.origins, id(places))
            found |= {name.value} | self._source.once(key, functools.partial(self._items, places))
        return found

    def _items(self, places: Sequence[cst.CSTNode]) -> set[str]:
        """The names in the collections of which some bindings are items, or which a function gets."""
        found = set()
        for place in places:
            given = self._resolver.given(place)
            values = (
                self._values.given(place) if isinstance(place, cst.Param) else [given.value] if given and given.each else []
            )
            found |= {one.value for value in values for one in self._source.of(value, cst.Name)}
        return found

    @functools.cached_property
    def _consumed(self) -> frozenset[str]:
        """The names that a step takes: ``apply_updates(updates)``, ``p.grad = g``, ``w -= lr * dw``."""
        return self._source.once((Gradients, "consumed"), lambda: frozenset(self._steps()))

    def _steps(self) -> Iterator[str]:
        yield from (name for name, _ in self._applied)
        source = self._source
        values = [one.value for one in source.all(cst.Assign) if any(_is_grad(target.target) for target in one.targets)]
        values += [one.args[0].value for one in source.calls.get("copy_", ()) if one.args and _is_grad(receiver(one))]
        steps = [
            one.value for one in source.all(cst.AugAssign) if isinstance(one.operator, (cst.AddAssign, cst.SubtractAssign))
        ]
        steps += [one.right for one in source.all(cst.BinaryOperation) if isinstance(one.operator, cst.Subtract)]
        values += [one for one in steps if _RATE.search(source.code(one))]
        for value in values:
            yield from self.origins(value)

    def is_gradient(self, node: cst.BaseExpression, depth: int = 6) -> bool:
        """Whether ``node`` is a gradient or several gradients, by name or by value."""
        if depth == 0:
            return False
        if isinstance(node, cst.Attribute):
            return node.attr.value == "grad" or (
                self.is_gradient(node.value, depth - 1)
                if node.attr.value in ("data", "values", "grads")
                else self.is_named(node.attr.value)
            )
        if isinstance(node, cst.Name):
            if _SECOND.search(node.value):
                return False
            return self.is_named(node.value) or self._comes_from_gradients(node, depth)
        if isinstance(node, cst.Subscript):
            return self.is_gradient(node.value, depth - 1)
        if isinstance(node, cst.Call):
            return self._is_made(node, depth)
        if isinstance(node, (cst.List, cst.Tuple)):
            known = [self.is_gradient(element.value, depth - 1) for element in node.elements]
            others = (one.value for one, told in zip(node.elements, known, strict=True) if not told)
            return any(known) and all(self._by_name and _BY_HAND.fullmatch(last_name(one)) for one in others)  # (dW, db)
        if isinstance(node, (cst.ListComp, cst.GeneratorExp)):
            return self.is_gradient(node.elt, depth - 1)
        return False

    def is_taken(self, call: cst.Call) -> bool:
        """Whether the result of a call has a gradient's name, or goes to a function that applies gradients."""
        target = self._source.target(call)
        first = target.elements[0].value if isinstance(target, cst.Tuple) and target.elements else target
        if first is None:
            return self._is_applied(call)
        if not isinstance(first, cst.Name) or self.is_named(first.value):
            return self.is_named(last_name(first))
        key = (Gradients.is_taken, first.value)
        uses = self._resolver.uses.get(first.value, ())
        return self._source.once(key, lambda: any(self._is_applied(use) for use in uses))

    def is_called_one(self, call: cst.Call) -> bool:
        """Whether the result of a call has a gradient's name."""
        return self.is_named(last_name(self._source.target(call)))

    def _is_applied(self, node: cst.CSTNode) -> bool:
        """Whether a value is part of an argument of ``apply_gradients`` or a similar function."""
        function = self._source.function(node)
        for outer in self._source.ancestors(node):
            if isinstance(outer, cst.Call) and last_name(outer.func) in _APPLIES:
                return True
            if isinstance(outer, cst.Assign):
                names = {name for target in outer.targets for name in target_names(target.target)}
                return any((name, function) in self._applied for name in names)
            if outer is function:
                break
        return False

    @functools.cached_property
    def _applied(self) -> set[tuple[str, cst.CSTNode]]:
        """The names in the calls that apply gradients, each with its function."""
        return {
            (name, self._source.function(use))
            for name, uses in self._resolver.uses.items()
            for use in uses
            if any(isinstance(o, cst.Call) and last_name(o.func) in _APPLIES for o in self._source.ancestors(use))
        }

    def is_action(self, node: cst.BaseExpression) -> bool:
        """Whether a node is the gradient of an action, which DDPG clips or inverts, not of a parameter."""
        return bool(re.search(r"action|dqda", self._source.code(node), re.IGNORECASE))

    def is_parameter(self, node: cst.BaseExpression) -> bool:
        """Whether a node is a parameter, not its gradient: ``p.data``, ``weight``."""
        parts = dotted(node)
        if parts is None or "grad" in parts:
            return False
        return bool(_PARAMETER.search(parts[-2] if len(parts) > 1 and parts[-1] == "data" else parts[-1]))

    def is_named(self, name: str) -> bool:
        """Whether a name is a name for gradients."""
        if not self._by_name:
            return False
        words = {word.lower() for word in _WORDS.findall(name)}
        derived = _BY_HAND.fullmatch(name) is not None and (
            name[1].isupper() or name in self._consumed
        )  # `dw` is a box's width too
        return bool(words & _GRADIENT and not words & _SOMETHING_ELSE) or derived

    def _is_made(self, call: cst.Call, depth: int) -> bool:
        name = last_name(call.func)
        if isinstance(call.func, cst.Call):  # jax.grad(loss)(params)
            return last_name(call.func.func) in ("grad", "value_and_grad")
        if name in _MAKES:
            return self._resolver.name(call.func) not in _NO_DERIVATIVES
        if name not in _KEEPS:
            return False
        values = [argument.value for argument in call.args]
        owner = receiver(call)  # grad.clone()
        return any(self.is_gradient(value, depth - 1) for value in (*values, *([owner] if owner is not None else ())))

    def _comes_from_gradients(self, name: cst.Name, depth: int) -> bool:
        places = self._resolver.assigned_at(name)
        binding = self._source.once(
            (Gradients._comes_from_gradients, id(places), depth, self._by_name),
            lambda: [p for p in places if self._binds_gradient(p, depth)],
        )
        return any(not self._is_in_value(name, place) for place in binding)

    def _is_in_value(self, name: cst.Name, place: cst.CSTNode) -> bool:
        """Whether a name is in the value that a statement assigns to a place: ``g`` in ``g = g * 2``."""
        target = self._source.within(place, cst.AssignTarget)
        statement = self._source.parents[target] if target is not None else None
        return isinstance(statement, cst.Assign) and statement.value in (name, *self._source.ancestors(name))

    def _binds_gradient(self, place: cst.CSTNode, depth: int) -> bool:
        if isinstance(place, cst.Param):
            return self._is_hook(place) or any(self.is_gradient(one, depth - 1) for one in self._values.given(place))
        given = self._resolver.given(place)
        if given is None:
            return False
        call = given.value if isinstance(given.value, cst.Call) else None
        if not given.each:
            is_pair = call is not None and isinstance(call.func, cst.Call)  # loss, grads = value_and_grad(...)(...)
            return self.is_gradient(given.value, depth - 1) and (is_pair or not any(given.part))
        named = call is not None and last_name(call.func) == "items"  # (name, gradient); all others give (gradient, variable)
        return (given.part[-1:] == (1,)) == named and self.is_gradient(given.value, depth - 1)

    def _is_hook(self, place: cst.Param) -> bool:
        """Whether torch calls a function with the gradient: a hook of a tensor or a module, the backward pass of a function."""
        function = self._source.function(place)
        given = function.params.params if isinstance(function, (cst.FunctionDef, cst.Lambda)) else ()
        is_first = bool(given) and given[0] is place
        if isinstance(function, cst.FunctionDef) and function.name.value == "backward" and given[0].name.value == "ctx":
            return not is_first
        hooks = {last_name(call.func) for call in self._values.takers(function)}
        return "register_hook" in hooks or (not is_first and not _MODULE_HOOKS.isdisjoint(hooks))


def _is_grad(node: cst.CSTNode | None) -> bool:
    """Whether it is ``p.grad``, or its data."""
    parts = dotted(node) if node is not None else None
    return parts is not None and "grad" in parts[1:]


def mentions_norm(text: str) -> bool:
    """Whether the text of a limit mentions a norm: ``args.max_grad_norm``."""
    return bool(_NORM.search(text))
