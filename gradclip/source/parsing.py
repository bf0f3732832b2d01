"""A source as a tree: Python's own parser first, then LibCST's.

LibCST's parser is native code and recursive: a tree that is too deep ends the process, without an exception.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
import warnings
from typing import TYPE_CHECKING

from gradclip.source.model import SourceError

if TYPE_CHECKING:
    import libcst as cst

__all__ = ["module", "needed", "parsed", "tree"]

_RUNS = sys.version_info[:2]
_NEWER = {  #: newer syntax, by a line of it or by the message of an older parser; the newest first
    (3, 14): re.compile(r"""\b(t|rt|tr)["']|^\s*except\*? +[A-Z][\w.]*(, *[A-Z][\w.]*)+ *:"""),
    (3, 13): re.compile(r"^\s*(type|(async )?def|class) \w+\[[^]]*[^=!<>]=[^=][^]]*\]"),
    (3, 12): re.compile(r"^\s*type \w+(\[.*\])?\s*=|^\s*((async )?def|class) \w+\[[^]]*\]\s*[(:]|^f-string: "),
}
_DEEP = "nested too deeply to be read"
_DEEPEST = 500  #: levels; LibCST takes a stack of 8 MiB at about 4000 levels of the largest construct, a lambda
_SIMPLE = (ast.stmt, ast.expr)
_DEEPEST_PATTERN = 16  #: levels of patterns in a ``match``: each level takes LibCST's parser several times as long


def tree(text: str) -> ast.Module:
    """The tree from Python's own parser: LibCST is more lenient and has no positions of its own.

    Raises:
        SourceError: if the source is not Python 3, is newer than the running Python, or would crash LibCST's parser.
    """
    made = parsed(text)
    if _is_too_deep(made):
        raise SourceError(_DEEP)
    return made


@functools.lru_cache(maxsize=1)  # a search and the reading that it allows parse one source
def parsed(text: str) -> ast.Module:
    """The same, also of a source that would crash LibCST's parser."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the source's strings do not matter here
            return ast.parse(text)
    except (RecursionError, MemoryError):
        raise SourceError(_DEEP) from None
    except SyntaxError as error:
        message = f"It {newer}." if (newer := needed(error, text)) else f"It is not Python 3: {error.msg}."
        message = _DEEP if "too many nested" in error.msg else message
        raise SourceError(message, error.lineno or 0, error.offset or 0) from None
    except ValueError as error:  # a null byte, a lone surrogate
        raise SourceError(f"It is not Python 3: {error}.") from None


def needed(error: SyntaxError, text: str) -> str:
    """``needs Python 3.12 to be read; this is 3.11``, if an error may be of such syntax; "" for any other error."""
    line = error.text or ""
    found = (version for version, told in _NEWER.items() if version > _RUNS and (told.search(line) or told.search(error.msg)))
    version = next(found, None)
    if version is None or ("except" in line and not _is_right_but_for_except(text)):
        return ""
    return f"needs Python {version[0]}.{version[1]} to be read; this is {_RUNS[0]}.{_RUNS[1]}"


def _is_right_but_for_except(text: str) -> bool:
    """Whether a source parses with brackets in ``except A, B:``, which Python 2 reads too."""
    try:
        ast.parse(re.sub(r"(?m)^(\s*except\*? +)([A-Z][\w.]*(?:, *[A-Z][\w.]*)+) *:", r"\1(\2):", text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def module(text: str) -> cst.Module:
    """LibCST's tree of a source that Python's parser has accepted.

    Raises:
        SourceError: if it is too long or too new for LibCST.
    """
    import libcst as cst  # here: a plain install of gradclip lacks it

    try:
        return cst.parse_module(text)
    except cst.ParserSyntaxError as error:
        message = "LibCST, which reads it for gradclip, cannot parse it."
        raise SourceError(message, error.raw_line, error.raw_column + 1) from None
    except UnicodeEncodeError:
        raise SourceError("It has characters that are not text (lone surrogates).") from None


def _is_too_deep(made: ast.Module) -> bool:
    """Whether a source is nested too deeply for LibCST. It walks without recursion."""
    stack: list[tuple[ast.AST, int, int]] = [(made, 0, 0)]
    while stack:
        node, depth, patterns = stack.pop()
        if depth > _DEEPEST or patterns > _DEEPEST_PATTERN:
            return True
        depth += 1
        is_short = isinstance(node, _SIMPLE) and node.lineno == node.end_lineno
        if is_short and depth + getattr(node, "end_col_offset", 0) < _DEEPEST:  # a level has a character at least
            continue
        patterns += isinstance(node, ast.pattern)
        if isinstance(node, ast.BoolOp):  # flat in Python's tree; in LibCST's, each operand is one level
            depth += len(node.values)
        elif isinstance(node, ast.Import):
            depth += max(alias.name.count(".") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            depth += (node.module or "").count(".")
        for value in vars(node).values():  # quicker than ast.iter_child_nodes; what has no fields has no depth
            for child in value if value.__class__ is list else (value,):
                if isinstance(child, ast.AST) and child._fields:
                    stack.append((child, depth, patterns))
    return False
