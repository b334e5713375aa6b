"""Messages of any framework as records, names of its queues as names of topics.

Knows no framework and sends nothing.  Invariant: bytes that were encoded are decoded to the same bytes.
"""

import base64
import hashlib
import re
from typing import Final

import msgspec

TAG_BYTES_MAX: Final = 256
"""The longest tag that a server takes by default (§2)."""

_NAMESPACE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")
_OTHER: Final = re.compile(r"[^A-Za-z0-9._-]")


def require_namespace(namespace: str) -> str:
    """The namespace, where a topic's name may begin with it.

    Raises:
        ValueError: It may not.
    """
    if _NAMESPACE.fullmatch(namespace) is None:
        raise ValueError(f"{namespace!r} is no namespace: letters, digits and . _ : - only")
    return namespace


def topic_of(namespace: str, queue_name: str) -> str:
    """The topic of a queue: `dramatiq:default`; a byte that no topic's name has is `:` and two digits.

    The names of two queues are never one topic, because `:` itself is written so, too.
    """
    return f"{namespace}:" + _OTHER.sub(_escaped, queue_name)


def _escaped(found: re.Match[str]) -> str:
    return "".join(f":{byte:02x}" for byte in found[0].encode())


def to_data(encoded: bytes) -> msgspec.Raw | str:
    """The `data` of a record: a JSON object as it is, and all other bytes as base64 in a string."""
    if encoded.startswith(b"{"):
        try:
            msgspec.json.decode(encoded)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # NaN and infinities, say, which Python's json writes
        else:
            return msgspec.Raw(encoded)
    return base64.b64encode(encoded).decode()


def from_data(data: msgspec.Raw) -> bytes:
    """The bytes that `to_data` was given.

    Raises:
        ValueError: The record is neither an object nor base64: another program wrote it.
    """
    raw = bytes(data)
    if raw.startswith(b"{"):
        return raw
    try:
        return base64.b64decode(msgspec.json.decode(raw, type=str), validate=True)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def tag_of(text: str) -> str | None:
    """The text as a tag; None where it is too long for one, or empty."""
    return text if 0 < len(text.encode()) <= TAG_BYTES_MAX else None


def tag_for(key: str) -> str:
    """The tag of a key: the key itself, or a digest where it is too long for a tag."""
    return tag_of(key) or hashlib.sha256(key.encode()).hexdigest()
