"""The table of departures, the cases that each lists, and the page with the table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from vectors.departed import CASES, departure_of

from gradclip.departures import DEPARTURES, markdown

ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- departures -->\n", "\n<!-- /departures -->"
PREFIXES = ("torch.", "tf.", "paddle.", "optax.", "keras[tensorflow] ", "keras[torch] ", "keras[jax] ")


def test_each_case_departs_for_one_reason() -> None:
    listed = Counter((native, case) for natives in CASES.values() for native, cases in natives.items() for case in cases)
    assert [what for what, times in listed.items() if times > 1] == []
    assert departure_of("torch.nn.utils.clip_grad_norm_", "D7") == "infinite-limit"
    assert departure_of("torch.nn.utils.clip_grad_norm_", "A1") is None


def test_keys_are_unique_and_every_departure_has_cases() -> None:
    assert len({departure.key for departure in DEPARTURES}) == len(DEPARTURES)
    assert all(cases for natives in CASES.values() for cases in natives.values())


def test_the_cases_are_of_the_functions_that_the_table_names() -> None:
    functions = {departure.key: sorted(departure.functions) for departure in DEPARTURES}
    assert functions == {key: sorted(natives) for key, natives in CASES.items()}


def test_every_native_is_of_a_framework_whose_tests_look_for_it() -> None:
    natives = {native for departure in DEPARTURES for native in departure.functions}
    assert [native for native in natives if not native.startswith(PREFIXES)] == []


def test_table() -> None:
    lines = markdown().splitlines()
    assert len(lines) == len(DEPARTURES) + 2
    assert all(line.count(" | ") == 3 for line in lines)
    assert "[tensorflow#109146](https://github.com/tensorflow/tensorflow/issues/109146)" in lines[2]


def test_the_page_shows_the_table() -> None:
    """Renew the page between the marks by ``python -c "import gradclip.departures as d; print(d.markdown())"``."""
    assert (ROOT / "docs" / "departures.md").read_text("utf-8").partition(BEGIN)[2].partition(END)[0] == markdown()
