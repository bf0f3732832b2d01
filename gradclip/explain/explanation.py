"""``gradclip explain``: what one call computes, and its equivalents; or the differences of two conventions, with an example."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gradclip.core.rule import Rule
from gradclip.explain import words
from gradclip.explain.call import Call, find
from gradclip.explain.equivalents import NEAREST, Equivalent, equivalents, rule_code
from gradclip.explain.names import NoNameError
from gradclip.explain.own import described
from gradclip.natives import BY_DIALECT, Kind, Native
from gradclip.natives.own import BY_RULE, alike

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
    called: str = ""  #: for a name of gradclip without a rule: a call with its parameters

    def as_json(self) -> dict[str, Any]:
        """The explanation as JSON values."""
        return dataclasses.asdict(self)


def explain(text: str, to: str = "") -> Explanation:
    """Explain one call.

    Args:
        text: code or a name, as :func:`gradclip.explain.call.find` accepts it.
        to: return the equivalents in this framework only.

    Raises:
        ValueError: if the text names no call that clips, or the signature does not allow the call.

    >>> explain("tf.clip_by_norm(g, 5.0, axes=[0])").formula[0]
    'g * 5.0 / max(n, 5.0)'
    """
    try:
        call = find(text)
    except NoNameError:
        own = _own(text, to)
        if own is None:
            raise
        return own
    api, rule = call.api, call.rule
    return Explanation(
        call=call.text,
        name=call.name,
        code=api.code,
        dialect=api.dialect,
        status="" if api.status == "current" or call.name.startswith("gradclip.") else f"{api.status} since {api.since}",
        note=api.note,
        formula=() if rule is None else tuple(words.formula(call, rule)),
        scope="" if rule is None else words.scope(call, rule),
        epsilon="" if rule is None or api.kind is Kind.MEASURE else words.epsilon(rule),
        returns=words.returns(api),
        refused=call.refused,
        edges=() if rule is None else tuple(_edges(call, rule)),
        rule=rule_code(call),
        equivalents=tuple(equivalents(call, to)),
        source=api.source,
        link=api.link,
    )


def _own(text: str, to: str) -> Explanation | None:
    """The explanation of a public name of gradclip; None for any other text."""
    found = described(text.strip().partition("(")[0])
    if found is None:
        return None
    by_rule = found.name in BY_RULE
    families: dict[str, list[str]] = {}
    for native in alike(found.name) if by_rule else ():
        if to in ("", native.family):
            families.setdefault(native.family, []).append(native.shown)
    return Explanation(
        call=text,
        name=found.name,
        code="",
        dialect="",
        status="gradclip's own",
        note=found.does,
        formula=("what its rule says, as: gradclip explain gradclip.dialects.torch.clip_grad_norm",) if by_rule else (),
        scope="",
        epsilon="",
        returns=found.returns,
        refused="",
        edges=(),
        rule="",
        equivalents=tuple(Equivalent(family, NEAREST, ", ".join(names)) for family, names in families.items()),
        source=found.file,
        link="",
        called=found.called,
    )


def _edges(call: Call, rule: Rule) -> list[Edge]:
    about = {*call.api.departs, *call.api.departs_also}
    natively = {} if call.api.kind is Kind.MEASURE else _natively(call.api)
    found = []
    for case, does in words.edges(call, rule).items():
        key = words.EDGES[case]
        native = natively.get(key, "") if case.startswith("limit") or key in about else ""
        if native or not key or case.startswith("limit"):
            found.append(Edge(case, does, native if native != does else ""))
    return found


def _natively(api: Native) -> Mapping[str, str]:
    """What the native does where gradclip departs from it: the native that the dialect's function is named after."""
    return BY_DIALECT[api.dialect].departs if api.dialect else {}
