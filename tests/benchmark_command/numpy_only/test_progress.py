"""Progress, on a terminal and elsewhere."""

from __future__ import annotations

import pytest

from benchmarks import progress


def test_lines_where_standard_error_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.shown() as said:
        assert type(said) is progress.Shown
        said.start("torch", 0)
        said.start("torch", 3)
        said.step("torch/clip_grad_norm_")
        said.done()
        said.end("torch", None)
        said.end("jax", "not installed: jax")
    assert capsys.readouterr() == (
        "",
        "torch: starting\ntorch: 3 cases\ntorch/clip_grad_norm_\ntorch: done\njax: not installed: jax\n",
    )


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with progress.shown() as bar:
        assert isinstance(bar, progress.Bar)
        bar.end("jax", "not installed: jax")  # ends before any has started
        bar.start("torch", 0)
        bar.start("torch", 2)
        bar.step("torch/[x]/mlp")
        bar.done()
        bar.end("torch", None)
        bar.start("paddle", 0)
        bar.end("paddle", "crashed with SIGSEGV")
    text = capsys.readouterr().err
    assert "jax: not installed: jax" in text
    assert "1/2" in text
    assert "paddle: crashed with SIGSEGV" in text
    assert "torch: None" not in text


def test_lines_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress.util, "find_spec", lambda name: None)
    assert type(progress.shown()) is progress.Shown
