"""One way through a program: each statement in turn, and the events that its calls have.

A test has the value that the way decides, and equal tests have equal values. A branch without events is no fork: both of its
sides are read. A loop with events has two passes.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradclip.rounds import NO_PARAMS, Condition, Event
from gradclip.source.reading import attributes, calls, expressions, forward, gradients, measures, statements, tests
from gradclip.source.reading.generators import Yields
from gradclip.source.reading.program import File, last
from gradclip.source.reading.scope import Scope, Spent
from gradclip.source.reading.values import (
    Call,
    Class,
    Constant,
    Context,
    Function,
    Gradients,
    Instance,
    Made,
    Origin,
    Table,
    Thing,
    Token,
    Tuple,
    Value,
)

__all__ = ["Machine", "Place", "unknowns"]

_DEEP = 12  #: calls within calls that are entered
_EVENTS = 150  #: of one way
_SMALLEST = 10  #: the same, of a function in another file
_SMALL = 40  #: statements of a function without events that is entered all the same, for its result


@dataclass(frozen=True, slots=True)
class Place:
    """A node of a file."""

    path: str
    line: int
    column: int  #: in bytes, from 0
    end: tuple[int, int]
    file: File | None = None  #: another file that has the node; the rest is the call that leads there
    inner: tuple[int, int] = (0, 0)  #: the node's line and column in that file


def unknowns(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, *, is_method: bool) -> dict[str, Value]:
    """Arguments for a function of which nothing is known but their names."""
    taken = function.args
    names = [x.arg for x in (*taken.posonlyargs, *taken.args)][is_method:] + [x.arg for x in taken.kwonlyargs]
    return {name: Thing((Origin(name, id(function)),), tests.marked(name)) for name in names}


class Machine:
    """Runs one way."""

    def __init__(self, file: File, flips: Mapping[Hashable, bool], most: int) -> None:
        self.file, self.flips, self.most, self.left = file, flips, most, most
        self.events: list[Event] = []
        self.decided: dict[Hashable, bool] = {}
        self.telling: set[Hashable] = set()  #: the tests of a kind that rules ask for
        self.conditions: list[Condition] = []
        self.loops: list[Hashable] = []
        self.passes: list[int] = []
        self.lists: list[int] = []  #: the comprehensions around this code
        self.stack: list[ast.AST] = []
        self.sites: list[Place] = []  #: in the file that is read: the calls that lead into other files
        self.contexts: list[Context] = []
        self.entered: set[int] = set()  #: functions
        self.result: Value = Constant(("None",), value=None)
        self.hint: Token = ()  #: the name that the next new object gets
        self.changes: list[Gradients] = []  #: what clips have returned
        self.taken: list[tuple[Event, ...]] = []  #: rounds of gradients that are values
        self.stages: list[Event] = []  #: the steps of compiled models
        self.measured: list[tuple[Event, ...]] = []  #: the same, up to a norm whose use is known
        self.idle: dict[object, Made] = {}  #: by place, objects with a name that clip, and that nothing has read
        self.unread: dict[object, tuple[Event, ...]] = {}  #: those of them that a step has been made without
        self.branched: list[tuple[Event, ...]] = []  #: the steps of alternative branches: only some get the clip
        self.read: set[object] = set()  #: the places of others
        self.sums: dict[Token, Gradients] = {}  #: what the program has added to its own variables, by their identity
        self.parts: dict[Token, dict[str, Value]] = {}  #: by owner: the modules that have been put into it
        self.frozen: dict[object, bool | None] = {}  #: the parameters that are frozen, or free again; None: some of them
        self.chosen: set[object] = set()  #: the modules of which a test chooses parameters
        self.differentiated: set[object] = set()  #: the parameters whose gradients torch.autograd.grad has returned
        self.engines: set[object] = set()  #: the modules whose gradients DeepSpeed's ZeRO holds
        self.hooks: list[Value] = []  #: what runs after each gradient is made
        self.around: dict[tuple[Token, bool], list[Value]] = {}  #: by optimizer: what runs before its steps, or after them
        self.sharded: set[object] = set()  #: modules of which each process holds a part
        self.objects: dict[object, Instance] = {}  #: of the project's classes
        self.branches: list[int] = []  #: for each branch without events around this code, the loops around the branch
        self.lost: dict[Token, tuple[int, Event]] = {}  #: clips whose result has a name that nothing has read, and their places
        self.of_norms: set[Hashable] = set()  #: the tests of a norm of gradients
        self.bounds: dict[Hashable, Token] = {}  #: with what a test compares a norm
        self.above: list[Token] = []  #: the limits that a norm is above, by the tests around this code
        self.below = 0  #: the tests around this code that a norm is below a limit
        self.reached: dict[str, Token] = {}  #: the modules through which values have been computed, by their marks
        self.factors: frozenset[object] = frozenset()  #: those of the loss of the last backward pass
        self.exempt = NO_PARAMS  #: the parameters that are marked as not to be clipped, one by one
        self.ranges: frozenset[object] = frozenset()  #: the settings that are ranges of a ratio
        self.reduces = False  #: whether this way has summed gradients that are values over processes
        self.replicas = 0  #: functions around this code that a strategy runs on each replica
        self.is_callback = False  #: whether this code is a callback of Keras
        self.again = 0  #: closures around this code that a step calls
        self.yields: list[Yields] = []  #: the blocks around this code that run where a function yields
        self.bare: ast.expr | None = None  #: the call that is a statement
        self.main = self.scope = Scope(file, key=file.path)

    # ---- places, names, identities ---------------------------------------------------------------------------------------

    def place(self, node: ast.expr | ast.stmt) -> Place:
        """Where a node is reported: of another file, the call that leads there."""
        file = self.scope.file
        end = (node.end_lineno or node.lineno, node.end_col_offset or 0)
        if file is self.file or not self.sites:
            return Place(file.path, node.lineno, node.col_offset, end)
        return replace(self.sites[0], file=file, inner=(node.lineno, node.col_offset))

    def shown(self, node: ast.expr) -> str:
        """The text of an expression for a message: quoted, on one line, shortened."""
        return self.scope.file.shown(node)

    def token(self, name: str, *parts: object) -> Token:
        """The identity of what is computed from others, in a few words whatever they are."""
        keys = self.file.keys
        return name, keys.setdefault((name, *parts), len(keys))

    def fresh(self, node: ast.AST, name: str = "", key: object = None) -> Token:
        """The identity of an object that a node makes."""
        if self.hint:
            hint, self.hint = self.hint, ()
            if len(hint) > 1:
                return hint
            name = str(hint[0])
        return (Origin(name or "it", hash((id(node), self.scope.key, key))),)

    def thing(self, node: ast.AST, name: str = "", key: object = None, marks: frozenset[str] = frozenset()) -> Thing:
        """An object about which nothing is known."""
        return Thing(self.fresh(node, name, key), marks)

    # ---- events -----------------------------------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        if len(self.events) >= _EVENTS:
            raise Spent
        self.events.append(event)

    def about(self, node: ast.expr) -> dict[str, Any]:
        """What all events have."""
        return {
            "where": self.place(node),
            "text": self.shown(node),
            "tests": frozenset(self.conditions),
            "loops": tuple(self.loops),
        }

    # ---- statements -------------------------------------------------------------------------------------------------------

    def block(self, body: Sequence[ast.stmt]) -> str:
        """Run statements; return how they are left: "", "return", "continue", "break", "raise"."""
        mark = len(self.conditions)
        for statement in body:
            if left := self.statement(statement):
                del self.conditions[mark:]
                return left
        del self.conditions[mark:]
        return ""

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Spent

    def statement(self, node: ast.stmt) -> str:
        self.spend()
        return statements.run(self, node)

    # ---- calls of the project's functions ---------------------------------------------------------------------------------

    def enter(
        self, function: Function, args: Sequence[Value], given: Mapping[str, Value], node: ast.AST, owner: Value | None = None
    ) -> Value:
        """Run a function of the project with these arguments."""
        body = function.node
        file = function.scope.file
        most = _SMALL if file is self.file else _SMALLEST
        is_long = not isinstance(body, ast.Lambda) and not file.matters(body) and len(body.body) > most
        self.spend()
        if len(self.stack) >= _DEEP or body in self.stack or is_long:
            return self.thing(node, getattr(body, "name", ""), tuple(x.token for x in args))
        args, given = (*function.given[0], *args), {**function.given[1], **given}
        mark = len(self.contexts)
        if any(last(getattr(x, "func", x)) in forward.DETACHED for x in getattr(body, "decorator_list", ())):
            self.contexts.append(Context(kind="detached"))
        scope = Scope(file, function.scope, hash((id(node), self.scope.key, id(body))))
        scope.owner, scope.cls = owner or function.scope.owner, function.scope.cls
        self._arguments(body.args, [owner, *args] if owner is not None else list(args), given, scope)
        measures.of_shards(function, scope)
        self.entered.add(id(body))
        result = self.within(scope, body, node)
        del self.contexts[mark:]
        return result

    def within(self, scope: Scope, body: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, node: ast.AST) -> Value:
        """Run the body of a function in its scope."""
        before, result, hint = self.scope, self.result, self.hint
        mark, sites = len(self.conditions), len(self.sites)
        if isinstance(node, (ast.expr, ast.stmt)) and before.file is self.file and scope.file is not self.file:
            self.sites.append(self.place(node))
        self.scope, self.hint = scope, ()
        self.stack.append(body)
        try:
            if isinstance(body, ast.Lambda):
                return self.value(body.body)
            self.result = Constant(("None",), value=None)
            self.block(body.body)
            return self.result
        finally:
            self.stack.pop()
            del self.conditions[mark:], self.sites[sites:]
            self.scope, self.result, self.hint = before, result, hint

    def _arguments(self, taken: ast.arguments, args: list[Value], given: Mapping[str, Value], scope: Scope) -> None:
        names = [x.arg for x in (*taken.posonlyargs, *taken.args)]
        rest = dict(given)
        for name, value in zip(names, args, strict=False):
            scope.names[name] = value
        if taken.vararg is not None:
            scope.names[taken.vararg.arg] = Tuple(("*",), items=tuple(args[len(names) :]))
        for name in (*names, *(x.arg for x in taken.kwonlyargs)):
            if name in rest:
                scope.names[name] = rest.pop(name)
        if taken.kwarg is not None:
            scope.names[taken.kwarg.arg] = Table(("**",), items=dict(rest.items()))
        defaults = [*zip(names[len(names) - len(taken.defaults) :], taken.defaults, strict=True)]
        defaults += [(x.arg, y) for x, y in zip(taken.kwonlyargs, taken.kw_defaults, strict=True) if y is not None]
        before, self.scope = self.scope, scope.outer or self.scope
        for name, default in defaults:
            if name not in scope.names:
                scope.names[name] = self.value(default)
        self.scope = before

    def instance(self, cls: Class, args: Sequence[Value], given: Mapping[str, Value], node: ast.AST) -> Instance:
        """An object of a class of the project."""
        made = Instance(self.fresh(node, cls.node.name), of=cls)
        made.is_open = any(gradients.may_be_module(self, x) for x in (*args, *given.values()))
        self.objects[made.token] = made
        method = self.method(made, "__init__")
        if method is not None:
            self.enter(method, args, given, node, made)
        else:  # a dataclass, a NamedTuple
            names = (last(x.target) for x in cls.node.body if isinstance(x, ast.AnnAssign))
            made.fields |= {**dict(zip(names, args, strict=False)), **given}
        return made

    def method(self, owner: Instance, name: str, cls: Class | None = None) -> Function | None:
        """The method of an object's class, or of a class above it that the project has."""
        pending: list[Class] = [cls or owner.of]
        for one in pending:
            for x in one.node.body:
                if isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef)) and x.name == name:
                    scope = Scope(one.scope.file, one.scope, one.token)
                    scope.owner, scope.cls = owner, one
                    return Function((*owner.token, name), node=x, scope=scope)
            pending += self.bases(one)
        return None

    def bases(self, cls: Class) -> Iterable[Class]:
        """The classes of the project that a class is made from."""
        found = (cls.scope.find(base.id, self) for base in cls.node.bases if isinstance(base, ast.Name))
        return [x for x in found if isinstance(x, Class) and x is not cls]

    def is_a(self, cls: Class, names: Iterable[str], depth: int = 4) -> bool:
        """Whether a class is made from a library's class with one of these last names."""
        wanted = frozenset(names)
        for base in cls.node.bases:
            if last(base) in wanted:
                return True
        return depth > 0 and any(self.is_a(x, wanted, depth - 1) for x in self.bases(cls))

    def bind(self, target: ast.expr, value: Value) -> None:
        """Give a target a value."""
        statements.bind(self, target, value)

    def value(self, node: ast.expr) -> Value:
        """What an expression stands for; the events of its calls happen."""
        return expressions.value(self, node)

    def hook(self, owner: Instance, name: str) -> None:
        """Call a method that a trainer calls, if the object has it."""
        method = self.method(owner, name)
        if method is not None:
            self.enter(method, (), unknowns(method.node, is_method=True), method.node, owner)

    def attribute(self, owner: Value, name: str) -> Value:
        """An attribute of an object."""
        return attributes.of(self, owner, name)

    def apply(self, target: Value, given: Call) -> Value:
        """The result of calling a value."""
        return calls.apply(self, target, given)

    def unknown(self, target: Value, given: Call) -> Value:
        """The result of a call of which nothing is known."""
        return calls.unknown(self, target, given)

    def conditions_if(self, value: Value, text: str) -> frozenset[Condition] | None:
        """What holds where a value is true on this way; None where it is not."""
        test = tests.of_value(value, text)
        return frozenset(tests.conditions(self, test, truth=True)) if tests.decided(self, test, default=True) else None
