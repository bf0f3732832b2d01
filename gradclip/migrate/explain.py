"""``gradclip explain``: what one call computes, and its equivalents; or in what two conventions differ, with an example."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from gradclip.departures import DEPARTURES
from gradclip.migrate import explain_words as words
from gradclip.migrate.apis.model import Api, Kind
from gradclip.migrate.explain_call import Call, find
from gradclip.migrate.explain_equivalents import Equivalent, equivalents, rule_code
from gradclip.migrate.explain_natives import NATIVELY
from gradclip.rule import Rule

__all__ = ["Edge", "Explanation", "explain"]


@dataclass(frozen=True, slots=True)
class Edge:
    """What happens in an unusual case."""

    case: str
    does: str  #: what gradclip does; the native too, unless the next says otherwise
    native: str = ""  #: what the native does instead


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that there is to say of one call."""

    call: str
    name: str
    code: str
    dialect: str
    status: str
    note: str
    formula: tuple[str, ...]
    scope: str
    epsilon: str
    returns: str
    refused: str
    edges: tuple[Edge, ...]
    rule: str  #: the dialect's call: a line of code
    equivalents: tuple[Equivalent, ...]
    source: str
    link: str

    def as_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return dataclasses.asdict(self)


def explain(text: str, to: str = "") -> Explanation:
    """Explain one call.

    Args:
        text: code or a name, as :func:`gradclip.migrate.explain_call.find` takes it.
        to: only the equivalents in this framework.

    Raises:
        ValueError: if the text names no call that clips, or is called as its signature does not allow.

    >>> explain("tf.clip_by_norm(g, 5.0, axes=[0])").formula[0]
    'g * 5.0 / max(n, 5.0)'
    """
    call = find(text)
    api, rule = call.api, call.rule
    return Explanation(
        call=call.text,
        name=call.name,
        code=api.code,
        dialect=api.dialect,
        status="" if api.status == "current" else f"{api.status} since {api.since.partition(';')[0]}",
        note=api.note,
        formula=() if rule is None else tuple(words.formula(call, rule)),
        scope="" if rule is None else words.scope(call, rule),
        epsilon="" if rule is None or api.kind is Kind.MEASURE else words.epsilon(rule),
        returns=words.returns(api),
        refused=call.refused,
        edges=() if rule is None else tuple(_edges(call, rule)),
        rule=rule_code(call),
        equivalents=tuple(equivalents(call, to)),
        source=api.since.rpartition("; ")[2],
        link=api.link,
    )


def _edges(call: Call, rule: Rule) -> list[Edge]:
    about = {departure.key for departure in DEPARTURES if _is_about(call.api, departure.functions)}
    natively = {} if call.api.kind is Kind.MEASURE else NATIVELY.get(call.api.dialect, {})
    found = []
    for case, does in words.edges(call, rule).items():
        key = words.EDGES[case]
        native = natively.get(case, "") if case.startswith("limit") or key in about else ""
        if native or not key or case.startswith("limit"):
            found.append(Edge(case, does, native if native != does else ""))
    return found


def _is_about(api: Api, functions: tuple[str, ...]) -> bool:
    """Whether a departure is about an API: it names natives as their users do."""
    if api.framework == "keras":
        return any(function.endswith(f" {api.keyword}") for function in functions)
    names = {f"tf.{name.removeprefix('tensorflow.')}" if name.startswith("tensorflow.") else name for name in api.names}
    return bool(names & set(functions))
