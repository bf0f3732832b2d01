"""The notebook is a page of the site: its cells and what they print, not its JSON."""

from __future__ import annotations

import html
import json
import re

import pages
from browser.server import SITE


def test_a_reader_sees_each_cell_and_what_it_prints() -> None:
    page = (SITE / "source" / "examples" / "first_clip.ipynb.html").read_text(encoding="utf-8")
    seen = html.unescape(re.sub(r"<[^>]+>", "", page))
    notebook = json.loads((pages.ROOT / "examples" / "first_clip.ipynb").read_text(encoding="utf-8"))
    assert "cell_type" not in seen
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell in code:
        printed = "".join(line for output in cell["outputs"] for line in output["text"])
        assert "".join(cell["source"]) in seen
        assert printed.rstrip() in seen
    assert len(code) > 4
    assert 'href="../../start.html"' in page  # the notebook's link to a page of the docs
