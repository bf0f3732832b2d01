"""Misspelt names: the same name in another spelling, and the nearest names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from gradclip.core.errors import UnknownNameError

__all__ = ["did_you_mean", "nearest", "same", "unknown"]


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


def same(name: str, known: Iterable[str]) -> str | None:
    """The known name that differs only in underscores and capitals.

    >>> same("ClipGradByNorm", ["clip_grad_by_norm"]), same("clip_grad_norm_", ["clip_grad_norm"]), same("clip", ["clips"])
    ('clip_grad_by_norm', 'clip_grad_norm', None)
    """
    known = list(known)
    letters = _letters(name)
    return name if name in known else next((one for one in known if _letters(one) == letters), None)


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names that are most similar to this one, the most similar first.

    >>> nearest("torch.clip_gradient_norm", ["torch.clip_grad_norm", "keras.clipvalue"])
    ['torch.clip_grad_norm']
    """
    by_letters: Mapping[str, str] = {_letters(one): one for one in known}
    return [by_letters[one] for one in difflib.get_close_matches(_letters(name), by_letters, count, 0.7)]


def did_you_mean(names: Sequence[str]) -> str:
    """The hint that names them; "" for none.

    >>> did_you_mean(["a", "b", "c"]), did_you_mean([])
    ('did you mean a, b or c?', '')
    """
    *others, last = names or [""]
    return f"did you mean {', '.join(others)}{' or ' * bool(others)}{last}?" if last else ""


def unknown(where: str, name: str, hint: str) -> AttributeError:
    """The error for an attribute that a module lacks."""
    if name.startswith("__"):  # Python itself asks for such names
        return AttributeError(f"module {where!r} has no attribute {name!r}")
    return UnknownNameError(f"{where} has no {name}.", "", hint)
