"""The positions of nodes in the text, computed per statement, because computing all of them takes as long as parsing."""

from __future__ import annotations

import ast
import bisect
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider
from libcst.metadata.span_provider import SpanProvidingCodegenState, byte_length_in_utf8

__all__ = ["Places"]


#: the statements for which Python's parser gives the start of each nested statement
_WITH_BODIES = (cst.ClassDef, cst.FunctionDef, cst.If, cst.For, cst.While, cst.With, cst.Try)
_HEADED = (cst.ClassDef, cst.FunctionDef, cst.With)  #: those of them that nothing follows: a head is short


class _Spans(ByteSpanPositionProvider):
    """LibCST's positions for one statement: its public API always walks the entire module."""

    def of(self, node: cst.CSTNode, indents: Sequence[str], module: cst.Module) -> Mapping[cst.CSTNode, tuple[int, int]]:
        """The start and the length of each node in a statement, which may start at any offset."""
        state = SpanProvidingCodegenState(
            default_indent=module.default_indent,
            default_newline=module.default_newline,
            provider=self,
            get_length=byte_length_in_utf8,
        )
        for indent in indents:
            state.increase_indent(indent)
        node._codegen(state)
        computed: Mapping[cst.CSTNode, Any] = self._computed
        return {node: (span.start, span.length) for node, span in computed.items()}


class Places:
    """The positions in one source; Python's own parser gives the starts of statements."""

    def __init__(
        self, module: cst.Module, tree: ast.Module, lines: Sequence[int], parents: Mapping[cst.CSTNode, cst.CSTNode]
    ) -> None:
        self._module, self._lines, self._parents = module, lines, parents
        self._starts: dict[cst.CSTNode, tuple[int, tuple[str, ...]]] = {}
        self._firsts: list[tuple[int, cst.CSTNode]] = []  #: the lines of statements, with those of their decorators
        self._found: dict[cst.CSTNode, tuple[int, int]] = {}
        self._read(module.body, tree.body, ())

    def of(self, node: cst.CSTNode) -> tuple[int, int]:
        """The start and the end of a node, in bytes."""
        found = self._found.get(node)
        if found is None:
            unit: cst.CSTNode | None = node
            while unit is not None and unit not in self._starts:
                unit = self._parents.get(unit)
            if isinstance(unit, _HEADED) and unit is not node and node is not unit.body:
                self._find(unit, unit.with_changes(body=cst.IndentedBlock(())))
            for one in [unit] if unit is not None else list(self._starts):  # a comma or a bracket has no parent
                if node not in self._found:
                    self._find(one, one)
            found = self._found[node]
        return found

    def around(self, start: int, end: int) -> cst.CSTNode | None:
        """The smallest statement that has a part of the text."""
        place = bisect.bisect_right(self._firsts, start, key=itemgetter(0)) - 1
        unit: cst.CSTNode | None = self._firsts[place][1] if place >= 0 else None
        while unit is not None and (unit not in self._starts or self.of(unit)[1] < end):
            unit = self._parents.get(unit)
        return unit

    def _read(self, body: Sequence[cst.CSTNode], said: Sequence[ast.stmt], indents: tuple[str, ...]) -> None:
        number = 0
        for node in body:
            first = said[number]
            number += len(node.body) if isinstance(node, cst.SimpleStatementLine) else 1
            self._starts[node] = self._lines[first.lineno - 1] + first.col_offset, indents
            decorators = getattr(first, "decorator_list", ())
            self._firsts.append((self._lines[min(x.lineno for x in (first, *decorators)) - 1], node))
            block = node.body if isinstance(node, _WITH_BODIES) else None
            if isinstance(block, cst.IndentedBlock):
                inner = self._module.default_indent if block.indent is None else block.indent
                self._read(block.body, getattr(first, "body", ()), (*indents, inner))

    def _find(self, unit: cst.CSTNode, shown: cst.CSTNode) -> None:
        """Find the nodes of a statement. ``shown`` is the statement, or its head alone."""
        start, indents = self._starts[unit]
        spans = _Spans().of(shown, indents, self._module)
        offset = start - spans[shown][0]
        for node, (first, length) in spans.items():
            self._found[node] = first + offset, first + offset + length
