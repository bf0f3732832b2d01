"""The positions of nodes in the text, computed per statement, because computing all of them takes as long as parsing."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider
from libcst.metadata.span_provider import SpanProvidingCodegenState, byte_length_in_utf8

__all__ = ["Places"]


#: the statements for which Python's parser gives the start of each nested statement
_WITH_BODIES = (cst.ClassDef, cst.FunctionDef, cst.If, cst.For, cst.While, cst.With, cst.Try)
_HANDLERS = (cst.ExceptHandler, cst.ExceptStarHandler)


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
        self._ends: dict[cst.CSTNode, int] = {}  #: of the statements with a body
        self._found: dict[cst.CSTNode, tuple[int, int]] = {}
        self._read(module.body, tree.body, ())

    def of(self, node: cst.CSTNode) -> tuple[int, int]:
        """The start and the end of a node, in bytes."""
        found = self._found.get(node)
        if found is None and node in self._ends:
            found = self._found[node] = self._starts[node][0], self._ends[node]
        if found is None:
            unit, part = node, node
            while unit not in self._starts and unit in self._parents:
                unit, part = self._parents[unit], unit
            if unit in self._starts:
                self._find(unit, self._is_header(part, unit))
            else:  # a comma or a bracket has no parent
                for one in self._starts:
                    self._find(one)
            found = self._found[node]
        return found

    def _is_header(self, part: cst.CSTNode, unit: cst.CSTNode) -> bool:
        """Whether a part of a statement precedes its body, whose nodes need no position then."""
        after = (getattr(unit, name, None) for name in ("body", "orelse", "finalbody"))
        return unit in self._ends and part not in after and not isinstance(part, _HANDLERS)

    def _read(self, body: Sequence[cst.CSTNode], said: Sequence[ast.stmt], indents: tuple[str, ...]) -> None:
        number = 0
        for node in body:
            first = said[number]
            number += len(node.body) if isinstance(node, cst.SimpleStatementLine) else 1
            self._starts[node] = self._lines[first.lineno - 1] + first.col_offset, indents
            block = node.body if isinstance(node, _WITH_BODIES) else None
            if isinstance(block, cst.IndentedBlock):
                self._ends[node] = self._lines[(first.end_lineno or 1) - 1] + (first.end_col_offset or 0)
                inner = self._module.default_indent if block.indent is None else block.indent
                self._read(block.body, getattr(first, "body", ()), (*indents, inner))

    def _find(self, unit: cst.CSTNode, is_header: bool = False) -> None:
        start, indents = self._starts[unit]
        written = unit.with_changes(body=cst.IndentedBlock(())) if is_header else unit
        spans = _Spans().of(written, indents, self._module)
        offset = start - spans[written][0]
        for node, (first, length) in spans.items():
            self._found[node] = first + offset, first + offset + length
