"""JSON text in, typed bodies out: it is text, it is JSON, it has the right types.

Owns what a body may cost before anything is known of it.  The text of a body is bounded by the
server (§2), but a byte of it can become a hundred in memory: so of a large body first only the
extent of each field is looked at, and no field that becomes objects may be larger than
`FIELD_BYTES_MAX`.
"""

import re
from codecs import getincrementaldecoder
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw

from topics.nesting import DEPTH_MAX, deep
from topics.protocol.faces.http.suggestions import allowed_values, listed, nearest
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.outline import TooDeep, is_too_deep, place_too_deep
from topics.protocol.model.records import Buffer

LARGE_BODY_BYTES: Final = 256 << 10
"""Beyond this a body is looked over before it is decoded."""
FIELD_BYTES_MAX: Final = 512 << 10
"""Text of one field of a body; a write's `records` have bounds of their own."""
_ENUM_VALUE: Final = re.compile(r"Invalid enum value '(.*)' - at `(.*)`", re.DOTALL)
_HALF_A_PAIR: Final = re.compile(
    rb"(?<!\\)(?:\\\\)*\\u[dD][89abAB][0-9a-fA-F]{2}"
    rb"(?!\\u[dD][c-fC-F]|\\?\Z|\\u[0-9a-fA-F]{0,4}\Z)"
)
"""An escape of a high surrogate that no low one follows, and that the text does not end in."""
_PIECE_BYTES: Final = 256 << 10
_Utf8: Final = getincrementaldecoder("utf-8")
T = TypeVar("T")


class FieldTooLong(Rejection):
    """400: the text of one field exceeds `FIELD_BYTES_MAX`."""

    def __init__(self, field: str, size: int) -> None:
        what = f"{size} bytes exceed {FIELD_BYTES_MAX} - at `$.{field}`"
        super().__init__(ErrorCode.INVALID_REQUEST, what)
        self.field = field


def invalid(what: str, path: str | None = None) -> Rejection:
    """400 `invalid_request`; the message names the path."""
    return Rejection(ErrorCode.INVALID_REQUEST, f"{what} - at `{path}`" if path else what)


def decode(decoder: msgspec.json.Decoder[T], body: Buffer) -> T:
    """The typed body.

    Raises:
        Rejection: 400 that names the path, or the byte.
    """
    if len(body) > LARGE_BODY_BYTES:
        found = _fields(decoder.type, body)
        for field, text in found:
            if len(text) > FIELD_BYTES_MAX:
                raise FieldTooLong(field, len(text))
        # Of a field that comes twice the last counts.  The first one was not bounded, and what is
        # decoded now no longer has it.
        body = _object([(field, text) for field, text in found if text])
    return decode_whole(decoder, body)


def _object(fields: list[tuple[str, Raw]]) -> bytes:
    pieces: list[Any] = []
    for name, text in fields:
        pieces += (b'"%b":' % name.encode(), text, b",")
    return b"".join([b"{", *pieces[:-1], b"}"])


def decode_whole(decoder: msgspec.json.Decoder[T], body: Buffer) -> T:
    """`decode` for a type that bounds the objects it makes by itself."""
    require_utf8(body)
    return decoded(decoder.type, body, lambda: decoder.decode(body))


def decoded(kind: Any, body: Buffer, decode: Callable[[], T]) -> T:
    """What a decoder makes of a body.

    Raises:
        Rejection: 400 that names the path, or the byte.
    """
    try:
        return deep(lambda _: decode())(None)
    except msgspec.ValidationError as error:
        raise _mistyped(str(error), kind) from None
    except RecursionError as error:
        raise invalid(f"the body is {too_deep(error, body)}") from None
    except msgspec.DecodeError as error:
        raise invalid(f"the body is not JSON: {why_not_json(error, body)}") from None


def too_deep(error: RecursionError, text: Buffer) -> str:
    """What is wrong with a text that is nested deeper than a decoder follows."""
    place = error.place if isinstance(error, TooDeep) else place_too_deep(bytes(text))
    where = "" if place is None else f" (byte {place})"
    return f"nested more than {DEPTH_MAX} levels deep{where}"


def require_depth(text: Buffer, path: str) -> None:
    """Refuse a value that is nested deeper than every reader follows.

    Raises:
        Rejection: 400 that names the path.
    """
    if len(text) > 2 * DEPTH_MAX and is_too_deep(bytes(text)):
        raise invalid(f"nested more than {DEPTH_MAX} levels deep", path)


def why_not_json(error: Exception, body: Buffer) -> str:
    """What the decoder says; but it calls truncated what is empty, and half a surrogate pair near
    the end."""
    if isinstance(error, RecursionError):
        return too_deep(error, body)
    said = str(error)
    if said == "Input data was truncated":
        if not body:
            return "it is empty"
        if _HALF_A_PAIR.search(bytes(body[-32:])):
            return "an escaped surrogate has no other half"
    return said


def _mistyped(message: str, kind: Any) -> Rejection:
    """The refusal for a value of a wrong type; of an enum it lists what is allowed."""
    found = _ENUM_VALUE.fullmatch(message)
    allowed = allowed_values(kind, found[2]) if found is not None else []
    if found is None or not allowed:
        return invalid(message)
    detail: dict[str, Any] = {"allowed": allowed}
    if (near := nearest(found[1], allowed)) is not None:
        detail["did_you_mean"] = near
    return Rejection(
        ErrorCode.INVALID_REQUEST,
        f"invalid value '{found[1]}', expected {listed(allowed)} - at `{found[2]}`",
        detail,
    )


def require_utf8(body: Buffer, pause: Callable[[], None] | None = None) -> None:
    """A large body in pieces: as one text it would take up to four times its bytes.

    Args:
        pause: Called between two pieces; None: the body is not large.
    """
    if pause is None and isinstance(body, bytes) and body.isascii():
        return
    decoder = _Utf8()
    view = memoryview(body)
    at = held = 0
    try:
        while at < len(view):
            piece = view[at : at + _PIECE_BYTES]
            decoder.decode(piece, at + len(piece) == len(view))
            at += len(piece)
            if pause is not None:
                pause()
            held = len(decoder.getstate()[0])
    except UnicodeDecodeError as error:
        raise invalid(f"the body is not UTF-8 (byte {at - held + error.start})") from None


def _fields(kind: Any, body: Buffer) -> list[tuple[str, Raw]]:
    """The name and the text of every field of a type that a body has."""
    found = decode_whole(_lookover(kind), body)
    return [(name, getattr(found, name)) for name in found.__struct_fields__]


@cache
def _lookover(kind: type[msgspec.Struct]) -> msgspec.json.Decoder[msgspec.Struct]:
    fields = [(name, Raw, Raw()) for name in kind.__struct_fields__]
    made = msgspec.defstruct(
        f"{kind.__name__}Lookover",
        fields,
        forbid_unknown_fields=kind.__struct_config__.forbid_unknown_fields,
    )
    return msgspec.json.Decoder(made)
