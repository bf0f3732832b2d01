"""``gradclip explain``: what one call computes, and its equivalents; or the differences of two conventions, with an example."""

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
    """The behaviour in an edge case."""

    case: str
    does: str  #: gradclip's behaviour; also the native's, unless ``native`` is set
    native: str = ""  #: the native's behaviour, if it differs


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of one call."""

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
    rule: str  #: the dialect's call, as a line of code
    equivalents: tuple[Equivalent, ...]
    source: str
    link: str

    def as_json(self) -> dict[str, Any]:
        """The explanation as JSON values."""
        return dataclasses.asdict(self)


def explain(text: str, to: str = "") -> Explanation:
    """Explain one call.

    Args:
        text: code or a name, as :func:`gradclip.migrate.explain_call.find` accepts it.
        to: return the equivalents in this framework only.

    Raises:
        ValueError: if the text names no call that clips, or the signature does not allow the call.

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
    """Whether a departure concerns an API; a departure names the natives as their users do."""
    if api.framework == "keras":
        return any(function.endswith(f" {api.keyword}") for function in functions)
    names = {f"tf.{name.removeprefix('tensorflow.')}" if name.startswith("tensorflow.") else name for name in api.names}
    return bool(names & set(functions))
