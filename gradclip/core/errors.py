"""The exceptions and the warning of gradclip.

Every message says what is wrong, then ``Received: name=value``, then ``Hint: ...`` where there is a next step.
A class inherits from each builtin exception that some native raises for the same mistake, so that code ported from any of
the frameworks keeps catching what it caught before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "DTypeError",
    "GradclipError",
    "GradclipWarning",
    "NonFiniteError",
    "NotWritableError",
    "ShapeError",
    "TensorTypeError",
    "UnknownNameError",
    "VersionError",
    "counted",
    "message",
    "more",
    "page",
    "shown",
    "with_article",
]


_SIMPLE = (int, float, complex, str, bytes, type(None))
_FEW, _LONG = 10, 60  #: how many elements of a container and characters of a text a message shows


def counted(count: int, noun: str) -> str:
    """A number and its noun.

    >>> counted(1, "norm"), counted(1000, "step"), counted(0, "site")
    ('1 norm', '1,000 steps', '0 sites')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def message(what: str, received: str = "", hint: str = "") -> str:
    """The form of every message.

    >>> print(message("max_norm must not be negative.", "max_norm=-1.0", "use 0 to zero the gradients."))
    max_norm must not be negative.
    Received: max_norm=-1.0
    Hint: use 0 to zero the gradients.
    """
    lines = [what]
    if received:
        lines.append(f"Received: {received}")
    if hint:
        lines.append(f"Hint: {hint}")
    return "\n".join(lines)


def more(code: str) -> str:
    """The command that explains a code. The linter, the migration and the doctor name it: it works without a clone.

    >>> more("GM107")
    'gradclip explain GM107'
    """
    return f"gradclip explain {code}"


def page(name: str) -> str:
    """Where a reader finds a page of the documentation: its address if this is a release, else the name of the file.

    >>> page("slots.md#gpus-and-tpus")
    'the page slots of the documentation, "gpus and tpus"'
    """
    from importlib import metadata

    try:
        told = metadata.metadata("gradclip")
    except metadata.PackageNotFoundError:  # a clone that is not installed
        return _titled(name)
    sources = [url.partition(", ")[2] for url in told.get_all("Project-URL") or () if url.startswith("Source, ")]
    return f"{sources[0]}/blob/v{told['Version']}/docs/{name}" if sources else _titled(name)


def _titled(name: str) -> str:
    file, _, part = name.partition("#")
    text = f"the page {file.removesuffix('.md')} of the documentation"
    return f'{text}, "{part.replace("-", " ")}"' if part else text


def with_article(name: str) -> str:
    """The name of a type in a sentence.

    >>> with_article("list"), with_article("OrderedDict")
    ('a list', 'an OrderedDict')
    """
    return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"


def shown(value: object) -> str:
    """A value as a message shows it: short, and without reading a tensor.

    >>> shown(1.5), shown([1.5, None]), shown([[0.0] * 100] * 3), shown(message), shown(Exception("no"))
    ('1.5', '[1.5, None]', 'a list of 3', 'the function message', 'an object of type builtins.Exception')
    """
    kind = type(value)
    if kind.__module__.startswith("gradclip.") and kind.__name__ == "Rule":
        return repr(value)
    if isinstance(value, (list, tuple, dict, set)):
        parts = (*value, *value.values()) if isinstance(value, dict) else value
        text = _repr(value) if len(value) <= _FEW and all(isinstance(x, _SIMPLE) for x in parts) else ""
        return text if 0 < len(text) <= _LONG else f"{with_article(kind.__name__)} of {len(value)}"
    if isinstance(value, _SIMPLE):
        text = _repr(value) or "a number of more digits than Python prints"
        return text if len(text) <= _LONG else f"{text[:_LONG]}..."
    names = [getattr(value, name, None) for name in ("__qualname__", "__name__")]
    if callable(value) and (texts := [name for name in names if isinstance(name, str)]):
        return f"the {'class' if isinstance(value, type) else 'function'} {texts[0]}"
    return f"an object of type {kind.__module__}.{kind.__qualname__}"


def _repr(value: object) -> str:
    """The repr; "" where there is none, as of an integer of 5,000 digits."""
    try:
        return repr(value)
    except ValueError:
        return ""


class GradclipError(Exception):
    """Anything gradclip refuses. The gradients are as they were before the call."""

    ag_pass_through = True  #: tf.function raises it unchanged; AutoGraph turns other exceptions into a StagingError

    if TYPE_CHECKING:  # no __init__ here: torch.compile cannot trace one that calls Exception's, and would hide the message

        def __init__(self, what: str, received: str = "", hint: str = "", /) -> None: ...

    def __str__(self) -> str:
        return message(*self.args)


class ArgumentError(GradclipError, ValueError):
    """A limit, an order, axes or shapes that cannot be used."""


class ShapeError(ArgumentError, IndexError):
    """Gradients whose shapes do not fit the rule or each other."""


class ArgumentTypeError(GradclipError, TypeError):
    """A limit, an order or axes that are not numbers."""


class TensorTypeError(GradclipError, TypeError, ValueError, AttributeError):
    """An object that is not a gradient, or tensors of two frameworks in one call."""


class DTypeError(GradclipError, TypeError, ValueError, NotImplementedError):
    """A dtype that the arithmetic does not support (``NotImplementedError`` is a ``RuntimeError``, which torch raises)."""


class NotWritableError(GradclipError, TypeError, ValueError, RuntimeError):
    """An in-place clip of a tensor that cannot be written."""


class UnknownNameError(GradclipError, AttributeError):
    """A name that gradclip does not have."""


class VersionError(GradclipError, ImportError):
    """A framework that is older than gradclip works with."""


class NonFiniteError(GradclipError, RuntimeError):
    """The norm is not finite, and the call has ``error_if_nonfinite``."""


class GradclipWarning(UserWarning):
    """A call that is legal and probably a mistake: nothing was clipped, for example."""
