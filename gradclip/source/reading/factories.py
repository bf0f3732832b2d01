"""Optimizers that alternatives of a program make, of which only some clip: branches, entries of a dictionary, cases."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import chain

from gradclip.natives import KEYWORDS, NATIVES, Kind
from gradclip.rounds import Backward, Condition, Event, Step
from gradclip.source.reading.branches import sided
from gradclip.source.reading.idle import place
from gradclip.source.reading.program import File, last

__all__ = ["found"]

_LIMITS = frozenset(x.keyword for x in NATIVES if x.framework == "keras" and x.kind is Kind.KEYWORD)
_OF_KERAS = frozenset(name.rpartition(".")[2] for name in KEYWORDS)
_OF_OPTAX = frozenset({"adam", "adamw", "sgd", "rmsprop", "adagrad", "lion", "lamb", "adafactor", "nadam", "adabelief", "yogi"})

_NETWORKS = re.compile(r"gen|disc|actor|critic|policy|value|net|head|role|kind|part|\bi\b|idx|index", re.IGNORECASE)

_Side = Sequence[ast.AST]


def found(file: File) -> Iterator[tuple[Event, ...]]:
    """A step by each of two optimizers, one of which has a clip."""
    if not any(x in file.text for x in _LIMITS) and not ("optax" in file.text and "clip" in file.text):
        return
    for around in (file.tree, *(x for x, _ in file.functions)):
        for said, sides in _alternatives(around):
            yield from _parted(file, around, said, sides)


def _alternatives(around: ast.AST) -> Iterator[tuple[str, Sequence[_Side]]]:
    """What decides between several sides, and these."""
    body = around.body if isinstance(around, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)) else []
    yield from ((ast.unparse(test), sides) for _, test, sides in sided(body))
    nodes = [y for x in body for y in ast.walk(x)] if not isinstance(around, ast.Module) else []
    own = [y for x in body if not isinstance(x, (ast.FunctionDef, ast.ClassDef)) for y in ast.walk(x)]
    for x in nodes or own:
        if isinstance(x, ast.IfExp):
            yield ast.unparse(x.test), ([x.body], [x.orelse])
        elif isinstance(x, ast.Dict) and len(x.values) > 1:
            yield "", [[value] for value in x.values]
        elif isinstance(x, ast.Match):
            yield ast.unparse(x.subject), [case.body for case in x.cases]


def _parted(file: File, around: ast.AST, said: str, sides: Sequence[_Side]) -> Iterator[tuple[Event, ...]]:
    """The steps of two sides, where the first optimizer of one has a clip, and nothing clips for that of the other."""
    made = [next((x for x in _calls(side) if _is_optimizer(x)), None) for side in sides]
    clipping = [i for i, side in enumerate(sides) if made[i] is not None and _clips(side)]
    bare = [i for i, side in enumerate(sides) if made[i] is not None and not _clips(side) and not _is_open(made[i])]
    if not clipping or not bare or "clip" in said or "norm" in said:
        return
    if any(_clips([x]) for x in _rest(around, sides)):  # for all sides
        return
    text = f"`{said}`" if said else "another entry is chosen"
    first, second = made[clipping[0]], made[bare[0]]
    if first is not None and second is not None and (_is_apart(said) or ast.dump(first.func) != ast.dump(second.func)):
        holds = clipping[0] < bare[0]
        yes, no = (
            frozenset({Condition(id(around), x, text=text if x or not said else f"`not ({said})`")}) for x in (holds, not holds)
        )
        where, other, passed = place(file, first), place(file, second), Backward(where="a backward pass")
        step = Step(where=where, text=file.shown(first), tests=yes, optimizer="it", clip=file.shown(first))
        yield passed, step, passed, Step(where=other, text=file.shown(second), tests=no, optimizer="it")


def _is_apart(said: str) -> bool:
    """Whether only one of several sides makes an optimizer in a run: not those of several networks."""
    return bool(said) and _NETWORKS.search(said) is None


def _calls(side: _Side) -> Iterator[ast.Call]:
    return (x for x in chain.from_iterable(map(ast.walk, side)) if isinstance(x, ast.Call))


def _is_optimizer(call: ast.Call) -> bool:
    root = call.func
    while isinstance(root, ast.Attribute):
        root = root.value
    is_optax = isinstance(root, ast.Name) and root.id == "optax" and last(call.func) in _OF_OPTAX
    return is_optax or (last(call.func) in _OF_KERAS and last(call.func)[:1].isupper())


def _is_open(call: ast.Call | None) -> bool:
    """Whether a call may get a limit that it does not show."""
    return call is None or any(x.arg is None for x in call.keywords) or any(isinstance(x, ast.Starred) for x in call.args)


def _clips(side: _Side) -> bool:
    """Whether something in a side clips, or sets a limit."""
    nodes = chain.from_iterable(map(ast.walk, side))
    return any(
        (
            isinstance(x, ast.keyword)
            and "clip" in (x.arg or "")
            and not (isinstance(x.value, ast.Constant) and not x.value.value)
        )
        or (isinstance(x, ast.Call) and "clip" in last(x.func))
        or (isinstance(x, ast.Attribute) and isinstance(x.ctx, ast.Store) and "clip" in x.attr)
        for x in nodes
    )


def _rest(around: ast.AST, sides: Sequence[_Side]) -> Iterator[ast.AST]:
    """The nodes of some code that are in none of the sides, the smallest that clip."""
    inside = {id(y) for side in sides for x in side for y in ast.walk(x)}
    small = (ast.keyword, ast.Call, ast.Attribute)
    pending: list[ast.AST] = [around]
    for x in pending:
        if id(x) not in inside:
            pending += ast.iter_child_nodes(x)
            if isinstance(x, small) and not any(id(y) in inside for y in ast.walk(x)):
                yield x
