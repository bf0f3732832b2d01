"""The docstrings' reStructuredText, roles and formulas, as Markdown and MathML."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe
from latex2mathml.converter import convert

ROLE = re.compile(r":(?:func|class|meth|attr|mod|data|exc):`~?([^`]+)`")
BLOCK = re.compile(r"^( *)\.\. math::(.*(?:\n\1 +\S.*|\n *(?=\n\1 ))*)", re.MULTILINE)
INLINE = re.compile(r":math:`([^`]+)`")
SESSION = re.compile(r"^( *)>>> .*(?:\n\1\S.*|\n\1 +\S.*)*", re.MULTILINE)
LITERAL = re.compile(r"``([^`]+)``")


class Docstrings(griffe.Extension):  # type: ignore[misc]  # mypy cannot read it
    """The extension that griffe calls for each object."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite its docstring."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """A docstring of this project as Markdown.

    >>> markdown("Like :func:`clip`, but ``in place``.")
    'Like `clip`, but `in place`.'
    >>> markdown("Once:\\n\\n>>> 1 + 1\\n2").splitlines()
    ['Once:', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    parts: list[str] = []
    end = 0
    for session in SESSION.finditer(text):
        indent = session[1]
        parts += [_prose(text[end : session.start()]), f"{indent}```pycon\n{session[0]}\n{indent}```"]
        end = session.end()
    return "".join([*parts, _prose(text[end:])])


def _prose(text: str) -> str:
    text = BLOCK.sub(lambda found: f"{found[1]}{_formula(found[2], 'block')}", text)
    text = INLINE.sub(lambda found: _formula(found[1], "inline"), text)
    return LITERAL.sub(r"`\1`", ROLE.sub(r"`\1`", text))


def _formula(text: str, display: str) -> str:
    return str(convert(" ".join(textwrap.dedent(text).split()), display=display))
