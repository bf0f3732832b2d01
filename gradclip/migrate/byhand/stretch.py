"""The stretch of a clip by hand, from the first read of a gradient to the last write: what runs in it must be proved harmless.

A proof of the formula says nothing of what runs between its lines: ``dist.all_reduce(total)`` makes another norm of it.
So each statement of the stretch that is not the clip's own must be known to leave the clip's objects alone. An unknown one ends
the proof.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

import libcst as cst

from gradclip.migrate.byhand.certain import LOOPS
from gradclip.migrate.byhand.exact import Exact
from gradclip.migrate.byhand.functional import Exactly, is_no_grad
from gradclip.migrate.byhand.harmless import Harmless, aliased, is_of
from gradclip.source.bind import number
from gradclip.source.found import Context
from gradclip.source.source import dotted, last_name

__all__ = ["broken"]

_IMMUTABLE, _MUTABLE = ("jax", "tensorflow"), ("numpy.", "torch.", "paddle.", "cupy.")
#: the targets and the aliases of a binding, and whether an alias is surely one
_Link = tuple[frozenset[str], frozenset[str], bool]
_LEAVES = (cst.Return, cst.Raise)
_NOTHING = (cst.Pass, cst.Break, cst.Continue, cst.Global, cst.Nonlocal)


def broken(clip: Exactly, exact: Exact, context: Context) -> cst.CSTNode | None:
    """The first statement or expression of a clip's stretch that is not proved harmless; None if all are.

    Args:
        clip: the clip, which ``exact`` has just read.
        exact: the bindings and the functions that it has followed.
        context: the source.
    """
    return next(_Stretch(clip, exact, context).breaks(), None)


class _Stretch:
    def __init__(self, clip: Exactly, exact: Exact, context: Context) -> None:
        self._source, self._resolver, self._site, self._exact = context.source, context.resolver, clip.site, exact
        source, self._values = context.source, context.values
        self._function = source.function(clip.site)
        around = {clip.site, *source.ancestors(clip.site)}
        read = exact.read - exact.made_before()
        here = (one for one in read if source.function(one) in around and clip.site not in source.ancestors(one))
        whole = isinstance(self._function, cst.Module)
        self._extent = (0, len(source.data)) if whole else source.span(self._function)
        self._here = [one for one in here if not isinstance(exact.certain.function_at(one), (cst.FunctionDef, cst.Lambda))]
        self._own = {source.within(place, cst.SimpleStatementLine) for place in exact.read}
        self._bindings = {source.within(place, cst.Assign, cst.AnnAssign, cst.AugAssign) for place in exact.read}
        self._begin = min(map(source.start, self._here), default=source.start(clip.site))
        self._stop = source.end(clip.site)
        calls = source.between(cst.Call, self._begin, self._stop)
        others = any(self._resolver.name(one.func).startswith(_MUTABLE) for one in calls)
        self._arrays = clip.framework in _IMMUTABLE and not others
        self._bound = {source.code(place) for place in self._here} | {clip.tensors.partition("(")[0]}
        self._read: dict[str, int] = {}  #: where a part that stays as it is was first read
        for part in exact.opaque:
            for path in self._paths(part):
                self._read[path] = min(source.start(part), self._read.get(path, self._stop))
        #: gets the names that may stand for a gradient, a parameter, the norm, its parts, the coefficient or the limit
        self._harmless = Harmless(context, self._closed(self._bound | self._read.keys()), exact.entered)

    # ---- the clip's objects ----------------------------------------------------------------------------------------------

    def _closed(self, names: set[str]) -> set[str]:
        """Some names, and all that may stand for the same objects."""
        links = self._source.once((_Stretch._links, self._function), self._linked)
        found, left = set(names), [*names]
        while left:
            path = left.pop()
            for targets, values, both in links.get(path.partition(".")[0], ()):
                new = targets if any(is_of(one, (path,)) for one in values) else frozenset()
                new |= values if both and any(is_of(one, (path,)) for one in targets) else frozenset()
                left += new - found
                found |= new
        return found - {"self", "cls"}

    def _linked(self) -> Mapping[str, Collection[_Link]]:
        """The bindings in the function, each once, by the first names in them."""
        index: dict[str, dict[_Link, None]] = defaultdict(dict)
        for targets, values, both in self._links():
            for path in targets | values:
                index[path.partition(".")[0]][frozenset(targets), frozenset(values), both] = None
        return index

    def _paths(self, node: cst.CSTNode) -> Iterator[str]:
        """The names in an expression, each with its attributes, without the imported ones."""
        for name in self._source.between(cst.Name, *self._source.outer_span(node)):  # type: ignore[arg-type]
            whole: cst.CSTNode = name
            while isinstance(outer := self._source.parents[whole], cst.Attribute) and outer.value is whole:
                whole = outer
            called = isinstance(outer, cst.Call) and outer.func is whole and isinstance(whole, cst.Attribute)
            path = ".".join(dotted(whole.value if called else whole) or ())  # type: ignore[attr-defined]
            is_attribute = isinstance(self._source.parents[name], cst.Attribute) and whole is name
            if path and not is_attribute and not self._resolver.name(name):
                yield path

    def _links(self) -> Iterator[tuple[set[str], set[str], bool]]:
        """The targets and the aliases of each binding in the function; whether the aliases are more than a call's arguments."""
        source = self._source
        for one in source.between(cst.Assign, *self._extent):
            unknown = isinstance(one.value, cst.Call) and not self._resolver.name(one.value.func)
            targets = [aliased(target.target) for target in one.targets]
            yield set().union(*targets), aliased(one.value), not unknown
            yield from ((targets[0], other, True) for other in targets[1:])  # `n = m = ...`
        for named in source.between(cst.NamedExpr, *self._extent):
            yield aliased(named.target), aliased(named.value), True
        for loop in source.between(cst.For, *self._extent):
            yield aliased(loop.target), aliased(loop.iter), True

    # ---- the statements --------------------------------------------------------------------------------------------------

    def breaks(self) -> Iterator[cst.CSTNode]:
        """What is not proved, in the order of the text."""
        source = self._source
        for place in self._here:
            if source.function(place) is not self._function:
                yield source.statement(place)  # a function within runs at another time
        for entered in self._exact.entered:
            yield from self._of_function(entered)
        block = self._function.body if isinstance(self._function, cst.FunctionDef) else self._function
        if isinstance(block, (cst.IndentedBlock, cst.Module)):
            starts = source.once((_Stretch, block), lambda: [source.start(line) for line in block.body])
            first = max(0, bisect.bisect_right(starts, self._begin) - 1)
            for line in block.body[first : bisect.bisect_left(starts, self._stop)]:
                yield from self._of(line)
        elif isinstance(self._site, cst.BaseExpression):
            yield from self._unless(self._harmless.expression(self._site), self._site)

    def _unless(self, proved: bool, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        return iter(() if proved else (node,))

    def _of_function(self, entered: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """A function of the proof does nothing but what the proof has read."""
        if isinstance(entered, cst.Lambda):
            yield from self._unless(self._harmless.expression(entered.body), entered.body)
            return
        body = entered.body.body if isinstance(entered, cst.FunctionDef) else ()
        for line in body:
            loops = isinstance(line, cst.For) and any(
                line in self._source.ancestors(one) for one in self._own if one is not None
            )
            small = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None
            text = isinstance(small, cst.Expr) and isinstance(small.value, cst.SimpleString)
            if loops and isinstance(line, cst.For):
                inner = self._source.between(cst.SimpleStatementLine, *self._source.span(line))
                yield from (one for one in inner if one not in self._own and not isinstance(one.body[0], cst.Continue))
                yield from self._own_loop(line)
            elif isinstance(small, cst.Return) or (
                isinstance(small, cst.Assign) and all(_is_plain(one.target) for one in small.targets)
            ):
                yield from self._unless(self._harmless.expression(small.value), line)
            elif not text:
                yield line

    def _own_loop(self, loop: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The expressions of a loop that sums up, whose lines the proof has read."""
        yield from self._harmless.unproved(*self._source.span(loop))

    def _of(self, line: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """What a line, or the lines in it, do in the stretch."""
        source = self._source
        start, end = source.span(line)
        if end <= self._begin or start >= self._stop:
            return
        if line is self._site:
            yield from self._of_site(line)
        elif isinstance(line, cst.SimpleStatementLine) and line in self._source.ancestors(self._site):
            yield from self._around_site(line)
        elif isinstance(line, cst.SimpleStatementLine):
            for small in line.body:
                yield from self._unless(self._is_harmless(small), small)
        elif isinstance(line, (cst.FunctionDef, cst.ClassDef)):
            plain = isinstance(line, cst.FunctionDef) and not line.decorators and self._may_bind(line.name)
            inner = line.params if isinstance(line, cst.FunctionDef) else line
            unproved = self._harmless.unproved(*source.span(inner)) if inner.children else ()
            yield from self._unless((plain or line in self._exact.read) and not unproved, line)
        else:
            yield from self._compound(line)

    def _of_site(self, site: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The expressions of a clip that is a statement, but for the call that writes."""
        span = self._source.span(site)
        writes = {one.value for one in self._source.between(cst.Expr, *span)}
        managers = {one.item for one in self._source.between(cst.WithItem, *span) if is_no_grad(one.item, self._resolver)}
        yield from self._harmless.unproved(*span, writes | managers)

    def _around_site(self, line: cst.SimpleStatementLine) -> Iterator[cst.CSTNode]:
        """The line of a clip that is an expression: what runs before the clip's end."""
        source = self._source
        around = {*source.ancestors(self._site)}
        for small in line.body:
            if small is self._site:
                yield from self._of_site(small)
            elif small in around:
                yield from self._harmless.unproved(source.start(small), self._stop, around)
            elif source.start(small) < self._stop:
                yield from self._unless(self._is_harmless(small), small)

    def _compound(self, line: cst.CSTNode) -> Iterator[cst.CSTNode]:
        source, whole = self._source, self._source.start(line) >= self._begin
        bodies: list[cst.CSTNode | None] = [getattr(line, "body", None), getattr(line, "orelse", None)]
        if isinstance(line, (cst.If, cst.While)):
            yield from self._unless(not whole or self._is_checked(line.test), line.test)
        elif isinstance(line, cst.For):
            mine = any(line in source.ancestors(one) for one in self._own if one is not None)
            fine = mine or self._may_bind(line.target)
            yield from self._unless(not whole or (fine and line.asynchronous is None and self._is_checked(line.iter)), line)
        elif isinstance(line, cst.With):
            yield from self._unless(not whole or all(is_no_grad(one.item, self._resolver) for one in line.items), line)
        elif isinstance(line, cst.Try):
            bodies += [*(one.body for one in line.handlers), line.finalbody]
        elif not isinstance(line, cst.Else):
            yield line  # `match`, and what Python will have
            return
        if isinstance(line, cst.If) and self._leaves(line):
            bodies[0] = None
        for body in bodies:
            if isinstance(body, (cst.If, cst.Else, cst.Finally)):
                yield from self._of(body) if isinstance(body, cst.If) else self._lines(body.body)
            elif body is not None:
                yield from self._lines(body)

    def _lines(self, block: cst.CSTNode) -> Iterator[cst.CSTNode]:
        for line in getattr(block, "body", ()):
            if isinstance(line, cst.BaseSmallStatement):
                yield from self._unless(self._is_harmless(line), line)
            else:
                yield from self._of(line)

    def _leaves(self, line: cst.If) -> bool:
        """Whether the site does not run after the lines of an ``if``: they return, or go on to a next pass with a new norm."""
        if self._source.within(line, cst.Try, cst.TryStar) is not None or self._site in self._source.ancestors(line):
            return False
        last = line.body.body[-1] if line.body.body else None
        small = last.body[-1] if isinstance(last, (cst.SimpleStatementLine,)) else last
        if isinstance(small, _LEAVES):
            return True
        loop = next((one for one in self._source.ancestors(line) if isinstance(one, LOOPS)), None)
        return isinstance(small, cst.Continue) and loop is not None and self._source.start(loop) < self._begin

    def _is_checked(self, node: cst.BaseExpression | None) -> bool:
        return node is None or self._harmless.expression(node) or self._is_of_arrays(node)

    def _is_harmless(self, small: cst.CSTNode) -> bool:
        """Whether a small statement leaves the clip's objects alone."""
        check, own = self._harmless, small in self._bindings
        if isinstance(small, _NOTHING):
            return True
        if isinstance(small, cst.Return):
            return self._source.within(small, cst.Try, cst.TryStar) is None or self._is_checked(small.value)
        if isinstance(small, (cst.Import, cst.ImportFrom)):
            return not isinstance(small, cst.ImportFrom) or not isinstance(small.names, cst.ImportStar)
        if isinstance(small, (cst.Assign, cst.AnnAssign)):
            targets = [one.target for one in small.targets] if isinstance(small, cst.Assign) else [small.target]
            return self._is_checked(small.value) and (own or all(self._may_bind(one) for one in targets))
        if isinstance(small, cst.AugAssign):
            free = own or (check.is_loose(small.target) and self._may_bind(small.target) and self._is_new(small.target))
            return check.expression(small.value) and free
        if isinstance(small, cst.Expr):
            return self._is_checked(small.value)
        if isinstance(small, (cst.Assert, cst.Raise)):
            return self._is_checked(small.test if isinstance(small, cst.Assert) else small.exc)
        if isinstance(small, cst.Del):
            return isinstance(small.target, cst.Name) and not is_of(small.target.value, check.tracked)
        return False

    def _may_bind(self, target: cst.BaseExpression) -> bool:
        """Whether a target may get another value: a name or an attribute that is none of the clip's, or a named entry."""
        if isinstance(target, (cst.Tuple, cst.List)):
            return all(self._may_bind(one.value) for one in target.elements)
        if isinstance(target, cst.Subscript):
            index = target.slice[0].slice
            named = isinstance(index, cst.Index) and isinstance(index.value, cst.SimpleString)
            return named and self._harmless.expression(target.value) and self._harmless.is_loose(target.value)
        if isinstance(target, cst.Name):
            return self._is_free(target.value, self._source.start(target))
        paths = aliased(target) if isinstance(target, cst.Attribute) and self._harmless.expression(target) else set()
        aliases = self._harmless.tracked - self._read.keys()
        free = all(self._is_free(one, self._source.start(target)) and not is_of(one, aliases) for one in paths)
        return bool(paths) and free and last_name(target) not in ("grad", "data")

    def _is_free(self, path: str, at: int) -> bool:
        """Whether a name is none of the clip's, or a part that the clip reads only later."""
        read = [first for one, first in self._read.items() if is_of(path, (one,))]
        return not is_of(path, self._bound) and at < min(read, default=self._stop)

    def _is_new(self, target: cst.BaseExpression) -> bool:
        """Whether each value of a name, or the one of an attribute, is a new object, so that an ``+=`` changes no other."""
        if isinstance(target, cst.Attribute):
            value = self._values.only(target)
            return value is not None and number(value) is not None
        if not isinstance(target, cst.Name):
            return False
        places = [
            one for one in self._resolver.assigned_at(target) if not isinstance(self._source.parents.get(one), cst.AugAssign)
        ]
        return bool(places) and all(self._harmless.is_fresh(self._resolver.value(one)) for one in places)

    # ---- arrays that never change ----------------------------------------------------------------------------------------

    def _is_of_arrays(self, node: cst.BaseExpression) -> bool:
        """Whether a call changes nothing, since arrays of JAX and TensorFlow never change, and it gets none of the lists."""
        span = self._source.outer_span(node)
        if not self._arrays or any(self._source.between(kind, *span) for kind in (cst.Await, cst.Yield, cst.NamedExpr)):
            return False
        if any(
            self._harmless.is_built_in(one) and not self._harmless.call(one) for one in self._source.between(cst.Call, *span)
        ):
            return False
        names = self._source.between(cst.Name, *span)
        kept = self._collections()
        return kept is not None and not any(is_of(one.value, kept) for one in names)

    def _collections(self) -> set[str] | None:
        """The names of the clip's lists; None if a function within reads one of them, which any call may run."""
        return self._source.once((_Stretch._collections, self._site), self._lists)

    def _lists(self) -> set[str] | None:
        found = set()
        for place in [*self._here, *self._exact.opaque]:
            value = self._exact.certain.value(place)
            number_of = value is not None and not isinstance(value, (cst.List, cst.ListComp, cst.Call, cst.Dict))
            measured = isinstance(value, cst.Call) and not aliased(value)
            if not (number_of or measured):
                found |= aliased(place)
        found = self._closed(found)
        within = (self._is_read_within(name.partition(".")[0]) for name in found)
        return None if any(within) else found

    def _is_read_within(self, name: str) -> bool:
        """Whether a function within the function reads a name."""
        functions = (self._source.function(use) for use in self._resolver.uses.get(name, ()))
        found = (one for one in functions if isinstance(one, cst.FunctionDef))
        key = (_Stretch._is_read_within, self._function, name)
        return self._source.once(key, lambda: any(self._function in self._source.ancestors(one) for one in found))


def _is_plain(target: cst.BaseExpression) -> bool:
    """Whether a target is a name, or several."""
    elements = target.elements if isinstance(target, (cst.Tuple, cst.List)) else ()
    return isinstance(target, cst.Name) or (bool(elements) and all(_is_plain(one.value) for one in elements))
