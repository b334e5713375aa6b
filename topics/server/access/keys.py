"""API keys as they are configured, and as they are kept: digests, scopes, prefixes (§0.2).

Owns the syntax of an entry, `SECRET[:SCOPES[:PREFIXES]]`, and the one place where secrets are read.
What leaves this module holds SHA-256 digests only; the buffer that a file was read into is
overwritten.  A refusal says which entry is wrong and why, and never a word of its secret.

Invariant: no key is granted more than its entry says.  What is malformed is refused as a whole.
"""

import os
import re
import stat
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from topics.protocol.model.access import SCOPES, Scope
from topics.trust import refusal_of

DIGEST_MARK: Final = b"sha256="
"""Before a digest in hexadecimal, which an entry may hold in place of the secret."""
FILE_BYTES_MAX: Final = 1 << 20
BLANK: Final = b" \t\r"

_WORDS: Final[dict[str, frozenset[Scope]]] = {
    "read": frozenset({"read"}),
    "write": frozenset({"write"}),
    "delete": frozenset({"delete"}),
    "admin": frozenset({"admin"}),
    "r": frozenset({"read"}),
    "w": frozenset({"write"}),
    "d": frozenset({"delete"}),
    "a": frozenset({"admin"}),
    "rw": frozenset({"read", "write"}),
}
_DIGEST: Final = re.compile(rb"[0-9a-fA-F]{64}")
_PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}")


class BadKeys(Exception):
    """Keys that cannot be used: one line that names the setting and the entry (exit code 2)."""


class Entry(msgspec.Struct, frozen=True):
    """One key, without its secret.

    Attributes:
        prefixes: Empty: any name.
    """

    digest: bytes
    scopes: frozenset[Scope]
    prefixes: tuple[str, ...]

    @property
    def text(self) -> str:
        """As it may be configured, with the digest in place of the secret."""
        text = DIGEST_MARK.decode() + self.digest.hex()
        scopes = "" if self.scopes == SCOPES else "+".join(s for s in _WORDS if s in self.scopes)
        if self.prefixes:
            return f"{text}:{scopes}:{'|'.join(self.prefixes)}"
        return f"{text}:{scopes}" if scopes else text


def parse_line(buffer: bytearray, first: int, end: int, where: str) -> list[Entry]:
    """The comma-separated entries of `buffer[first:end]`; spaces around them do not count.

    Raises:
        BadKeys: One is malformed.
    """
    entries = []
    for number in range(1, buffer.count(b",", first, end) + 2):
        comma = buffer.find(b",", first, end)
        last = end if comma < 0 else comma
        entries.append(_entry(buffer, first, last, f"{where}, entry {number}"))
        first = last + 1
    return entries


def _entry(buffer: bytearray, first: int, end: int, where: str) -> Entry:
    while first < end and buffer[first] in BLANK:
        first += 1
    while first < end and buffer[end - 1] in BLANK:
        end -= 1
    colon = buffer.find(b":", first, end)
    secret_end = end if colon < 0 else colon
    digest = _digest(buffer, first, secret_end, where)
    # Behind the secret there is nothing to hide from the heap.
    rest = bytes(buffer[secret_end + 1 : end])
    try:
        scopes, _, prefixes = rest.decode("ascii").partition(":")
    except UnicodeDecodeError:
        raise BadKeys(f"{where}: scopes and prefixes are ASCII") from None
    return Entry(digest, _scopes(scopes, where), _prefixes(prefixes, where))


def _digest(buffer: bytearray, first: int, end: int, where: str) -> bytes:
    if first == end:
        raise BadKeys(f"{where}: the secret is empty")
    with memoryview(buffer) as whole, whole[first:end] as secret:
        if not all(0x21 <= byte <= 0x7E for byte in secret):
            raise BadKeys(f"{where}: a secret is of visible ASCII, or no header could carry it")
        if buffer.startswith(DIGEST_MARK, first, end):
            digits = bytes(secret[len(DIGEST_MARK) :])
            if not _DIGEST.fullmatch(digits):
                raise BadKeys(f"{where}: sha256= is followed by 64 hexadecimal digits")
            return bytes.fromhex(digits.decode())
        return sha256(secret).digest()


def _scopes(text: str, where: str) -> frozenset[Scope]:
    """An empty field means all scopes."""
    if not text:
        return SCOPES
    found: frozenset[Scope] = frozenset()
    for word in text.split("+"):
        if word not in _WORDS:
            raise BadKeys(
                f"{where}: expected scopes out of read, write, delete and admin, joined by +"
            )
        found |= _WORDS[word]
    return found


def _prefixes(text: str, where: str) -> tuple[str, ...]:
    """An empty field means any name."""
    if not text:
        return ()
    prefixes = text.split("|")
    if not all(map(_PREFIX.fullmatch, prefixes)):
        raise BadKeys(f"{where}: expected beginnings of names, joined by |, none of them empty")
    return tuple(prefixes)


# ---------------------------------------------------------------------- settings


class KeySource(msgspec.Struct, frozen=True):
    """Where a server's keys come from.

    Attributes:
        fixed: Those of `TOPICS_API_KEYS`, which stay as long as the process.
        path: `TOPICS_API_KEYS_FILE`, which is read again on request.
    """

    fixed: Sequence[Entry]
    path: Path | None

    def read(self) -> list[Entry]:
        """*Blocking.* All keys as they are configured now.

        Raises:
            BadKeys: The file cannot be read, an entry is malformed, or a secret is there twice.
        """
        entries = [*self.fixed, *(() if self.path is None else _read_file(self.path))]
        if len({entry.digest for entry in entries}) < len(entries):
            raise BadKeys(f"{self._names}: the same secret is there twice")
        return entries

    @property
    def _names(self) -> str:
        names = ["TOPICS_API_KEYS"] if self.fixed else []
        return " and ".join([*names, *([] if self.path is None else [_file(self.path)])])


def source_of(text: str | None, path: Path | None) -> KeySource | None:
    """The keys that the settings name; None where they name none, and a server is open.

    Raises:
        BadKeys: An entry of `text` is malformed.
    """
    if text is None and path is None:
        return None
    fixed: Iterable[Entry] = ()
    if text is not None:
        buffer = bytearray(text.encode("utf-8", "surrogateescape"))
        fixed = parse_line(buffer, 0, len(buffer), "TOPICS_API_KEYS")
        _wipe(buffer)
    return KeySource(tuple(fixed), path)


def _read_file(path: Path) -> list[Entry]:
    """The entries of a file: lines that are blank, or begin with #, do not count."""
    buffer = bytearray(FILE_BYTES_MAX + 1)
    try:
        size = _read_into(path, buffer)
        if size > FILE_BYTES_MAX:
            raise BadKeys(f"{_file(path)}: it is larger than {FILE_BYTES_MAX} bytes")
        entries = list(_lines(buffer, size, _file(path)))
    except OSError as error:
        raise BadKeys(f"{_file(path)}: {error.strerror}") from None
    finally:
        _wipe(buffer)
    if not entries:
        raise BadKeys(f"{_file(path)}: it holds no key")
    return entries


def _read_into(path: Path, buffer: bytearray) -> int:
    # Not a pipe or a device, which could not be read again and could block for ever.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise BadKeys(f"{_file(path)}: it is not a regular file")
        if (reason := refusal_of(path, status)) is not None:
            raise BadKeys(f"{_file(path)}: {reason}")
        size = 0
        with memoryview(buffer) as view:
            while size < len(buffer):
                with view[size:] as room:
                    read = os.readv(handle, [room])
                if not read:
                    break
                size += read
        return size
    finally:
        os.close(handle)


def _lines(buffer: bytearray, size: int, name: str) -> Iterable[Entry]:
    first = number = 0
    while first < size:
        number += 1
        newline = buffer.find(b"\n", first, size)
        end = size if newline < 0 else newline
        begin = first
        while begin < end and buffer[begin] in BLANK:
            begin += 1
        if begin < end and buffer[begin] != ord("#"):
            yield from parse_line(buffer, begin, end, f"{name}, line {number}")
        first = end + 1


def _file(path: Path) -> str:
    return f"TOPICS_API_KEYS_FILE {path}"


def _wipe(buffer: bytearray) -> None:
    buffer[:] = bytes(len(buffer))
