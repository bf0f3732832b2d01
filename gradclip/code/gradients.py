"""Whether an expression is a gradient: its name or the source of its value tells."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import libcst as cst

from gradclip.code.bind import keywords
from gradclip.code.resolve import Resolver
from gradclip.code.source import Source, dotted, last_name, target_names, words

__all__ = ["Gradients", "mentions_norm"]

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_GRADIENT = words("grad grads gradient gradients gvs gradvar gradvars dparam dparams dtheta")
_SOMETHING_ELSE = words(
    "norm norms clip max min requires no use has with enable is scaler scale fn acc accum accumulation steps step action "
    "actions dqda checkpoint checkpointing penalty normed normalized normalised"
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
_NORM = re.compile(r"norm", re.IGNORECASE)
_PARAMETER = re.compile(
    r"^(p|w|b|param|params|parameter|weights?|bias|kernel|theta|var|variables?|embeddings?)\d*$|_(params?|weights?)$"
)


class Gradients:
    """Finds gradients by the names and the values in one source."""

    def __init__(self, source: Source, resolver: Resolver) -> None:
        self._source, self._resolver = source, resolver

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
            return self.is_named(node.value) or self._comes_from_gradients(node, depth)
        if isinstance(node, cst.Subscript):
            return self.is_gradient(node.value, depth - 1)
        if isinstance(node, cst.Call):
            return self._is_made(node, depth)
        if isinstance(node, (cst.List, cst.Tuple)):
            return bool(node.elements) and all(self.is_gradient(element.value, depth - 1) for element in node.elements)
        if isinstance(node, (cst.ListComp, cst.GeneratorExp)):
            return self.is_gradient(node.elt, depth - 1)
        return False

    def is_taken(self, call: cst.Call) -> bool:
        """Whether the result of a call has a gradient's name, or goes to a function that applies gradients."""
        holder = self._source.parents[call]
        if isinstance(holder, cst.Assign):
            target = holder.targets[0].target
            first = target.elements[0].value if isinstance(target, cst.Tuple) and target.elements else target
            if isinstance(first, cst.Name):
                if self.is_named(first.value):
                    return True
                uses = self._resolver.uses.get(first.value, ())
                key = (Gradients.is_taken, first.value)
                return self._source.once(key, lambda: any(self._is_applied(use) for use in uses))
            return isinstance(first, cst.Attribute) and self.is_named(first.attr.value)
        return self._is_applied(call)

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
        words = {word.lower() for word in _WORDS.findall(name)}
        return bool(words & _GRADIENT and not words & _SOMETHING_ELSE) or _BY_HAND.fullmatch(name) is not None

    def _is_made(self, call: cst.Call, depth: int) -> bool:
        name = last_name(call.func)
        if isinstance(call.func, cst.Call):  # jax.grad(loss)(params)
            return last_name(call.func.func) in ("grad", "value_and_grad")
        if name in _MAKES:
            return True
        if name not in _KEEPS:
            return False
        values = [argument.value for argument in call.args]
        return any(self.is_gradient(value, depth - 1) for value in values) or (
            isinstance(call.func, cst.Attribute) and self.is_gradient(call.func.value, depth - 1)  # grad.clone()
        )

    def _comes_from_gradients(self, name: cst.Name, depth: int) -> bool:
        places = self._resolver.assigned_at(name)
        binding = self._source.once(
            (Gradients._comes_from_gradients, id(places), depth), lambda: [p for p in places if self._binds_gradient(p, depth)]
        )
        return any(not self._is_in_value(name, place) for place in binding)

    def _is_in_value(self, name: cst.Name, place: cst.CSTNode) -> bool:
        """Whether a name is in the value that a statement assigns to a place: ``g`` in ``g = g * 2``."""
        target = self._source.within(place, cst.AssignTarget)
        statement = self._source.parents[target] if target is not None else None
        return isinstance(statement, cst.Assign) and statement.value in (name, *self._source.ancestors(name))

    def _binds_gradient(self, place: cst.CSTNode, depth: int) -> bool:
        parents = self._source.parents
        outer, first = place, True
        while isinstance(parents.get(outer), (cst.Element, cst.Tuple, cst.List, cst.StarredElement)):
            outer = parents[outer]
            if isinstance(outer, (cst.Tuple, cst.List)):
                first = first and outer.elements[0].value in (place, *self._source.ancestors(place))
        holder = parents.get(outer)
        if isinstance(holder, (cst.For, cst.CompFor)):
            return self._iterates(holder.iter, place, depth)
        if isinstance(holder, cst.AssignTarget):
            statement = parents[holder]
            value = statement.value if isinstance(statement, cst.Assign) else None
            if value is None:
                return False
            is_pair = isinstance(value, cst.Call) and isinstance(value.func, cst.Call)  # loss, grads = value_and_grad(...)(...)
            return self.is_gradient(value, depth - 1) and (first or is_pair)
        if isinstance(holder, cst.Lambda) or isinstance(place, cst.Param):
            return self._is_mapped(place, depth) or self._is_passed(place, depth)
        return False

    def _iterates(self, iterable: cst.BaseExpression, place: cst.CSTNode, depth: int) -> bool:
        """Whether a place is a loop's target: over gradients, ``zip(grads, variables)``, or ``(gradient, variable)`` pairs."""
        if isinstance(iterable, cst.Call) and last_name(iterable.func) == "items":
            return self.is_gradient(iterable, depth - 1) and self._place_in_pair(place) == 1
        if not isinstance(iterable, cst.Call) or last_name(iterable.func) not in ("zip", "enumerate"):
            return self.is_gradient(iterable, depth - 1) and self._place_in_pair(place) != 1
        if last_name(iterable.func) == "enumerate":
            return (
                bool(iterable.args) and self.is_gradient(iterable.args[0].value, depth - 1) and self._place_in_pair(place) != 1
            )
        number = self._place_in_pair(place)
        if number is None or number >= len(iterable.args):
            return False
        return self.is_gradient(iterable.args[number].value, depth - 1)

    def _place_in_pair(self, place: cst.CSTNode) -> int | None:
        """The index in the innermost tuple of targets; None for a target outside of a tuple."""
        element = self._source.parents.get(place)
        pair = self._source.parents.get(element) if isinstance(element, cst.Element) else None
        if not isinstance(pair, (cst.Tuple, cst.List)):
            return None
        return next((number for number, item in enumerate(pair.elements) if item is element), None)

    def _is_passed(self, place: cst.CSTNode, depth: int) -> bool:
        """Whether a place is a parameter of a function that this source calls with gradients."""
        parameters = self._source.parents.get(place)
        function = self._source.parents.get(parameters) if isinstance(parameters, cst.Parameters) else None
        if not isinstance(place, cst.Param) or not isinstance(function, cst.FunctionDef):
            return False
        names = [param.name.value for param in function.params.params]
        names = names[1:] if names[:1] in (["self"], ["cls"]) else names
        for call in self._source.calls.get(function.name.value, ()):
            given = keywords(call)
            given.update(zip(names, (a.value for a in call.args if a.keyword is None and not a.star), strict=False))
            value = given.get(place.name.value)
            if value is not None and self.is_gradient(value, depth - 1):
                return True
        return False

    def _is_mapped(self, place: cst.CSTNode, depth: int) -> bool:
        """Whether a place is the parameter of a lambda in ``map(lambda g: ..., grads)``, or of a function with a known name."""
        function = self._source.within(place, cst.Lambda, cst.FunctionDef)
        if not isinstance(function, (cst.Lambda, cst.FunctionDef)):
            return False
        index = next((number for number, one in enumerate(function.params.params) if one is place), 0)
        arguments = [self._source.parents.get(function), *map(self._source.parents.get, self._named_uses(function))]
        for argument in arguments:
            call = self._source.parents.get(argument) if isinstance(argument, cst.Arg) else None
            if not isinstance(call, cst.Call) or call.args[0] is not argument:
                continue
            if last_name(call.func) == "register_hook":  # torch calls a tensor's hook with the gradient
                return True
            if "map" in last_name(call.func) and any(
                self.is_gradient(a.value, depth - 1) for a in call.args[1 + index : 2 + index]
            ):
                return True
        return False

    def _named_uses(self, function: cst.Lambda | cst.FunctionDef) -> Sequence[cst.Name]:
        """The places that read the name of a function, or of a lambda: ``f`` after ``f = lambda g: ...``."""
        if isinstance(function, cst.FunctionDef):
            return self._resolver.uses.get(function.name.value, ())
        holder = self._source.parents.get(function)
        names = target_names(holder.targets[0].target) if isinstance(holder, cst.Assign) else ()
        return [use for name in names for use in self._resolver.uses.get(name, ())]


def mentions_norm(text: str) -> bool:
    """Whether the text of a limit mentions a norm: ``args.max_grad_norm``."""
    return bool(_NORM.search(text))
