"""The bytes of a source: read with a limit, decoded as Python would, replaced in one piece."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import stat
import tempfile
import tokenize
from dataclasses import dataclass

from gradclip.migrate.files import reason

__all__ = ["FileError", "Source", "decode", "read", "replace"]

MEBIBYTE = 1 << 20
#: a syntax tree takes a thousand times the bytes of its source
LIMITS = {".ipynb": 64 * MEBIBYTE, "": MEBIBYTE}


class FileError(Exception):
    """A file that cannot be read, or cannot be written; one line says why."""


@dataclass(frozen=True, slots=True)
class Source:
    """What was read."""

    raw: bytes
    text: str  #: without a byte order mark, and with the line ends as they are
    encoding: str
    status: os.stat_result | None = None  #: of the file, when it was read

    @property
    def mark(self) -> bytes:
        """The byte order mark, if there is one."""
        return codecs.BOM_UTF8 if self.raw.startswith(codecs.BOM_UTF8) else b""

    def encode(self, text: str) -> bytes:
        """The bytes of a changed text, in the encoding of this one.

        Raises:
            FileError: where the encoding cannot say it.
        """
        try:
            if self.mark + self.text.encode(self.encoding) != self.raw:  # a stateful encoding has several ways to say one thing
                raise FileError(f"not written: {self.encoding} does not give the same bytes again")
            new = self.mark + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise FileError(f"not written: {error.object[error.start]!r} cannot be said in {self.encoding}") from None
        if not _reads(new, text):
            raise FileError("not written: the coding line would no longer be where Python looks for it")
        return new


def read(path: str) -> Source:
    """Read and decode a file.

    Raises:
        FileError: where it cannot be read, is too large, or is not text.
    """
    limit = LIMITS.get(os.path.splitext(path)[1], LIMITS[""])
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            raw = file.read(limit + 1)
    except OSError as error:
        raise FileError(f"cannot be read: {reason(error)}") from None
    if len(raw) > limit:
        size = f"{max(status.st_size, len(raw)) / MEBIBYTE:.1f} MiB"
        raise FileError(f"too large: {size}, and the limit is {limit // MEBIBYTE} MiB; --exclude leaves it out")
    return decode(raw, status)


def decode(raw: bytes, status: os.stat_result | None = None) -> Source:
    """Decode as Python does: by the byte order mark, the coding line, else UTF-8.

    Raises:
        FileError: where that fails.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        encoding = encoding.removesuffix("-sig")
        return Source(raw, raw.removeprefix(codecs.BOM_UTF8).decode(encoding), encoding, status)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise FileError(f"cannot be decoded: byte 0x{raw[error.start]:02x} in line {line} is not {error.encoding}") from None
    except (SyntaxError, LookupError) as error:  # of detect_encoding; a codec that is not for text
        raise FileError(f"cannot be decoded: {error.args[0]}") from None


def _reads(raw: bytes, text: str) -> bool:
    try:
        return decode(raw).text == text
    except FileError:
        return False


def replace(path: str, source: Source, new: bytes) -> None:
    """Put new bytes in a file's place, all or none of them; a symbolic link stays, and its target is replaced.

    Raises:
        FileError: where it cannot be written, or is not what was read any more. Then it is as it was.
    """
    target = os.path.realpath(path)
    try:
        status = os.stat(target)
        if not (stat.S_IMODE(status.st_mode) & 0o222 and os.access(target, os.W_OK)):
            raise FileError("not written: the file is read-only")
        if status.st_nlink > 1:
            raise FileError(f"not written: it has {status.st_nlink} hard links, and would be parted from the others")
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
    """The owner and the mode of the file that is replaced."""
    if hasattr(os, "fchown"):
        with contextlib.suppress(PermissionError):  # of somebody else's file that we may write
            os.fchown(handle, status.st_uid, status.st_gid)
    if hasattr(os, "fchmod"):
        os.fchmod(handle, stat.S_IMODE(status.st_mode))


def _check_unchanged(target: str, source: Source) -> None:
    with open(target, "rb") as file:
        now, raw = os.fstat(file.fileno()), file.read(len(source.raw) + 1)
    then = source.status
    moved = then is not None and (now.st_dev, now.st_ino) != (then.st_dev, then.st_ino)
    if moved or raw != source.raw:
        raise FileError("not written: it has changed since it was read")
