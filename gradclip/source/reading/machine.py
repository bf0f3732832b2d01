"""One way through a program: each statement in turn, and the events that its calls have.

A test has the value that the way decides, and equal tests have equal values. A branch without events is no fork: both of its
sides are read. A loop with events has two passes.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradclip.rounds import Condition, Event
from gradclip.source.reading import calls, expressions, functional, gradients, tests
from gradclip.source.reading.program import File
from gradclip.source.reading.values import (
    Call,
    Class,
    Constant,
    Context,
    Elements,
    Function,
    Gradients,
    Instance,
    Library,
    Made,
    Origin,
    Scope,
    Table,
    Thing,
    Token,
    Tuple,
    Value,
    joined,
)

__all__ = ["Machine", "Place", "Spent", "simple"]

_DEEP = 12  #: calls within calls that are entered
_EVENTS = 150  #: of one way
_SMALL = 40  #: statements of a function without events that is entered all the same, for its result
_FEW = 4  #: elements of a list that a loop takes one by one


class Spent(Exception):
    """The way is longer than it may be."""


@dataclass(frozen=True, slots=True)
class Place:
    """A node of a file."""

    path: str
    line: int
    column: int  #: in bytes, from 0
    end: tuple[int, int]
    file: File | None = None  #: another file that has the node; the rest is the call that leads there
    inner: tuple[int, int] = (0, 0)  #: the node's line and column in that file


_BINDS = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def simple(file: File) -> list[ast.stmt]:
    """The statements of a module that bind names, and those without events."""
    return [x for x in file.tree.body if isinstance(x, _BINDS) or not file.matters(x)]


class Machine:
    """Runs one way."""

    def __init__(self, file: File, flips: Mapping[Hashable, bool], most: int) -> None:
        self.file, self.flips, self.left = file, flips, most
        self.events: list[Event] = []
        self.decided: dict[Hashable, bool] = {}
        self.telling: set[Hashable] = set()  #: the tests of a kind that rules ask for
        self.conditions: list[Condition] = []
        self.loops: list[Hashable] = []
        self.passes: list[int] = []
        self.stack: list[ast.AST] = []
        self.sites: list[Place] = []  #: in the file that is read: the calls that lead into other files
        self.contexts: list[Context] = []
        self.entered: set[int] = set()  #: functions
        self.result: Value = Constant(("None",), value=None)
        self.hint: Token = ()  #: the name that the next new object gets
        self.changes: list[Gradients] = []  #: what clips have returned
        self.taken: list[tuple[Event, ...]] = []  #: rounds of gradients that are values
        self.replicas = 0  #: functions around this code that a strategy runs on each replica
        self.again = 0  #: closures around this code that a step calls
        self.bare: ast.expr | None = None  #: the call that is a statement
        self.modules: dict[str, Scope] = {}
        self.scope = self.module(file)

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

    # ---- modules ----------------------------------------------------------------------------------------------------------

    def module(self, file: File) -> Scope:
        """The names of a file: its functions and classes; its statements run later, if at all."""
        if file.path in self.modules and file is not self.file:
            return self.modules[file.path]
        scope = self.modules[file.path] = Scope(file, key=file.path)
        return scope

    def imported(self, file: File) -> Scope:
        """The names of another file, after its simple statements have run."""
        known = file.path in self.modules
        scope = self.module(file)
        if not known:
            before, self.scope = self.scope, scope
            self.block(simple(file))
            self.scope = before
        return scope

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
        run = getattr(self, f"_{type(node).__name__}", None)
        return run(node) or "" if run is not None else ""

    def _Expr(self, node: ast.Expr) -> None:
        self.bare = node.value
        self.value(node.value)

    def _FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        token = (Origin(node.name, hash((id(node), self.scope.key))),)
        made: Value = Function(token, node=node, scope=self.scope)
        for decorator in node.decorator_list:
            name = decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")
            if functional.is_derivative(name):  # @jax.value_and_grad
                made = Made(token, name=name, args=(made,))
        self.scope.names[node.name] = made

    _AsyncFunctionDef = _FunctionDef

    def _ClassDef(self, node: ast.ClassDef) -> None:
        self.scope.names[node.name] = Class((Origin(node.name, id(node)),), node=node, scope=self.scope)

    def _Import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.name if alias.asname else alias.name.partition(".")[0]
            self.scope.names[alias.asname or name] = self._module_value(name)

    def _module_value(self, name: str) -> Value:
        return Library((name,), name=name)

    def _ImportFrom(self, node: ast.ImportFrom) -> None:
        module = "." * node.level + (node.module or "")
        other = self.scope.file.other(module)
        for alias in node.names:
            name = alias.asname or alias.name
            if other is not None and alias.name == "*":
                self.scope.names.update(self.imported(other).names)
            elif other is not None and (value := self.imported(other).names.get(alias.name)) is not None:
                self.scope.names[name] = value
            elif node.level == 0 and alias.name != "*":
                self.scope.names[name] = self._module_value(f"{module}.{alias.name}")

    def _Assign(self, node: ast.Assign) -> None:
        if len(node.targets) == 1:
            self.hint = self._hint(node.targets[0])
        value = self.value(node.value)
        self.hint = ()
        for target in node.targets:
            self.bind(target, value)

    def _AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.hint = self._hint(node.target)
            value = self.value(node.value)
            self.hint = ()
            self.bind(node.target, value)

    def _hint(self, target: ast.expr) -> Token:
        if isinstance(target, ast.Name):
            return (target.id,)
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and self.scope.owner is not None:
            owner = self.scope.find(target.value.id)
            if owner is self.scope.owner:
                return (*owner.token, target.attr)
        return ()

    def _AugAssign(self, node: ast.AugAssign) -> None:
        old, more = self.value(node.target), self.value(node.value)
        if isinstance(old, Elements):
            self.bind(node.target, joined([old, more]))
        else:
            marks = old.marks | more.marks | {"varies"}
            key = (old.token, type(node.op).__name__, more.token)
            self.bind(node.target, self.thing(node, ast.unparse(node.target), key, marks))

    def bind(self, target: ast.expr, value: Value) -> None:
        """Give a target a value."""
        if isinstance(target, ast.Name):
            self.scope.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = expressions.unpacked(self, value, target)
            for one, part in zip(target.elts, parts, strict=True):
                if isinstance(one, ast.Name) and one.id.startswith("_"):  # only the norm is wanted
                    self.changes = [x for x in self.changes if x is not part]
                self.bind(one, part)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, value)
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value)
            if isinstance(owner, Instance):
                owner.fields[target.attr] = value
            elif target.attr == "grad":
                gradients.written(self, owner, value, target)
        elif isinstance(target, ast.Subscript):
            owner, key = self.value(target.value), self.value(target.slice)
            if isinstance(owner, Table) and isinstance(key, Constant):
                owner.items[key.value] = value

    def _If(self, node: ast.If) -> str:
        file = self.scope.file
        formula = tests.formula(self, node.test)
        matters = any(map(file.matters, (*node.body, *node.orelse)))
        leaves = any(map(file.leaves, node.body)), any(map(file.leaves, node.orelse))
        known = tests.known(formula)
        if known is not None and not formula.marks:
            return self.block(node.body if known else node.orelse)
        if not matters and not any(leaves):
            return self._both(node)
        default = (matters and any(map(file.matters, node.body))) or not leaves[0]
        is_open = matters or self.events  # else nothing has happened that it could skip
        truth = tests.decided(self, formula, default) if is_open else default
        conditions = tests.conditions(self, formula, truth)
        mark = len(self.conditions)
        self.conditions += conditions
        left = self.block(node.body if truth else node.orelse)
        if left or not any(leaves):
            del self.conditions[mark:]
        return left

    def _both(self, node: ast.If) -> str:
        """A branch without events: what its sides bind is one of the two."""
        names = self.scope.names
        before = dict(names)
        self.block(node.body)
        first = dict(names)
        names.clear()
        names.update(before)
        self.block(node.orelse)
        for name, value in first.items():
            other = names.get(name)
            if other is not value:
                names[name] = value if other is None else expressions.either(value, other)
        return ""

    def _For(self, node: ast.For | ast.AsyncFor) -> str:
        listed = self.value(node.iter)
        key = (id(node), self.scope.key)
        one_by_one: list[Value] | None = None
        if isinstance(listed, Elements) and not listed.is_one:
            one_by_one = [Elements((*listed.token, "one"), params=listed.params, is_one=True, loop=key)]
        elif isinstance(listed, Gradients):
            one_by_one = [Gradients(listed.token, history=listed.history, is_one=True)]
        elif isinstance(listed, Tuple) and len(listed.items) <= _FEW:
            one_by_one = list(listed.items)
        passes = 2 if self.scope.file.matters(node) and one_by_one is None else 1
        steps = len(self.events)
        for number in range(passes) if one_by_one is None else range(len(one_by_one)):
            self.passes.append(number)
            if one_by_one is None:
                marks = frozenset({"varies"})
                name = ast.unparse(node.target)
                self.bind(node.target, self.thing(node, name, (key, tuple(self.passes)), marks))
            else:
                self.bind(node.target, one_by_one[number])
            left = self._pass(node.body, key)
            self.passes.pop()
            if left in ("return", "raise"):
                return left
            if left == "break" or (number == 0 and self._has_inner_step(steps, key)):
                break
        return self.block(node.orelse)

    _AsyncFor = _For

    def _has_inner_step(self, start: int, key: Hashable) -> bool:
        """Whether a loop within this one has had its passes, with a step in each."""
        depth = len(self.loops) + 1
        return any(type(x).__name__ == "Step" and len(x.loops) > depth for x in self.events[start:])

    def _pass(self, body: Sequence[ast.stmt], key: Hashable) -> str:
        self.loops.append(key)
        left = self.block(body)
        self.loops.pop()
        return left

    def _While(self, node: ast.While) -> str:
        key, steps = (id(node), self.scope.key), len(self.events)
        self.value(node.test)
        for number in range(2 if self.scope.file.matters(node) else 1):
            self.passes.append(number)
            left = self._pass(node.body, key)
            self.passes.pop()
            if left in ("return", "raise"):
                return left
            if left == "break" or (number == 0 and self._has_inner_step(steps, key)):
                break
        return ""

    def _With(self, node: ast.With | ast.AsyncWith) -> str:
        mark = len(self.contexts)
        for item in node.items:
            value = self.value(item.context_expr)
            context = value if isinstance(value, Context) else Context(value.token)
            self.contexts.append(context)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, context.inner if context.kind == "scaled" and context.inner else value)
        left = self.block(node.body)
        for context in reversed(self.contexts[mark:]):
            if context.kind == "scaled":
                gradients.leave_scaled(self, context, node)
        del self.contexts[mark:]
        return left

    _AsyncWith = _With

    def _Try(self, node: ast.Try) -> str:
        left = self.block(node.body)
        if not left:
            left = self.block(node.orelse)
        for handler in node.handlers:
            if not any(map(self.scope.file.matters, handler.body)):
                self.block(handler.body)
        return self.block(node.finalbody) or left

    def _Match(self, node: ast.Match) -> str:
        self.value(node.subject)
        for case in node.cases:
            if any(map(self.scope.file.matters, case.body)):
                return self.block(case.body)
        return ""

    def _Return(self, node: ast.Return) -> str:
        self.result = self.value(node.value) if node.value is not None else Constant(("None",), value=None)
        return "return"

    def _Continue(self, node: ast.Continue) -> str:
        return "continue"

    def _Break(self, node: ast.Break) -> str:
        return "break"

    def _Raise(self, node: ast.Raise) -> str:
        return "raise"

    def _Assert(self, node: ast.Assert) -> None:
        self.value(node.test)

    # ---- calls of the project's functions ---------------------------------------------------------------------------------

    def enter(
        self, function: Function, args: Sequence[Value], given: Mapping[str, Value], node: ast.AST, owner: Value | None = None
    ) -> Value:
        """Run a function of the project with these arguments."""
        body = function.node
        file = function.scope.file
        is_long = not isinstance(body, ast.Lambda) and not file.matters(body) and len(body.body) > _SMALL
        self.spend()
        if len(self.stack) >= _DEEP or body in self.stack or is_long:
            return self.thing(node, getattr(body, "name", ""), tuple(x.token for x in args))
        args, given = (*function.given[0], *args), {**function.given[1], **given}
        scope = Scope(file, function.scope, hash((id(node), self.scope.key, id(body))))
        scope.owner, scope.cls = owner or function.scope.owner, function.scope.cls
        self._arguments(body.args, [owner, *args] if owner is not None else list(args), given, scope)
        self.entered.add(id(body))
        return self.within(scope, body, node)

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
        method = self.method(made, "__init__")
        if method is not None:
            self.enter(method, args, given, node, made)
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
        found = (cls.scope.find(base.id) for base in cls.node.bases if isinstance(base, ast.Name))
        return [x for x in found if isinstance(x, Class) and x is not cls]

    def is_a(self, cls: Class, names: Iterable[str], depth: int = 4) -> bool:
        """Whether a class is made from a library's class with one of these last names."""
        wanted = frozenset(names)
        for base in cls.node.bases:
            if (base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")) in wanted:
                return True
        return depth > 0 and any(self.is_a(x, wanted, depth - 1) for x in self.bases(cls))

    def value(self, node: ast.expr) -> Value:
        """What an expression stands for; the events of its calls happen."""
        return expressions.value(self, node)

    def hook(self, owner: Instance, name: str) -> None:
        """Call a method that a trainer calls, if the object has it."""
        method = self.method(owner, name)
        if method is not None:
            names = [x.arg for x in (*method.node.args.args[1:], *method.node.args.kwonlyargs)]
            self.enter(
                method, (), {x: Thing((Origin(x, id(method.node)),), tests.marked(x)) for x in names}, method.node, owner
            )

    def attribute(self, owner: Value, name: str) -> Value:
        """An attribute of an object."""
        return expressions.attribute(self, owner, name)

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
