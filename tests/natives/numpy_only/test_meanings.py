"""The drawing of docs/dialects.md shows gradclip's results."""

from __future__ import annotations

from xml.etree import ElementTree

import meanings

from gradclip.natives import NATIVES


def test_what_is_written_in_it_is_calculated_by_hand() -> None:
    """a = (2.4, 1), b = (-0.3, 0.9): norms 2.6 and 0.9487, together 2.7677; root mean squares 1.8385 and 0.6708."""
    texts = [x.text for x in ElementTree.parse(meanings.PICTURE).iter() if (x.get("class") or "").endswith("-text")]
    one, each, value, rms = zip(texts[::2], texts[1::2], strict=True)
    assert one == ("a = (0.87, 0.36)", "b = (-0.11, 0.33)")
    assert each == ("a = (0.92, 0.38)", "b = (-0.30, 0.90)")
    assert value == ("a = (1.00, 1.00)", "b = (-0.30, 0.90)")
    assert rms == ("a = (1.31, 0.54)", "b = (-0.30, 0.90)")


def test_the_names_in_it_are_those_of_the_natives_with_such_a_rule() -> None:
    notes = [x.text or "" for x in ElementTree.parse(meanings.PICTURE).iter() if x.get("class") == "note"]
    drawn = set(" ".join(notes).replace(",", " ").split())
    rules = {native.last + "=" * bool(native.keyword): native.rule() for native in NATIVES if native.is_own}
    with_panel = {name for name, rule in rules.items() if (rule.scope, rule.mean) in meanings.TITLES and rule.order == 2}
    assert drawn == with_panel
    assert rules.keys() - drawn >= {"adaptive_grad_clip", "per_example_global_norm_clip"}
