"""``llms.txt`` of the built site names its English pages, and ``llms-full.txt`` has their text."""

from __future__ import annotations

import re

from browser.server import SITE


def test_each_english_page_has_its_line_and_its_text() -> None:
    short = (SITE / "llms.txt").read_text(encoding="utf-8")
    lines = re.findall(r"(?m)^- \[([^]]+)\]\(([^)]+)\)(?:: (.+))?$", short)
    assert len(lines) > 20
    assert len({address for _, address, _ in lines}) == len(lines) == short.count("\n- ")
    assert [address for _, address, _ in lines if not (SITE / address).is_file()] == []
    assert {"play.html", "start.html", "migrate.html", "slots.html", "conformance.html", "changelog.html"} <= {
        line[1] for line in lines
    }
    assert not any(re.search(r"[\u4e00-\u9fff]", title) for title, _, _ in lines)
    sentences = [sentence for _, _, sentence in lines if sentence]
    assert len(sentences) > 0.8 * len(lines)
    assert [sentence for sentence in sentences if "```" in sentence or "](" in sentence] == []
    whole = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", (SITE / "llms-full.txt").read_text(encoding="utf-8"))
    said = " ".join(whole.split())
    assert [sentence for sentence in sentences if sentence not in said] == []
