"""The drawing of docs/dialects.md shows gradclip's results."""

from __future__ import annotations

from xml.etree import ElementTree

import meanings


def test_what_is_written_in_it_is_calculated_by_hand() -> None:
    """a = (2.4, 1), b = (-0.3, 0.9): norms 2.6 and 0.9487, together 2.7677; root mean squares 1.8385 and 0.6708."""
    texts = [x.text for x in ElementTree.parse(meanings.PICTURE).iter() if (x.get("class") or "").endswith("-text")]
    one, each, value, rms = zip(texts[::2], texts[1::2], strict=True)
    assert one == ("a = (0.87, 0.36)", "b = (-0.11, 0.33)")
    assert each == ("a = (0.92, 0.38)", "b = (-0.30, 0.90)")
    assert value == ("a = (1.00, 1.00)", "b = (-0.30, 0.90)")
    assert rms == ("a = (1.31, 0.54)", "b = (-0.30, 0.90)")
