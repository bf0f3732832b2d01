"""The files of a program as trees, and what is said of each once: its imports, functions, classes, and what matters in it."""

from __future__ import annotations

import ast
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gradclip.natives import BY_NAME, KEYWORDS
from gradclip.natives.model import Applied
from gradclip.natives.own import BY_RULE

__all__ = ["CLIPS", "EVENTS", "File", "Follow", "Function", "last"]

Function = ast.FunctionDef | ast.AsyncFunctionDef

#: the file of a module for its name as it is written; None if it is not of the project
Follow = Callable[[str], "File | None"]

CLIPS = frozenset(
    name.partition("(")[0].rpartition(".")[2]
    for name in (*BY_NAME, *(own for own, applied in BY_RULE.items() if applied is not Applied.NORM))
    if name not in KEYWORDS
)
#: last names of calls that change gradients, or take them
EVENTS = CLIPS | {
    *("backward", "manual_backward", "step", "zero_grad", "clear_grad", "clear_gradients", "unscale_", "unscale_gradients"),
    *(
        "clip_gradients",
        "all_reduce",
        "no_sync",
        "register_hook",
        "scale",
        "scale_loss",
        "get_scaled_loss",
        "minimize",
        "clamp_",
        "clip_",
    ),
}
#: the same where gradients are values
_VALUES = EVENTS | {
    *("gradient", "gradients", "compute_gradients", "apply_gradients", "apply", "update", "apply_updates"),
    *("grad", "value_and_grad", "get_unscaled_gradients", "pmean", "psum", "chain", "fit", "compile"),
}
_OF_VALUES = re.compile(r"\b(jax|optax|tensorflow|keras|flax|equinox)\b")
_HALF = frozenset({"16", "16-mixed", 16})  #: the precisions with which Lightning scales the loss
_UNSCALES = re.compile(r"get_scale\(|def clip_gradients\(")  #: code that knows the scale of its gradients
_ZEROES = re.compile(  # but no `torch.zeros(...)`, and no class that is called so
    r"zero_grad(?:\([^()]*\))?|zero(?!s(?:_like)?\b|_to_)\w*\(|clear_grad|\.grad\s*=|set_to_none"
    r"|(?<!class )Trainer\b|optimizer_step"
)
_BINDS = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = 2  #: files through which a name may come
_LONG = 60  #: characters of code in a message
_EXITS = (ast.Return, ast.Continue, ast.Break, ast.Raise)


def last(node: ast.AST) -> str:
    """The last name of an expression."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


class File:
    """One source."""

    def __init__(self, text: str, path: str = "", follow: Follow | None = None, tree: ast.Module | None = None) -> None:
        self.text, self.path, self._follow = text, path, follow
        self.tree = tree or ast.parse(text)
        self._others: dict[str, File | None] = {}
        self._matters: dict[int, bool] = {}
        self._shown: dict[int, str] = {}
        self._told: dict[tuple[str, int], bool] = {}
        self.keys: dict[tuple[object, ...], int] = {}  #: the identities of what is computed
        self.alone: Any = None  #: what the file shows by itself
        self.zeros: set[str] = set()  #: the settings with a default of 0
        self.compiled: Any = None  #: the optimizer that a Keras model is compiled with
        self.names: dict[str, Any] = {}  #: what its simple statements bind
        self.fields: dict[str, dict[str, Any]] = {}  #: of a new object of each class
        self.imported: dict[str, Any] = {}  #: the names of other files, by their paths
        self.spent = 0  #: statements of other files that have run

    @cached_property
    def _walked(self) -> tuple[list[_Judged], list[ast.AST]]:
        found, nodes = [_Judged(self.tree, 0, set())], list[ast.AST]()
        _collect(self.tree, 0, found, nodes)
        return found, nodes

    @property
    def nodes(self) -> list[ast.AST]:
        """All nodes."""
        return self._walked[1]

    @cached_property
    def functions(self) -> list[tuple[Function, ast.ClassDef | None]]:
        """The functions at the top, and the methods of classes there."""
        found: list[tuple[Function, ast.ClassDef | None]] = []
        pending = list(_statements(self.tree.body))
        for node in pending:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found.append((node, None))
            elif isinstance(node, ast.ClassDef):
                found += [(x, node) for x in node.body if isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef))]
                pending += [x for x in node.body if isinstance(x, ast.ClassDef)]
        return found

    @property
    def simple(self) -> list[ast.stmt]:
        """The statements of a module that bind names, and those without events."""
        return [x for x in self.tree.body if isinstance(x, _BINDS) or not self.matters(x)]

    @property
    def own(self) -> list[ast.stmt]:
        """The statements of a module outside of its functions and classes."""
        return [x for x in self.tree.body if not isinstance(x, _DEFINED)]

    @cached_property
    def called(self) -> frozenset[str]:
        """The last names of all calls."""
        return frozenset(last(x.func) for x in self.nodes if isinstance(x, ast.Call))

    @cached_property
    def read(self) -> frozenset[str]:
        """All names that the source reads, also as attributes, and the words of its strings."""
        names = (x.id if isinstance(x, ast.Name) else x.attr for x in self.nodes if isinstance(x, (ast.Name, ast.Attribute)))
        texts = (
            x.value for x in self.nodes if isinstance(x, ast.Constant) and isinstance(x.value, str) and len(x.value) < _LONG
        )
        return frozenset(names).union(*(text.split() for text in texts))

    @cached_property
    def modules(self) -> frozenset[str]:
        """The last names of what the source takes for modules."""
        asked = (
            x for x in self.nodes if isinstance(x, ast.Attribute) and x.attr in ("parameters", "named_parameters", "state_dict")
        )
        return frozenset(last(x.value) for x in asked)

    @cached_property
    def optimizers(self) -> frozenset[str]:
        """The last names of what the source takes for optimizers."""
        found: set[str] = set()
        for x in self.nodes:
            if isinstance(x, ast.Call) and isinstance(x.func, ast.Attribute):
                if x.func.attr in ("unscale_",) or (x.func.attr == "step" and "scaler" in last(x.func.value).lower()):
                    found.update(last(a) for a in x.args)
                elif x.func.attr in ("zero_grad", "clear_grad"):
                    found.add(last(x.func.value))
        return frozenset(found - self.modules - {""})

    @cached_property
    def counters(self) -> frozenset[str]:
        """The names that the source sets to 0 more than once. Each may count passes, and begin again after a step."""
        found = Counter(re.findall(r"(\w+) = 0$", self.text, re.MULTILINE))
        return frozenset(name for name, count in found.items() if count > 1)

    @cached_property
    def zeroes(self) -> int:
        """In how many places the source may remove gradients, or calls code that may."""
        return len(_ZEROES.findall(self.text))

    @cached_property
    def unscales(self) -> int:
        """In how many places the source may unscale gradients."""
        return self.text.count("unscale")

    @cached_property
    def is_of_keras_3(self) -> bool:
        """Whether the source is written for Keras 3."""
        return re.search(r"KERAS_BACKEND|keras\.ops\b|from keras import .*\bops\b", self.text) is not None

    @cached_property
    def is_mixed(self) -> bool:
        """Whether the source gives Keras the policy that scales the loss of compiled models."""
        return re.search(r"""(_|\b)[pP]olicy\(["']mixed_float16""", self.text) is not None

    @cached_property
    def scales(self) -> str:
        """What scales the loss of the classes that a trainer of the source trains; "" if nothing does."""
        for x in self.nodes if _UNSCALES.search(self.text) is None else ():
            if isinstance(x, ast.Call) and last(x.func) in ("Trainer", "MixedPrecision", "MixedPrecisionPlugin"):
                given = {y.arg: y.value for y in x.keywords}
                first = x.args[0] if x.args and last(x.func) != "Trainer" else None
                is_deepspeed = "strategy" in given and "deepspeed" in ast.unparse(given["strategy"]).lower()
                if self._constant(given.get("precision", first)) in _HALF and not is_deepspeed:
                    return "Lightning"
        return ""

    def _constant(self, node: ast.expr | None) -> object:
        """The value of a literal, or of a name to which the source gives one once."""
        if isinstance(node, ast.Name):
            given = [x.value for x in self.nodes if isinstance(x, ast.Assign) and last(x.targets[0]) == node.id]
            node = given[0] if len(given) == 1 else None
        return node.value if isinstance(node, ast.Constant) else None

    @cached_property
    def _events(self) -> frozenset[str]:
        return frozenset(_VALUES if _OF_VALUES.search(self.text) else EVENTS)

    def _tells(self, name: str, depth: int) -> bool:
        """Whether a function or class has events, directly or by calls, through so many files after each other."""
        if (name, depth) not in self._told:
            names, pending = {name}, [name]
            while pending:
                more = self._calls.get(pending.pop(), set()) - names
                names |= more
                pending += more
            self._told[name, depth] = not self._events.isdisjoint(names - {name}) or any(
                self._comes_telling(x, depth) for x in sorted(names & self._imported.keys())
            )
        return self._told[name, depth]

    def _comes_telling(self, name: str, depth: int) -> bool:
        """Whether an imported name has events in its own file."""
        module, inner = self._imported[name]
        other = self.other(module) if depth else None
        return other is not None and other._tells(inner, depth - 1)

    @cached_property
    def _calls(self) -> dict[str, set[str]]:
        """The last names of all calls within the functions and classes of a name."""
        calls: dict[str, set[str]] = {}
        for one in self._judged.values():
            if isinstance(one.node, _DEFINED):
                calls.setdefault(one.node.name, set()).update(one.names)
        return calls

    def matters(self, node: ast.AST) -> bool:
        """Whether a statement, or a conditional expression, may have events."""
        key = id(node)
        if key not in self._matters:
            names = self._judged[key].names if key in self._judged else set[str]()
            self._matters[key] = not self._events.isdisjoint(names) or any(self._tells(x, _IMPORTS) for x in names)
        return self._matters[key]

    def leaves(self, node: ast.stmt) -> bool:
        """Whether a statement may leave its block: it returns, continues, breaks or raises."""
        return id(node) in self._judged and self._judged[id(node)].exits

    @cached_property
    def _judged(self) -> dict[int, _Judged]:
        """The statements and conditional expressions, each with all that is in it."""
        for one in reversed(self._walked[0][1:]):
            outer = self._walked[0][one.outer]
            outer.names |= one.names
            outer.exits |= one.exits and not isinstance(one.node, _DEFINED)
        return {id(one.node): one for one in self._walked[0][1:]}

    @cached_property
    def _imported(self) -> dict[str, tuple[str, str]]:
        """The names that the source imports from files, with the module and their name there."""
        froms = (x for x in self.nodes if isinstance(x, ast.ImportFrom)) if self._follow is not None else ()
        return {y.asname or y.name: ("." * x.level + (x.module or ""), y.name) for x in froms for y in x.names}

    def other(self, module: str) -> File | None:
        """Another file of the project."""
        if module not in self._others:
            self._others[module] = None  # for files that import each other
            self._others[module] = self._follow(module) if self._follow is not None else None
        return self._others[module]

    def shown(self, node: ast.expr) -> str:
        """The text of an expression for a message: quoted, on one line, shortened."""
        key = id(node)
        if key not in self._shown:
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            lines = self._lines[first : last + 1]
            lines[-1] = lines[-1][: node.end_col_offset]
            lines[0] = lines[0][node.col_offset :]
            text = " ".join(b" ".join(lines).decode(errors="replace").split())
            self._shown[key] = f"`{text}`" if len(text) <= _LONG else f"`{text[: _LONG - 3]}...`"
        return self._shown[key]

    @cached_property
    def _lines(self) -> list[bytes]:
        return re.split(rb"\r\n|\r|\n", self.text.encode(errors="surrogatepass"))

    @property
    def name(self) -> str:
        """The name under which messages have the file."""
        return os.path.basename(self.path)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, also those in an ``if`` or ``try`` at the top."""
    for statement in body:
        yield statement
        if isinstance(statement, (ast.If, ast.Try)):
            yield from _statements(statement.body)
            yield from _statements(statement.orelse)


def _names(node: ast.AST) -> list[str]:
    """The last names of what a node itself calls, or passes to what it calls."""
    if isinstance(node, ast.Call):  # jax.jit(step), tree_map(clip, grads)
        return [last(node.func), *(last(x) for x in node.args if isinstance(x, (ast.Name, ast.Attribute)))]
    return ["step"] if isinstance(node, ast.Attribute) and node.attr == "grad" and isinstance(node.ctx, ast.Store) else []


@dataclass(slots=True)
class _Judged:
    """A statement or a conditional expression."""

    node: ast.AST
    outer: int  #: the place of the one around it
    names: set[str]  #: what it calls
    exits: bool = False


_JUDGED = (ast.stmt, ast.IfExp)
_LEAVES = (ast.Name, ast.Constant)  #: nodes that have no others: half of all
_DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _collect(node: ast.AST, outer: int, found: list[_Judged], nodes: list[ast.AST]) -> None:
    """All nodes, and the statements among them, each after the one around it."""
    nodes.append(node)
    if isinstance(node, _JUDGED):
        found.append(_Judged(node, outer, set(), isinstance(node, _EXITS)))
        outer = len(found) - 1
    names = _names(node)
    if names:
        found[outer].names.update(names)
    for name in node._fields:
        child = getattr(node, name, None)
        for one in child if isinstance(child, list) else (child,):
            if isinstance(one, _LEAVES):
                nodes.append(one)
            elif isinstance(one, ast.AST) and not isinstance(one, (ast.expr_context, ast.operator)):
                _collect(one, outer, found, nodes)
