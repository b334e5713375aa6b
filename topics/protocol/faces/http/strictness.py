"""`Prefer: handling=strict` (RFC 7240 §4.4): what nobody would read of a request is refused.

Without it unknown fields and parameters are ignored, so that an old server serves a new client; so they are by a
server with `TOPICS_HANDLING=strict` where a request prefers `handling=lenient`.  The handshake of a WebSocket says
it of all messages to come, in its query where a browser sends no such header.  What a route or a message knows is
what `/v0/openapi.json` says of it.
"""

import re
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Union

import msgspec
from msgspec import Raw

from topics.nesting import deep
from topics.protocol.faces.http.decoding import LARGE_BODY_BYTES, invalid
from topics.protocol.faces.http.large_body import LargeBody
from topics.protocol.faces.http.route import Route
from topics.protocol.faces.http.suggestions import field_types, nearest, struct_in
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import Limits
from topics.protocol.model.records import Buffer

if TYPE_CHECKING:
    from topics.protocol.faces.http.openapi.operation import Operation

LIMITS: Final = Limits()
APPLIED: Final = ((b"preference-applied", b"handling=strict"),)
"""What an answer says of it."""
_HANDLINGS: Final = {b"strict": True, b"lenient": False}
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*?)`(?: - at `(.*)`)?", re.DOTALL)
_ELEMENT: Final = re.compile(r"\[[^]]*\]")


def prefers_strict(prefer: bytes | None) -> bool | None:
    """Whether a `Prefer` asks for it; None where it asks for neither.  Of `handling` given twice, the first counts
    (RFC 7240 §2)."""
    for item in (prefer or b"").split(b","):
        name, _, value = item.partition(b";")[0].partition(b"=")
        if name.strip().lower() == b"handling":
            return _HANDLINGS.get(value.strip().strip(b'"').lower())
    return None


def socket_is_strict(query: Mapping[str, str], *, otherwise: bool) -> bool:
    """Whether the query of a handshake asks for it.

    Raises:
        Rejection: 400, `handling` is another word.
    """
    asked = query.get("handling")
    found = otherwise if asked is None else _HANDLINGS.get(asked.encode())
    if found is None:
        raise invalid("expected strict or lenient", "?handling")
    return found


def require_known_parameters(route: Route, query: Mapping[str, str]) -> None:
    """Raises Rejection: 400, a parameter of the query is none of the route's."""
    known = {each.name for each in _operation(route).parameters if each.place == "query"}
    if route.takes_token:
        known.add("token")
    for name in query:
        if name not in known:
            raise _unknown("parameter", name, f"?{name[:64]}", known)


def require_known_fields(
    route: Route, body: Buffer, limits: Limits = LIMITS, pause: Callable[[], None] = lambda: None
) -> None:
    """The text of `data`, `meta` and tag patterns is not looked at.

    Args:
        pause: Called between the steps in which a large body is read.

    Raises:
        Rejection: 400, a field of the body, or of an object in it, is none that is known.
    """
    kind = _operation(route).body
    if kind is not None:
        _require_known(kind, body, limits, pause)


def require_known_in_message(
    op: str, message: Buffer, limits: Limits = LIMITS, pause: Callable[[], None] = lambda: None
) -> None:
    """As `require_known_fields`, of a message over a WebSocket, whose `op` is one that there is."""
    _require_known(_message(op), message, limits, pause)


def _require_known(
    kind: type[msgspec.Struct], body: Buffer, limits: Limits, pause: Callable[[], None]
) -> None:
    if len(body) > LARGE_BODY_BYTES and "records" in kind.__struct_fields__:
        large = LargeBody(bytes(body), _strict(kind), limits, pause)
        _checked(kind, large.read, "$")
        return
    whole = _checked(kind, lambda: _outline(kind).decode(body), "$")
    # Field by field: of one that comes twice only the last is bounded, and makes objects.
    for field, decoder in _inner(kind).items():
        if text := getattr(whole, field, b""):
            _checked(kind, partial(decoder.decode, text), f"$.{field}")


def _operation(route: Route) -> "Operation":
    # Few requests are strict, and the table of the whole API takes long to import.
    from topics.protocol.faces.http.openapi.operations import OPERATIONS

    return OPERATIONS[route.line]


@cache
def _message(op: str) -> type[msgspec.Struct]:
    """The type of a message: what all have, and what is its own."""
    from topics.protocol.faces.http.openapi.watch import OPERATIONS

    kinds = OPERATIONS["GET /v0/ws"].messages[op]
    hints = {name: hint for kind in kinds for name, hint in field_types(kind).items()}
    return msgspec.defstruct(
        f"{op.capitalize()}Message", [(name, hint, None) for name, hint in hints.items()]
    )


def _checked(kind: type[msgspec.Struct], decode: Callable[[], Any], place: str) -> Any:
    """What a text says; None where it is wrong otherwise, which is said by who reads it.

    Args:
        kind: Of the whole body.
        place: Where in it the text stands.
    """
    try:
        return deep(lambda _: decode())(None)
    except msgspec.ValidationError as error:
        found = _UNKNOWN.fullmatch(str(error))
        if found is None:
            return None
        within = place + (found[2] or "$")[1:]
        known = _fields_at(kind, within)
        raise _unknown("field", found[1], f"{within}.{found[1][:64]}", known) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def _unknown(noun: str, word: str, path: str, known: Iterable[str]) -> Rejection:
    near = nearest(word, known)
    hint = "" if near is None else f", did you mean {near}?"
    detail: dict[str, Any] = {"known": sorted(known)}
    if near is not None:
        detail = {"did_you_mean": near, **detail}
    what = f"unknown {noun} {word[:64]!r}{hint} - at `{path}`"
    return Rejection(ErrorCode.INVALID_REQUEST, what, detail)


@cache
def _outline(kind: type[msgspec.Struct]) -> msgspec.json.Decoder[msgspec.Struct]:
    """The fields of a body as text, and no others."""
    fields = [(name, Raw, Raw()) for name in kind.__struct_fields__]
    made = msgspec.defstruct(f"{kind.__name__}Outline", fields, forbid_unknown_fields=True)
    return msgspec.json.Decoder(made)


@cache
def _inner(kind: type[msgspec.Struct]) -> Mapping[str, msgspec.json.Decoder[Any]]:
    """The fields of a body that hold objects with fields of their own."""
    hints = {name: _strict_hint(hint) for name, hint in field_types(kind).items()}
    return {
        name: msgspec.json.Decoder(hint | None) for name, hint in hints.items() if hint is not Raw
    }


@cache
def _strict(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """A body's type with the same fields, none of them required, and no others."""
    hints = {name: _strict_hint(hint) for name, hint in field_types(kind).items()}
    fields = [(name, Raw if hint is Raw else hint | None, None) for name, hint in hints.items()]
    return msgspec.defstruct(f"Strict{kind.__name__}", fields, forbid_unknown_fields=True)


def _strict_hint(hint: Any) -> Any:
    """The type of a field: structs in it are strict, what has none is text that is skipped."""
    origin, within = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, UnionType):
        strict = {each: _strict_hint(each) for each in within if each is not type(None)}
        if all(made is Raw for made in strict.values()):
            return Raw
        # Beside an object that has fields, what has none keeps its type: no union may hold text that is skipped.
        return Union[(*(each if made is Raw else made for each, made in strict.items()), None)]
    if origin in (list, dict):
        made = _strict_hint(within[-1])
        return Raw if made is Raw else origin[(*within[:-1], made)]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _strict(hint)
    return Raw


def _fields_at(kind: type[msgspec.Struct], path: str) -> list[str]:
    """The names of the fields that an object at a path of a body may have."""
    found: Any = kind
    for name in filter(None, _ELEMENT.sub("", path.removeprefix("$")).split(".")):
        found = struct_in(field_types(found)[name])
    return list(found.__struct_fields__)
