"""Values as the JSON of a record: what may be sent, and what is refused before anything is sent.

Owns the rule: a value is sent where the same value comes back from JSON.  What msgspec would
silently write as text or as a list (bytes, a Decimal, a time, a set) is refused with its place, or
becomes what a program's own `default` makes of it.  A Struct, a dataclass or an attrs class names
the types of its fields, so that `Record[T]` reads it back: it is sent, and so is a model of pydantic, or
what is derived from a type of JSON (`foreign`).

Invariant: what `encode` returns is one whole JSON value, whatever it was made of.  msgspec copies a
`msgspec.Raw` as it is, and a text that closes the value around it would write fields and records of
its own, so each is checked to be one value first.

Nearly every value is encoded in C and looked over once.  One with a fault, one that only `default`
can write, and one that is nested deeper than the program's stack has room for is encoded again,
step by step (`_encode_in_steps`), which knows the place of each part and bounds no depth but that
of a value without end.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Unpack

import msgspec

from topics.client.decoding import deep
from topics.client.foreign import Hook, hook_of, is_foreign, is_model, json_types
from topics.client.models import NewRecord

if TYPE_CHECKING:
    from topics.client.job_options import JobOptions

Default = Callable[[Any], Any]
"""Converts a value that JSON has no form for, or raises `TypeError`."""

CONVERSIONS_MAX: Final = 200
"""Of what `default` made, within what `default` made."""
DEPTH_MAX: Final = 10_000
"""Nesting that no server follows (§0.3): far beyond where any parser gives up."""
PLACE_CHARS_MAX: Final = 200

_PLAIN: Final = (
    *("form", "key", "time", "headers", "partition"),
    *("delay_ms", "not_before", "priority", "expires_ms", "group", "unique"),
)
"""Fields of a `NewRecord` that are sent as they are."""
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_NAMES: Final = frozenset({str})
_NOT_FINITE: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
"""The first bytes of a NaN or an infinity in MessagePack.  In the text of a string they cannot
occur; in another number they may."""

_json: Final = msgspec.json.Encoder(enc_hook=json_types).encode


def encode_record(
    value: Any,
    *,
    tag: str | None = None,
    meta: Any = None,
    partition: int | None = None,
    default: Default | None = None,
    **job: "Unpack[JobOptions]",
) -> bytes:
    """A value or a `NewRecord` as an element of `records`; what else is given is for bare values.

    Raises:
        TypeError: JSON has no form for a part of it, and `default` gives none.
        ValueError: It holds a NaN, an infinity, half a surrogate pair, a `msgspec.Raw` that is not
            one JSON value, or itself.
    """
    if not isinstance(value, NewRecord):
        if tag is None and meta is None and partition is None and not job:
            return b'{"data":%b}' % encode(value, "data", default)
        value = NewRecord(value, tag=tag, meta=meta, partition=partition, **job)
    text = b'{"data":%b' % encode(value.data, "data", default)
    if value.tag is not None:
        text += b',"tag":%b' % _text(value.tag, "tag")
    if value.node is not None:
        text += b',"node":%b' % _text(value.node, "node")
    # A record that was read without meta has an empty `msgspec.Raw` there.
    if value.meta is not None and value.meta != msgspec.Raw():
        meta_text = encode(value.meta, "meta", default).strip()
        if meta_text != b"null":
            if not meta_text.startswith(b"{"):
                raise TypeError(f"meta is an object, not {_kind(value.meta)}")
            text += b',"meta":%b' % meta_text
    for name in _PLAIN:
        own = getattr(value, name)
        if own is not None and own != msgspec.Raw():
            text += b',"%b":%b' % (name.encode(), encode(own, name, default))
    return text + b"}"


def encode(value: Any, where: str = "", default: Default | None = None) -> bytes:
    """One JSON value.

    Args:
        where: What the value is, for messages, e.g. "data"; empty for the object of a request.

    Raises:
        TypeError, ValueError: As `encode_record`; the message names the place.
    """
    if isinstance(value, msgspec.Raw) and why_not_json(value) is None:
        return bytes(value)
    try:
        text = _json(value)
        # Looked over when it is encoded: what holds itself has ended in a RecursionError above.
        if is_json(value) and (b"null" not in text or not _may_hold_one(value)):
            return text
    except (TypeError, ValueError, RecursionError):
        pass
    return _encode_in_steps(value, where, default)


def _text(value: object, where: str) -> bytes:
    """A tag or a node."""
    if not isinstance(value, str):
        raise TypeError(f"a {where} is text, not {_kind(value)}")
    return encode(value, where)


def is_json(value: Any) -> bool:
    """Whether the same value comes back from JSON; fast where it is made of built-in types.

    NaN and infinities are not looked for.  A value that refers to itself is walked for ever.
    """
    values: Iterable[Any]
    if type(value) in _SCALARS:
        return True
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            # One pass in C decides for most values; the loops below are for the others.
            if not _NAMES.issuperset(map(type, value)) and not all(map(_is_name, value)):
                return False
            values = value.values()
        elif isinstance(value, list | tuple):
            values = value
        elif not _is_leaf(value):
            return False
        else:
            continue
        if not _SCALARS.issuperset(map(type, values)):
            stack += [inner for inner in values if type(inner) not in _SCALARS]
    return True


def _is_name(name: object) -> bool:
    return isinstance(name, str)


def _is_leaf(value: object) -> bool:
    """A type that JSON has, a class derived from one, such as a member of a StrEnum, a text that is
    JSON, or a class with fields."""
    if isinstance(value, msgspec.Raw):
        return why_not_json(value) is None
    if _has_fields(value):
        # msgspec would write a dataclass of pydantic as any other.
        return not is_model(value) and next(_faulty_texts(value), None) is None
    return isinstance(value, str | int | float | None) or is_foreign(value)


def _has_fields(value: object) -> bool:
    kind = type(value)
    return (
        issubclass(kind, msgspec.Struct)
        or dataclasses.is_dataclass(kind)
        or hasattr(kind, "__attrs_attrs__")
    )


def _faulty_texts(value: Any, hook: Hook = json_types) -> Iterator[str]:
    """What is wrong with each `msgspec.Raw` of a class with fields."""
    texts: list[msgspec.Raw] = []
    _to_builtins(value, hook, texts)
    for text in texts:
        if (fault := why_not_json(text)) is not None:
            yield fault


def _to_builtins(value: Any, hook: Hook, texts: list[msgspec.Raw]) -> Any:
    """A value as msgspec sends it: made of dicts, lists and scalars.  A `msgspec.Raw` goes to `texts`, and is
    None."""

    def convert(part: Any) -> Any:
        return texts.append(part) if isinstance(part, msgspec.Raw) else hook(part)

    return msgspec.to_builtins(value, enc_hook=convert)


def why_not_json(text: msgspec.Raw | bytes) -> str | None:
    """Why a text is not one JSON value in UTF-8 as a server takes it; None where it is."""
    content = bytes(text)
    try:
        if not content.isascii():
            content.decode()
        _raw(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return str(error) if content.strip() else "it is empty"
    except RecursionError:
        return "nested too deeply"
    return None


_raw: Final = deep(msgspec.json.Decoder(msgspec.Raw).decode)


# ------------------------------------------------------------------ step by step


@dataclass(slots=True)
class _Open:
    """An object or an array that is being encoded.

    Attributes:
        parts: What is left of it, each part with its name or index.
        end: The text that closes it.
        conversions: How many conversions by `default` it lies in.
        id: Of the container itself.
        key: Name or index of the part that is being encoded.
        is_begun: A part of it was encoded.
    """

    parts: Iterator[tuple[Any, Any]]
    end: bytes
    conversions: int
    id: int
    key: Any = None
    is_begun: bool = False


def _encode_in_steps(root: Any, where: str, default: Default | None) -> bytes:
    """`encode` without recursion: as deep as the value is, with the place of what is refused."""
    pieces: list[bytes] = []
    path: list[_Open] = []
    held: set[int] = set()
    value, conversions = root, 0
    while True:
        if isinstance(value, dict | list | tuple):
            if id(value) in held:
                raise ValueError(f"a value that holds itself, at {_place(where, path)}")
            if len(path) == DEPTH_MAX:
                raise ValueError(f"nested too deeply, at {_place(where, path)}")
            held.add(id(value))
            is_object = isinstance(value, dict)
            parts = iter(value.items()) if isinstance(value, dict) else enumerate(value)
            path.append(_Open(parts, b"}" if is_object else b"]", conversions, id(value)))
            pieces.append(b"{" if is_object else b"[")
        elif (text := _leaf(value, where, path, default)) is not None:
            pieces.append(text)
        elif default is None and not is_foreign(value):
            raise TypeError(
                f"JSON has no form for {_kind(value)}, at {_place(where, path)}: "
                "convert it, or give default="
            )
        elif conversions == CONVERSIONS_MAX:
            place = _place(where, path)
            raise TypeError(f"default= goes on for ever, or nested too deeply, at {place}")
        else:
            value = _converted(value, default, where, path)
            conversions += 1
            continue
        while path:
            part = next(path[-1].parts, None)
            if part is not None:
                break
            held.discard(path[-1].id)
            pieces.append(path.pop().end)
        else:
            return b"".join(pieces)
        opened = path[-1]
        key, value = part
        if opened.is_begun:
            pieces.append(b",")
        if opened.end == b"}":
            pieces.append(_name(key, where, path[:-1]) + b":")
        opened.key, opened.is_begun = key, True
        conversions = opened.conversions


def _converted(value: Any, default: Default | None, where: str, path: list[_Open]) -> Any:
    """What a foreign value is in JSON, or what `default` makes of another."""
    if not is_foreign(value):
        assert default is not None
        return default(value)
    try:
        return json_types(value, default)
    except (TypeError, ValueError) as error:
        what = f"JSON has no form for this {_kind(value)}: {error}"
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{what}, at {_place(where, path)}") from error


def _leaf(value: Any, where: str, path: list[_Open], default: Default | None) -> bytes | None:
    """The text of what is no container; None where JSON has no form for it.

    Raises:
        TypeError, ValueError: JSON has a form for its type, and none for this value.
    """
    if isinstance(value, msgspec.Raw):
        if (fault := why_not_json(value)) is not None:
            raise ValueError(f"{_not_one(fault)}, at {_place(where, path)}")
        return bytes(value)
    if is_model(value):
        return None
    if not isinstance(value, str | int | float | None) and not _has_fields(value):
        return None
    inner, hook = "", hook_of(default)
    try:
        text = msgspec.json.encode(value, enc_hook=hook) if _has_fields(value) else _json(value)
        number, inner = _not_finite(value, hook) if b"null" in text else (None, "")
        if number is not None:
            what = f"JSON has no form for {number}"
        elif _has_fields(value) and (fault := next(_faulty_texts(value, hook), None)) is not None:
            what = f"{_not_one(fault)}, in {_kind(value)}"
        else:
            return text
    except TypeError as error:
        raise TypeError(f"{error}, at {_place(where, path)}") from None
    except RecursionError:
        what = "nested too deeply"
    except UnicodeEncodeError as error:
        raise _half_a_pair(error, f"at {_place(where, path)}") from None
    except ValueError as error:
        what = f"JSON has no form for this {_kind(value)}: {error}"
    raise ValueError(f"{what}, at {_place(where, path, inner)}")


def _name(name: object, where: str, path: list[_Open]) -> bytes:
    place = _place(where, path)
    if isinstance(name, str):
        try:
            return _json(name)
        except UnicodeEncodeError as error:
            raise _half_a_pair(error, f"in a name, at {place}") from None
    raise TypeError(f"JSON has no names but text: {name!r} ({_kind(name)}), at {place}")


def _half_a_pair(error: UnicodeEncodeError, place: str) -> UnicodeEncodeError:
    """The same error, with the place of the text."""
    reason = f"{error.reason}, {place}"
    return UnicodeEncodeError(error.encoding, error.object, error.start, error.end, reason)


def _not_one(fault: str) -> str:
    return f"a msgspec.Raw is not one JSON value ({fault})"


def _kind(value: object) -> str:
    return type(value).__name__


def _place(where: str, path: list[_Open], inner: str = "") -> str:
    """The place of a part, e.g. `data.a[1].b`; the middle of a long one is left out."""
    steps = (f".{step.key}" if step.end == b"}" else f"[{step.key}]" for step in path)
    place = (where + "".join(steps) + inner).removeprefix(".")
    place = place.encode("utf-8", "backslashreplace").decode()
    if len(place) <= PLACE_CHARS_MAX:
        return place
    half = PLACE_CHARS_MAX // 2
    return f"{place[:half]}…{place[-half:]}"


# ---------------------------------------------------------------------- numbers


def _may_hold_one(value: Any) -> bool:
    """Whether a value may hold a NaN or an infinity, which msgspec writes as null."""
    try:
        return _NOT_FINITE.search(msgspec.msgpack.encode(value, enc_hook=json_types)) is not None
    except OverflowError:
        # MessagePack has no integers beyond 64 bits; the value must be walked.
        return True


def _not_finite(value: Any, hook: Hook) -> tuple[float | None, str]:
    """The first NaN or infinity, with its place in the value; None where there is none."""
    stack = [(_to_builtins(value, hook, []), "")]
    while stack:
        part, where = stack.pop()
        if isinstance(part, dict):
            stack += [(inner, f"{where}.{name}") for name, inner in reversed(part.items())]
        elif isinstance(part, list | tuple):
            stack += [(part[i], f"{where}[{i}]") for i in reversed(range(len(part)))]
        elif isinstance(part, float) and not isfinite(part):
            return part, where
    return None, ""
