"""One small program for each kind of site that real code has, by its answer: named, rewritten or quiet. None changes unnoticed.

A file of ``kinds`` has the programs of one answer; a line with ``====`` and a name precedes each.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from migrate.codemods import migrate

from gradclip.source.hidden import names_clip
from gradclip.source.model import Verdict

FOLDER = Path(__file__).with_name("kinds")
WORDS = {Verdict.MANUAL: "named", Verdict.REWRITTEN: "rewritten"}


def kinds(answer: str) -> dict[str, str]:
    """Return the programs of an answer, by the names of their kinds."""
    parts = re.split(r"^==== (.+)\n", (FOLDER / f"{answer}.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


KINDS = [(answer, kind, text) for answer in ("named", "rewritten", "quiet") for kind, text in kinds(answer).items()]


@pytest.mark.parametrize(("answer", "kind", "text"), KINDS, ids=[f"{answer}: {kind}" for answer, kind, _ in KINDS])
def test_a_kind_of_site_keeps_its_answer(answer: str, kind: str, text: str) -> None:
    sites = migrate(text).sites
    assert {WORDS[site.outcome] for site in sites if site.outcome in WORDS} == {answer} - {"quiet"}, (kind, sites)


def test_there_are_many_kinds_of_each_answer() -> None:
    counts = [sum(one == answer for one, *_ in KINDS) for answer in ("named", "rewritten", "quiet")]
    assert all(count >= least for count, least in zip(counts, (60, 40, 20), strict=True)), counts
    assert len({text for *_, text in KINDS}) == len(KINDS)


UNREAD = {
    "a path": 'weights = getattr(hub, "open-clip/model")\n',
    "an action": "def act(action):\n    return clipped_action(action)\n",
    "a total of losses": "def train(p):\n    total_loss = loss(p)\n    p.grad = None\n    return total_loss / layer_norm\n",
}


@pytest.mark.parametrize("kind", UNREAD)
def test_a_source_whose_words_only_resemble_a_clip_is_not_read(kind: str) -> None:
    assert not names_clip(UNREAD[kind], {"clip", "clip_grad_norm_"})
