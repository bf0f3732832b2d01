"""What lint and migrate say of a source. Many tests ask about the same sources: each is read once."""

from __future__ import annotations

import functools

from gradclip import lint
from gradclip.migrate.codemod import migrate_source
from gradclip.source.model import Migrated, Options, Site


@functools.cache
def linted(source: str) -> tuple[Site, ...]:
    return tuple(lint.of_source(source))


@functools.cache
def migrated(source: str) -> Migrated:
    return migrate_source(source, Options())
