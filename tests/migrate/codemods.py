"""What the codemod's tests share."""

from __future__ import annotations

import textwrap
from typing import Any

from gradclip.migrate.codemod import migrate_source
from gradclip.migrate.model import Migrated, Options, Outcome

__all__ = ["manual", "migrate", "options", "rewritten"]


def options(**given: Any) -> Options:
    """Options from what a test, or a TOML file, says: lists are sets."""
    return Options(**{name: frozenset(value) if isinstance(value, list) else value for name, value in given.items()})


def migrate(source: str, **given: Any) -> Migrated:
    """A source migrated, which is checked to be Python and stable after that."""
    wanted = options(**given)
    migrated = migrate_source(textwrap.dedent(source).lstrip("\n"), wanted)
    compile(migrated.source.removeprefix("\ufeff"), "migrated", "exec")
    again = migrate_source(migrated.source, wanted)
    assert again.source == migrated.source
    assert all(site.outcome is not Outcome.REWRITTEN for site in again.sites)
    return migrated


def manual(migrated: Migrated) -> list[str]:
    """The codes of the places that are left to a person."""
    return [site.code for site in migrated.sites if site.outcome is Outcome.MANUAL]


def rewritten(migrated: Migrated) -> list[str]:
    """The codes of what is rewritten."""
    return [site.code for site in migrated.sites if site.outcome is Outcome.REWRITTEN]
