"""The table of departures, the cases that each lists, and the page with the table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from vectors import xfails
from vectors.departed import CASES, departure_of
from vectors.flags import DEPARTURE_FLAGS
from vectors.record import NATIVES

from gradclip.conformance import load_vectors
from gradclip.conformance.checks import CHECKS
from gradclip.natives import NATIVES as RECORDS
from gradclip.natives import departing
from gradclip.natives.departures import DEPARTURES, markdown

ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- departures -->\n", "\n<!-- /departures -->"


def test_each_case_departs_for_one_reason() -> None:
    listed = Counter((native, case) for natives in CASES.values() for native, cases in natives.items() for case in cases)
    assert [what for what, times in listed.items() if times > 1] == []
    assert departure_of("torch.nn.utils.clip_grad_norm_", "D7") == "infinite-limit"
    assert departure_of("torch.nn.utils.clip_grad_norm_", "A1") is None


def test_keys_are_unique_and_every_departure_has_cases() -> None:
    assert len({departure.key for departure in DEPARTURES}) == len(DEPARTURES)
    assert all(cases for natives in CASES.values() for cases in natives.values())


def test_the_records_list_exactly_the_departures_that_were_recorded() -> None:
    """A vector on which a native departs, or a replayed case, shows each departure of its record, and no other."""
    listed = {(departure.key, native) for departure in DEPARTURES for native in departing(departure.key)}
    replayed = {(key, native) for key, natives in CASES.items() for native in natives}
    shown, failed = recorded()
    assert ("negative-limit", "optax.adaptive_grad_clip") in shown & replayed
    assert (shown | replayed) - listed == set()
    assert listed - shown - replayed - failed == set()


def recorded() -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Return the departures with the natives whose vectors show them, and with those that fail their checks."""
    files = {f.operation: {"operation": f.operation, "vectors": [v.json for v in f.vectors]} for f in load_vectors()}
    shown, failed = set(), set()
    for native in NATIVES:
        for case, reason in xfails.vector_reasons(native, files).items():
            departure = DEPARTURE_FLAGS.get(reason.partition(":")[0])
            if departure is not None:
                shown.add((departure.key, xfails.variant_of(case.partition("/")[0], native)))
        for case in xfails.checks_of(native, files):
            operation, _, check = case.partition("/")
            failed.add((CHECKS[check].departure, xfails.variant_of(operation, native)))
    return shown, failed


def test_a_record_names_only_departures() -> None:
    keys = {departure.key for departure in DEPARTURES}
    assert {key for native in RECORDS for key in (*native.departs, *native.departs_also)} == keys
    assert [native.code for native in RECORDS if set(native.departs) & set(native.departs_also)] == []
    assert [native.code for native in RECORDS if not {*native.departs, *native.departs_also} >= native.backends.keys()] == []


def test_table() -> None:
    lines = markdown().splitlines()
    assert len(lines) == len(DEPARTURES) + 2
    assert all(line.count(" | ") == 3 for line in lines)
    assert "[tensorflow#109146](https://github.com/tensorflow/tensorflow/issues/109146)" in lines[2]


def test_the_page_shows_the_table() -> None:
    """Renew the page between the marks by ``python -c "import gradclip.natives.departures as d; print(d.markdown())"``."""
    assert (ROOT / "docs" / "departures.md").read_text("utf-8").partition(BEGIN)[2].partition(END)[0] == markdown()
