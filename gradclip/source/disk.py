"""The bytes of a source: read with a size limit, decoded like Python does, replaced atomically."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import stat
import tempfile
import tokenize
from dataclasses import dataclass

from gradclip.source.files import opened, reason
from gradclip.source.interrupts import signals_wait

__all__ = ["Content", "FileError", "decode", "read", "replace"]

MEBIBYTE = 1 << 20
#: a syntax tree takes a thousand times as many bytes as its source
LIMITS = {".ipynb": 64 * MEBIBYTE, "": MEBIBYTE}


class FileError(Exception):
    """A file that gradclip cannot read or write; the message is one line."""


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a file."""

    raw: bytes
    text: str  #: without a byte order mark, with the original line ends
    encoding: str
    status: os.stat_result | None = None  #: of the file, at the time of reading

    @property
    def mark(self) -> bytes:
        """The byte order mark, or empty bytes."""
        return codecs.BOM_UTF8 if self.raw.startswith(codecs.BOM_UTF8) else b""

    def encode(self, text: str) -> bytes:
        """The bytes of a changed text, in the encoding of this one.

        Raises:
            FileError: if the encoding cannot represent the text.
        """
        try:
            if self.mark + self.text.encode(self.encoding) != self.raw:  # a stateful encoding has several encodings of a text
                raise FileError(f"not written: {self.encoding} does not reproduce the original bytes")
            new = self.mark + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise FileError(f"not written: {error.object[error.start]!r} cannot be encoded in {self.encoding}") from None
        if not _reads(new, text):
            raise FileError("not written: the coding line would no longer be where Python looks for it")
        return new


def read(path: str) -> Content:
    """Read and decode a file.

    Raises:
        FileError: if the file cannot be read, is too large, or is not text.
    """
    limit = LIMITS.get(os.path.splitext(path)[1], LIMITS[""])
    try:
        with opened(path) as file:
            status = os.fstat(file.fileno())
            raw = file.read(limit + 1)
    except OSError as error:
        raise FileError(f"cannot be read: {reason(error)}") from None
    if len(raw) > limit:
        size = f"{max(status.st_size, len(raw)) / MEBIBYTE:.1f} MiB"
        raise FileError(f"too large: {size}, and the limit is {limit // MEBIBYTE} MiB; --exclude leaves it out")
    return decode(raw, status)


def decode(raw: bytes, status: os.stat_result | None = None) -> Content:
    """Decode like Python does: by the byte order mark, the coding line, else UTF-8.

    Raises:
        FileError: if the bytes cannot be decoded.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        encoding = encoding.removesuffix("-sig")
        return Content(raw, raw.removeprefix(codecs.BOM_UTF8).decode(encoding), encoding, status)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise FileError(f"cannot be decoded: byte 0x{raw[error.start]:02x} in line {line} is not {error.encoding}") from None
    except (SyntaxError, LookupError) as error:  # from detect_encoding; or the codec is not for text
        raise FileError(f"cannot be decoded: {error.args[0]}") from None
    except (UnicodeError, ValueError) as error:  # from the codec: "undefined" decodes nothing
        raise FileError(f"cannot be decoded: {error}") from None


def _reads(raw: bytes, text: str) -> bool:
    try:
        return decode(raw).text == text
    except FileError:
        return False


def replace(path: str, source: Content, new: bytes) -> None:
    """Replace the bytes of a file atomically; a symbolic link stays, and its target is replaced.

    Raises:
        FileError: if the file cannot be written, or changed since it was read; the file is then unchanged.
    """
    with signals_wait():  # a signal waits: no temporary file stays, and the file is the old one or the new one
        _replace(os.path.realpath(path), source, new)


def _replace(target: str, source: Content, new: bytes) -> None:
    try:
        status = os.stat(target)
        if not (stat.S_IMODE(status.st_mode) & 0o222 and os.access(target, os.W_OK)):
            raise FileError("not written: the file is read-only")
        if status.st_nlink > 1:
            raise FileError(f"not written: it has {status.st_nlink} hard links, and a new file would break them")
        handle, temporary = tempfile.mkstemp(
            prefix=f".{os.path.basename(target)[:100]}.", suffix=".tmp", dir=os.path.dirname(target)
        )
        try:
            with open(handle, "wb") as file:
                file.write(new)
                file.flush()
                _keep(status, file.fileno())
                os.fsync(file.fileno())
            _check_unchanged(target, source)
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise FileError(f"not written: {reason(error)}") from None


def _keep(status: os.stat_result, handle: int) -> None:
    """Preserve the owner and the mode of the replaced file."""
    if hasattr(os, "fchown"):
        with contextlib.suppress(PermissionError):  # another user may own a file that we may write
            os.fchown(handle, status.st_uid, status.st_gid)
    if hasattr(os, "fchmod"):
        os.fchmod(handle, stat.S_IMODE(status.st_mode))


def _check_unchanged(target: str, source: Content) -> None:
    with opened(target) as file:
        now, raw = os.fstat(file.fileno()), file.read(len(source.raw) + 1)
    then = source.status
    moved = then is not None and (now.st_dev, now.st_ino) != (then.st_dev, then.st_ino)
    if moved or raw != source.raw:
        raise FileError("not written: it has changed since it was read")
