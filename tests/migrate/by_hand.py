"""Clips by norm written out with lists and trees of arrays: shared by the tests of NumPy, JAX and TensorFlow."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
from migrate.codemods import migrate, rewritten

__all__ = ["agrees", "refuses", "source"]


def source(header: str, *body: str) -> str:
    """A module with ``clip(grads, limit)``."""
    return f"{header}\n\n\ndef clip(grads, limit):\n{textwrap.indent(chr(10).join(body), '    ')}\n"


def clipped(code: str, make: Callable[[], Any], leaves: Callable[[Any], list[Any]], limit: float) -> list[Any]:
    scope: dict[str, Any] = {}
    exec(compile(code, "kind", "exec"), scope)
    grads = make()
    result = scope["clip"](grads, limit)
    return [np.array(one) for one in leaves(grads if result is None else result)]


def agrees(code: str, make: Callable[[], Any], leaves: Callable[[Any], list[Any]]) -> str:
    """Assert that a clip is rewritten, and that both versions give the same numbers; return the new source."""
    migrated = migrate(code)
    assert rewritten(migrated) == ["GM402"], migrated.sites
    assert "limit /" not in migrated.source
    for limit in (0.5, 100.0):  # it clips; it does not
        before, after = (clipped(text, make, leaves, limit) for text in (code, migrated.source))
        assert len(before) == len(after) > 0
        for one, other in zip(after, before, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=0)
    some = [clipped(code, make, leaves, limit)[0] for limit in (0.5, 100.0)]
    assert not np.array_equal(*some)
    return migrated.source


def refuses(code: str) -> None:
    """Assert that a source stays as it is."""
    assert migrate(code).source == code
