"""Shared by the codemod's tests."""

from __future__ import annotations

import textwrap
from typing import Any

from gradclip.migrate.codemod import migrate_source
from gradclip.source.model import About, Migrated, Options, Verdict

__all__ = ["manual", "migrate", "options", "rewritten"]


def options(**given: Any) -> Options:
    """Return options from the values in a test or a TOML file; lists become sets, and facts from other files ``about``."""
    values = {name: frozenset(value) if isinstance(value, list) else value for name, value in given.items()}
    about = About(**{name: values.pop(name) for name in ("sparse", "stars", "kept") if name in values})
    return Options(**values, about=about)


def migrate(source: str, **given: Any) -> Migrated:
    """Return the migrated source; it must be valid Python, and a second migration must not change it."""
    wanted = options(**given)
    migrated = migrate_source(textwrap.dedent(source).lstrip("\n"), wanted)
    compile(migrated.source.removeprefix("\ufeff"), "migrated", "exec")
    again = migrate_source(migrated.source, wanted)
    assert again.source == migrated.source
    assert all(site.outcome is not Verdict.REWRITTEN for site in again.sites)
    return migrated


def manual(migrated: Migrated) -> list[str]:
    """Return the codes of the sites that need a person."""
    return [site.code for site in migrated.sites if site.outcome is Verdict.MANUAL]


def rewritten(migrated: Migrated) -> list[str]:
    """Return the codes of the rewritten sites."""
    return [site.code for site in migrated.sites if site.outcome is Verdict.REWRITTEN]
