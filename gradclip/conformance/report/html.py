"""The report as one self-contained HTML page: a matrix of operations and targets; each cell opens to its cases.

It needs no JavaScript: a cell links to its section, which is visible while it is the link's target. Needs jinja2.
"""

from __future__ import annotations

import re
from importlib import resources

from jinja2 import Environment, StrictUndefined

from gradclip.conformance.report.text import ACCEPTED
from gradclip.conformance.report.view import MARKS, View
from gradclip.conformance.result import STATUSES

__all__ = ["page"]

_TEMPLATE = "template.html.j2"
_MOST = 10  #: kinds of failures that the page opens with


def page(view: View) -> str:
    """The page of a report, laid out."""
    source = resources.files(__package__).joinpath(_TEMPLATE).read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"linkable": _linkable, "pieces": _pieces}
    return environment.from_string(source).render(view=view, marks=MARKS, statuses=STATUSES, titles=ACCEPTED, most=_MOST)


def _linkable(address: str) -> bool:
    """Whether the link can only show a page."""
    return address.startswith(("https://", "http://"))


def _pieces(name: str) -> list[str]:
    """Where an operation's name may be broken.

    >>> _pieces("paddle.ClipGradByNorm"), _pieces("optax.clip")
    (['paddle.', 'Clip', 'Grad', 'By', 'Norm'], ['optax.', 'clip'])
    """
    return re.split(r"(?<=[._])(?=.)|(?<=[a-z])(?=[A-Z])", name)
