"""The page about the natives is written from the recordings in the vectors."""

from __future__ import annotations

import re

import natives_page
import pytest

from gradclip.conformance import load_vectors
from gradclip.conformance.load import VectorFile

FILES = load_vectors()
TEXT = natives_page.PAGE.read_text(encoding="utf-8")


def test_the_page_is_what_is_recorded() -> None:
    assert natives_page.markdown(FILES) == TEXT, "run: python tools/natives_page.py"


def test_every_native_that_was_recorded_has_a_row_whose_counts_are_those_of_its_vectors() -> None:
    for file in FILES:
        rows = [line for line in TEXT.splitlines() if line.startswith(f"| [`{file.operation}`]")]
        assert len(rows) == len(file.recorded_with) > 0
        for native, row in zip(file.recorded_with, rows, strict=True):
            vectors, agree, otherwise = map(int, re.findall(r"\| (\d+)\b(?= \|)", row))
            made = [vector.native[native] for vector in file.vectors]
            assert (vectors, agree) == (len(made), made.count("agrees"))
            assert otherwise == sum(isinstance(one, dict) for one in made)
            found = [one for one in natives_page.departures([file]) if native in one.natives]
            assert len(found) == otherwise
            assert set(re.findall(r"\[(\w+)\]\(#", row)) == {one.cause for one in found}


def test_what_older_versions_do_is_about_recorded_vectors() -> None:
    files = {file.operation: file for file in FILES}
    for one in natives_page.OLDER:
        operation, _, on = one.function.partition(" on ")
        native = operation.partition(".")[0] + (f"@{on}" if on else "")
        recorded = {vector.id.rpartition("/")[2]: vector.native[native] for vector in files[operation].vectors}
        assert {recorded[name] == "agrees" for name in one.vectors} == {not one.is_exact}  # the newest does something else


def test_every_departure_is_shown_or_counted() -> None:
    found = list(natives_page.departures(FILES))
    sections = TEXT.partition("\n## Other properties")[0]
    shown = sum(len(re.findall(r"[:,] `[a-z]+\.[A-Za-z_]+`", line)) for line in sections.splitlines() if line.startswith("- "))
    counted = sum(map(int, re.findall(r"^And (\d+) more\.$", sections, re.MULTILINE)))
    assert shown + counted == len(found) > 100


@pytest.mark.parametrize(("limit", "gradients"), [("inf", "[3, 4]"), ("0", "[0, 0]")])
def test_what_everybody_should_know_is_there(limit: str, gradients: str) -> None:
    call = f"For `[{gradients} float32], limit={limit}` the exact outcome is `{gradients} float32`. The natives give:\n\n"
    assert re.match(r"- `\[nan, nan\] float32`: .*`tensorflow.clip_by_norm`\n", TEXT.partition(call)[2])


def test_sections_are_linked_and_explained() -> None:
    anchors = set(re.findall(r"\]\(#([a-z]+)\)", TEXT))
    sections = {
        title.lower(): body for title, body in re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    }
    assert anchors
    assert anchors <= sections.keys()
    flags = {name.lower(): flag.explanation for file in FILES for name, flag in file.flags.items()}
    assert all(flags[name] in sections[name] for name in anchors - {"other"})


def test_what_no_flag_is_about_is_other(monkeypatch: pytest.MonkeyPatch) -> None:
    class Undeclared(dict[str, str]):
        def __missing__(self, case: str) -> str:
            return "It differs: somehow."

    def undeclared(native: str) -> dict[str, str]:
        return Undeclared()

    monkeypatch.setattr(natives_page, "_declared", undeclared)
    file: VectorFile = next(file for file in FILES if file.operation == "tensorflow.clip_by_norm")
    text = natives_page.markdown([file])
    assert re.findall(r"^## .*", text, re.MULTILINE) == ["## At a glance", "## Other", "## Older versions"]
    assert "In training" not in text
