"""Calls: of the project's own functions, of a library's, of methods, of builtins."""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from gradclip.rounds import Step
from gradclip.source.reading import (
    attributes,
    coefficients,
    degrees,
    forward,
    functional,
    generators,
    gradients,
    handlers,
    libraries,
    limits,
    measures,
    mends,
    methods,
    modules,
    scales,
    slots,
    taken,
    tests,
)
from gradclip.source.reading.program import last
from gradclip.source.reading.values import (
    MOST,
    Bound,
    Call,
    Class,
    Constant,
    Elements,
    Function,
    Gradients,
    Instance,
    Library,
    Made,
    Table,
    Thing,
    Tuple,
    Value,
    last_of,
    marks,
)

if TYPE_CHECKING:
    from gradclip.source.reading.machine import Machine

__all__ = ["apply", "call", "unknown"]

_RANDOM = frozenset({"normal", "randn_like", "randn", "laplace"})  #: private training adds it to the sum of clipped gradients
_CLAMPS = frozenset({"clamp", "clip", "clip_by_value"})
_PREDICATES = frozenset({"isinstance", "hasattr", "callable", "len", "bool", "any", "all"})  #: equal calls are equal tests
_SAME = frozenset({"list", "tuple", "iter", "sorted", "reversed", "set", "enumerate", "tqdm"})


def call(machine: Machine, node: ast.Call) -> Value:
    """The result of a call."""
    hint, machine.hint = machine.hint, ()
    func = node.func
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Call) and last(func.value.func) == "super":
        return _of_super(machine, func.attr, _arguments(machine, node))
    target = machine.value(func) if not isinstance(func, ast.Attribute) else None
    owner = machine.value(func.value) if isinstance(func, ast.Attribute) else None
    given = _arguments(machine, node)
    machine.hint = hint
    if last(func) in _CLAMPS:
        limits.ranged(machine, given)
    if given.given:
        measures.logged(machine, [Table((), items=dict(given.given.items()))])  # log(grad_norm=norm)
    if owner is not None and isinstance(func, ast.Attribute):
        made = _method(machine, owner, func.attr, given)
    else:
        made = apply(machine, target or Constant(("None",)), given)
    machine.hint = ()
    return made


def _arguments(machine: Machine, node: ast.Call) -> Call:
    args: list[Value] = []
    given: dict[str, Value] = {}
    is_starred = False
    for x in node.args:
        one = machine.value(x.value if isinstance(x, ast.Starred) else x)
        if isinstance(x, ast.Starred) and isinstance(one, Tuple):
            args += one.items
        else:
            is_starred |= isinstance(x, ast.Starred) and not isinstance(one, (Elements, Gradients))
            args.append(one)
    for keyword in node.keywords:
        one = machine.value(keyword.value)
        if keyword.arg is not None:
            given[keyword.arg] = one
        elif isinstance(one, Table):
            given |= {str(key): x for key, x in one.items.items()}
        else:
            is_starred = True
    return Call(node, tuple(args[:MOST]), given, is_starred)


def apply(machine: Machine, target: Value, given: Call) -> Value:
    """The result of calling a value."""
    if isinstance(target, Function):
        return generators.managed(target, given) or machine.enter(target, given.args, given.given, given.node)
    if isinstance(target, Class):
        return _instance(machine, target, given)
    if isinstance(target, Bound):
        if target.function is not None:
            managed = generators.managed(target.function, given, target.owner)
            return managed or machine.enter(target.function, given.args, given.given, given.node, target.owner)
        return _method(machine, target.owner, target.name, given)
    if isinstance(target, Library):
        if target.given[0] or target.given[1]:
            given = replace(given, args=(*target.given[0], *given.args), given={**target.given[1], **given.given})
        return libraries.function(machine, target.name, given)
    if isinstance(target, Made) and functional.is_derivative(target.name):
        return functional.differentiated(machine, target, given)
    if isinstance(target, Made) and given.node is machine.bare and slots.is_object(target):
        gradients.dropped(machine, given)
    if isinstance(target, Instance):
        method = machine.method(target, "__call__")
        if method is not None:
            return machine.enter(method, given.args, given.given, given.node, target)
    if isinstance(target, Thing) and len(target.token) == 1:
        built = _builtin(machine, str(target.token[0]), given)
        if built is not None:
            return built
    return unknown(machine, target, given, forward.through(machine, target))


def unknown(machine: Machine, target: Value, given: Call, more: frozenset[str] = frozenset()) -> Value:
    """The result of a call of which nothing is known, with the marks ``more``: equal calls have equal results."""
    values = (*given.args, *given.given.values())
    is_reduced = measures.passed(machine, given)
    measures.logged(machine, values)
    if machine.frozen:
        modules.passed(machine, target, values)
    called = last_of(target).rpartition(".")[2]
    if (made := coefficients.function(machine, called, given)) is not None:
        return made
    if any(taken.gathered(x) is not None for x in values):
        return machine.thing(given.node, "gradients")
    key = (target.token, tuple(x.token for x in values))
    name = str(target.token[-1]) if target.token else ""
    said = marks(values) | target.marks - {"process"} | ({mends.NOISE} if called in _RANDOM else frozenset())
    said = frozenset(x for x in said if not x.startswith(forward.THROUGH)) | forward.kept(said | more, called) | more
    said = (said - {mends.ELEMENTS}) | mends.of_noise(said, values)
    said -= {measures.LOCAL} if is_reduced else frozenset()
    said = degrees.after_call(called, said, (target, *values))
    modules.frozen_by(machine, called, values)
    for x in values:  # os.environ.get("RANK")
        said |= tests.marked(x.value) if isinstance(x, Constant) and isinstance(x.value, str) else frozenset()
    if not values and len(target.token) > 1 and not machine.hint:  # a part of the object: model.get_input_embeddings()
        return Thing((*target.token[:-1], f"{name}()"), said)
    if called == "get" and not machine.hint and all(isinstance(x, Constant) for x in values):  # equal look-ups are equal tests
        return Thing(machine.token("get", *key), said)
    if any(gradients.may_be_module(machine, x) for x in values):
        said |= {"open"}
    return Thing(machine.fresh(given.node, name, key), said)


def _instance(machine: Machine, target: Class, given: Call) -> Value:
    made = machine.instance(target, given.args, given.given, given.node)
    if made.base is None and (machine.is_a(target, ("Optimizer",)) or _is_of_torch(machine, target)):
        made.base = _optimizer(made, given)
    return made


def _optimizer(owner: Instance, given: Call) -> Made:
    """What an object is for the library whose optimizer its class is made from."""
    return Made(owner.token, name="torch.optim.Own", args=given.args, given=dict(given.given), node=given.node)


def _of_super(machine: Machine, name: str, given: Call) -> Value:
    owner, cls = machine.scope.owner, machine.scope.cls
    for base in machine.bases(cls) if isinstance(owner, Instance) and cls is not None else ():
        method = machine.method(owner, name, base) if isinstance(owner, Instance) else None
        if method is not None:
            return machine.enter(method, given.args, given.given, given.node, owner)
    if isinstance(owner, Instance) and name == "__init__" and _is_of_torch(machine, owner.of):
        owner.base = _optimizer(owner, given)
    if isinstance(owner, Instance) and owner.base is not None and (made := methods.method(machine, owner.base, name, given)):
        return made
    return machine.unknown(Thing(("super", name)), given)


def _is_of_torch(machine: Machine, cls: Class) -> bool:
    """Whether a class is made from an optimizer of PyTorch."""
    found = [machine.value(x) for x in cls.node.bases]
    names = (x.name for x in found if isinstance(x, Library))
    return any(gradients.is_optimizer_class(x) and x.startswith("torch") for x in names) or any(
        _is_of_torch(machine, x) for x in machine.bases(cls)
    )


def _stepped(machine: Machine, owner: Instance, target: Value, given: Call) -> Value:
    """The project's own ``step`` of an optimizer: what it writes out is a step, too."""
    before = len(machine.events)
    made = apply(machine, target, given)
    if owner.base is not None and not any(isinstance(x, Step) for x in machine.events[before:]):
        gradients.step(machine, owner.base, replace(given, args=(), given={}))
    return made


def _method(machine: Machine, owner: Value, name: str, given: Call) -> Value:
    """The result of calling a method of an object."""
    if isinstance(owner, Library):
        return libraries.function(machine, f"{owner.name}.{name}", given)
    if isinstance(owner, Instance):
        if name in owner.fields:
            return apply(machine, owner.fields[name], given)
        method = machine.method(owner, name)
        if method is not None:
            static = any(getattr(x, "id", "") == "staticmethod" for x in getattr(method.node, "decorator_list", ()))
            bound = method if static else Bound((*owner.token, name), owner=owner, name=name, function=method)
            do = _stepped if name == "step" else lambda machine, owner, *rest: apply(machine, *rest)
            return do(machine, owner, functional.decorated(machine, method, bound), given)
        owner = owner.base or owner
    if isinstance(owner, Class):
        method = machine.method(Instance(owner.token, of=owner), name)
        if method is not None:
            return machine.enter(method, given.args, given.given, given.node)
    if isinstance(owner, (coefficients.Norm, coefficients.Coefficient)):  # (limit / norm).clip(max=1.0)
        return coefficients.function(machine, name, Call(given.node, (owner, *given.args), given.given)) or owner
    made = methods.method(machine, owner, name, given)
    measures.held(owner, name, given.args)
    more = forward.through(machine, owner) | scales.marked(owner, name)
    return made if made is not None else unknown(machine, Thing((*owner.token, name), owner.marks), given, more)


def _builtin(machine: Machine, name: str, given: Call) -> Value | None:
    """The result of a builtin."""
    first = given.get(0)
    if name in _SAME and first is not None and isinstance(first, (Elements, Tuple, Gradients)):
        if name == "enumerate" and isinstance(first, Tuple):
            return Tuple((), items=tuple(Tuple((), items=(Constant((i,), value=i), x)) for i, x in enumerate(first.items)))
        if name == "enumerate" and isinstance(first, Gradients):
            return replace(first, row=(Thing((*first.token, "number")), first))
        return first
    if name == "filter" and len(given.args) > 1:
        listed = given.args[1]
        if isinstance(listed, Elements) and isinstance(first, Function) and isinstance(first.node, ast.Lambda):
            is_free = modules.only_free(first.node.body)
            return replace(listed, params=modules.free(machine, listed.params, listed=True)) if is_free else listed
        return replace(listed, pairs="filtered") if isinstance(listed, Gradients) else listed
    if name == "dict" and all(isinstance(x, Table) for x in given.args) and not given.is_starred:
        parts = [table.items for table in given.args if isinstance(table, Table)] + [dict[object, Value](given.given)]
        return Table(machine.fresh(given.node, "table"), items={key: x for part in parts for key, x in part.items()})
    if name == "type" and first is not None and len(given.args) == 1:
        return attributes.class_of(first)
    if name in _PREDICATES:
        return Thing(machine.token(name, *(x.token for x in given.args)), marks(given.args))
    if name == "zip":
        return _zipped(machine, given)
    if name == "map" and len(given.args) > 1:
        return _mapped(machine, given)
    if name == "float" and isinstance(first, Constant) and isinstance(first.value, str):
        return Constant(first.token, value=math.inf if first.value.strip("+").lower().startswith("inf") else first.value)
    if name == "int" and isinstance(first, Constant) and isinstance(first.value, float) and math.isfinite(first.value):
        return Constant(first.token, value=int(first.value), name=first.name)
    if name == "getattr" and len(given.args) > 1 and isinstance(given.args[1], Constant):
        return machine.attribute(given.args[0], str(given.args[1].value))
    return None


def _mapped(machine: Machine, given: Call) -> Value | None:
    """``map(lambda p: p.grad.clamp_(-1, 1), model.parameters())``."""
    function, listed = given.args[:2]
    if isinstance(listed, Gradients):
        return functional.mapped(machine, function, given.args[1:], given)
    if isinstance(listed, Tuple) and handlers.are_few(listed) and not any(isinstance(x, Constant) for x in listed.items):
        parts = tuple(machine.apply(function, Call(given.node, (x,), {})) for x in listed.items)
        return Tuple(machine.token("map", *(x.token for x in parts)), marks(parts), items=parts)
    if isinstance(listed, Elements):
        made = machine.apply(function, Call(given.node, (taken.element(listed),), {}))
        return replace(made, is_one=False) if isinstance(made, Elements) else Thing(("list", *made.token), made.marks)
    return None


def _zipped(machine: Machine, given: Call) -> Value | None:
    if len(given.args) > 1 and isinstance(given.args[0], Tuple) and "pair" in given.args[0].marks:
        taken.zipped_pair(machine, given.args[0], given)
    for x in given.args:
        if isinstance(x, Gradients):
            made = taken.paired(x, given.args)
            row = tuple(made if y is x else y for y in given.args)
            return Tuple((), items=x.row) if given.args == (x,) and x.row else replace(made, row=row)
        if isinstance(x, Elements) and "gradient" in x.marks:
            return x
    if len(given.args) == 2 and isinstance(given.args[1], Elements) and (grads := taken.gathered(given.args[0])) is not None:
        return _zipped(machine, replace(given, args=(grads, given.args[1])))  # appended in a loop
    if given.args and isinstance(given.args[0], Thing):
        return Thing(("zip", *given.args[0].token), marks(given.args))
    sizes = {len(x.items) if isinstance(x, Tuple) else -1 for x in given.args}
    if len(sizes) == 1 and -1 not in sizes:
        rows = zip(*(x.items for x in given.args if isinstance(x, Tuple)), strict=True)
        return Tuple((), items=tuple(Tuple((), items=row) for row in rows))
    return None
