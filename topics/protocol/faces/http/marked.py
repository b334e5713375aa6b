"""Fields of an append that a record of Kafka's has: `form`, `key`, `time`, `headers`, as a read shows them with a `$`.

A field that does not fit the record is refused: what is taken can be given to a client of Kafka's.
"""

from base64 import b64decode
from binascii import Error
from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol

import msgspec
from msgspec import Raw

from topics.nesting import deep
from topics.protocol.faces.http.decoding import invalid
from topics.protocol.model.marks import Mark
from topics.protocol.model.records import FORMED, HAS_HEADERS, HAS_KEY, Buffer

Form = Literal["text", "base64", "null"]
TIME_MAX: Final = 2**63 - 1
_NULL: Final = Raw(b"null")
_PAIRS: Final = deep(msgspec.json.Decoder(list[tuple[str | dict[str, str], Any]]).decode)
_text: Final = msgspec.json.Encoder().encode


class MarkedBody(Protocol):
    """What of a record's body is looked at here."""

    @property
    def data(self) -> Buffer: ...
    @property
    def tag(self) -> str | None: ...
    @property
    def form(self) -> Form | None: ...
    @property
    def key(self) -> str | None: ...
    @property
    def time(self) -> int | None: ...
    @property
    def headers(self) -> Raw | None: ...


def marks_of(records: Sequence[MarkedBody]) -> list[Mark | None] | None:
    """The marks of some records; None where no record has one.  Raises Rejection: 400."""
    found = [_mark(record, f"$.records[{at}]") for at, record in enumerate(records)]
    return None if found.count(None) == len(found) else found


def metas_of(records: Sequence[MarkedBody], metas: "list[Any]") -> "list[Any]":
    """What each record has as `meta`: its own, else its headers as an object, as far as one can hold them."""
    for at, record in enumerate(records):
        if metas[at] in (None, _NULL) and record.headers is not None:
            metas[at] = meta_of(record.headers)
    return metas


def meta_of(headers: Buffer) -> bytes | None:
    """Headers as an object; None where there are none.  `marks_of` has taken them."""
    pairs = () if headers == _NULL else _PAIRS(headers)
    return _text({_named(name): value for name, value in pairs}) if pairs else None


def _mark(record: MarkedBody, path: str) -> Mark | None:
    form, key, time, headers = record.form, record.key, record.time, record.headers
    headers = None if headers == _NULL else headers
    if form is None and key is None and time is None and headers is None:
        return None
    head, bits = b"", FORMED
    if form is not None:
        _require_form(form, bytes(record.data), f"{path}.data")
        head += b',"$form":"%b"' % form.encode()
    if key is not None:
        if record.tag is not None:
            raise invalid("a record has a tag or a key, and not both", f"{path}.key")
        _require_base64(key, f"{path}.key")
        head += b',"$key":"%b"' % key.encode()
        bits |= HAS_KEY
    if time is not None:
        if not -TIME_MAX - 1 <= time <= TIME_MAX:
            raise invalid("a time has at most 64 bits", f"{path}.time")
        head += b',"$time":%d' % time
    if headers is not None:
        head += b',"$headers":%b' % _headers(headers, f"{path}.headers")
        bits |= HAS_HEADERS
    return Mark(head, bits)


def _require_form(form: Form, data: bytes, path: str) -> None:
    """Raises Rejection: the data are not what the form says."""
    if form == "null":
        if data.strip() != b"null":
            raise invalid("with `form` `null` the data are `null`", path)
        return
    try:
        found = msgspec.json.decode(data, type=str)
        found.encode()
    except (msgspec.DecodeError, UnicodeError):
        raise invalid(f"with `form` `{form}` the data are a string", path) from None
    if form == "base64":
        _require_base64(found, path)


def _require_base64(text: str, path: str) -> None:
    try:
        b64decode(text, validate=True)
    except (Error, ValueError):
        raise invalid("expected base64", path) from None


def _named(name: str | dict[str, str]) -> str:
    """The name of a header as a key of `meta`, as a read shows it."""
    return name if isinstance(name, str) else b64decode(name["$base64"]).decode(errors="replace")


def _headers(raw: Raw, path: str) -> bytes:
    """Pairs of a name and a value: text, bytes as `{"$base64": …}`; a value may be null."""
    try:
        pairs = _PAIRS(raw)
    except msgspec.DecodeError:
        raise invalid("expected a list of pairs of a name and a value", path) from None
    for at, (name, value) in enumerate(pairs):
        _require_part(name, f"{path}[{at}][0]")
        if value is not None:
            _require_part(value, f"{path}[{at}][1]", " null")
    return _text(pairs)


def _require_part(part: Any, path: str, other: str = "") -> None:
    """Raises Rejection: neither text nor bytes."""
    if isinstance(part, str):
        return
    if isinstance(part, dict) and part.keys() == {"$base64"} and isinstance(part["$base64"], str):
        _require_base64(part["$base64"], path)
        return
    raise invalid(f'expected a string,{other} or {{"$base64": ...}}', path)
