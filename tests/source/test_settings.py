"""Settings files: the codemod reports a trainer's clip settings, and changes no byte."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from migrate import stand_in

from gradclip.source.model import Options, Verdict
from gradclip.source.runner import Request, migrate_file
from gradclip.source.settings import report_settings


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("trainer:\n  gradient_clip_val: 0.5  # as before\n", (2, 3, "GM501", "manual", "gradient_clip_val: 0.5")),
        ('{"zero": 1, "gradient_clipping": 1.0}', (1, 13, "GM503", "manual", '"gradient_clipping": 1.0')),
        ('{\r\n"gradient_clipping":"auto"}', (2, 1, "GM503", "manual", '"gradient_clipping":"auto"')),
        ("[trainer]\ngradient_clip_algorithm = 'norm'\n", (2, 1, "GM501", "manual", "gradient_clip_algorithm = 'norm'")),
        ("trainer.gradient_clip_val: 1\n", (1, 1, "GM501", "manual", "trainer.gradient_clip_val: 1")),
        ("x: {gradient_clip_val: 1}", (1, 5, "GM501", "manual", "gradient_clip_val: 1")),
        ("gradient_clip_val: null\n", (1, 1, "GM003", "unchanged", "gradient_clip_val: null")),
        ('"gradient_clipping": 0.0', (1, 1, "GM003", "unchanged", '"gradient_clipping": 0.0')),
        ("optimizer_config:\n  grad_clip:\n    max_norm: 35", (2, 3, "GM207", "unchanged", "grad_clip:")),
        ("  max_grad_norm: 1.0", (1, 3, "GM207", "unchanged", "max_grad_norm: 1.0")),
        ("  clip_norm: 0.1", (1, 3, "GM207", "unchanged", "clip_norm: 0.1")),
    ],
)
def test_a_setting_is_found(text: str, found: tuple[int, int, str, str, str]) -> None:
    (site,) = report_settings(text, Options())
    assert (site.line, site.column, site.code, site.outcome.value, site.text) == found
    assert site.reason
    assert site.more == f"gradclip explain {site.code}"
    assert bool(site.advice) == (site.outcome is Verdict.MANUAL)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# gradient_clip_val: 1",
        "x: 1  # gradient_clip_val: 1",
        "my_gradient_clip_val: 1",
        "gradient_clip_values: 1",
        "a: max_grad_norm",
    ],
)
def test_what_is_no_setting(text: str) -> None:
    assert report_settings(text, Options()) == ()


def test_codes_can_be_chosen() -> None:
    text = "gradient_clip_val: 1\ngradient_clipping: 1\n"
    for options in (Options(select=frozenset({"GM503"})), Options(ignore=frozenset({"GM501"}))):
        assert [site.code for site in report_settings(text, options)] == ["GM503"]


def test_a_settings_file_is_read_and_never_fails_or_changes(tmp_path: Path) -> None:
    for content, count in (
        (b"gradient_clip_val: 1\nold: \xff\n", 0),
        (b"old: {gradient_clip_val: 1\n", 1),
        (b"x" * (2 << 20), 0),
    ):
        path = tmp_path / "config.yaml"
        path.write_bytes(content)
        result = migrate_file(str(path), Request(Options(), write=True), stand_in.migrate_source)
        assert (result.error, result.changed, len(result.places)) == ("", False, count)
        assert bool(result.skipped) == (count == 0)
        assert path.read_bytes() == content


@pytest.mark.parametrize("unit", [".", "a.", ".gradient_clip_val", "gradient_clip_val ", " ", '"', "max_grad_norm:"])
def test_the_time_grows_with_the_text_and_not_with_its_square(unit: str) -> None:
    def seconds(length: int) -> float:
        text = (unit * length)[:length]
        start = time.process_time()
        report_settings(text, Options())
        return time.process_time() - start

    assert seconds(1 << 20) < 64 * max(seconds(1 << 16), 0.05), "16 times the text: a square takes 256 times as long"
