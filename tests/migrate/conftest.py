"""A folder for the command's tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with a codemod that finds ``old``."""
    from migrate import stand_in  # the tests of the package have no gradclip when they collect this

    monkeypatch.setattr("gradclip.migrate.codemod.migrate_source", stand_in.migrate_source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path
