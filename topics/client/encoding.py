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
can write, and one that is nested too deeply is encoded again, step by step (`_encode_in_steps`), which
knows the place of each part.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Unpack

import msgspec

from topics.client.decoding import TOO_DEEP
from topics.client.foreign import Hook, hook_of, is_foreign, is_model, json_types
from topics.client.models import NewRecord
from topics.nesting import DEPTH_MAX, deep, depth_of

if TYPE_CHECKING:
    from topics.client.job_options import JobOptions

Default = Callable[[Any], Any]
"""Converts a value that JSON has no form for, or raises `TypeError`."""

AROUND_MAX: Final = 3
"""Levels around a value in the object of a request."""
CONVERSIONS_MAX: Final = 200
"""Of what `default` made, within what `default` made."""
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
        text = _at_once((value, _depth_max(where)))
    except (TypeError, ValueError, RecursionError):
        text = None
    return _encode_in_steps(value, where, default) if text is None else text


def _encode_at_once(asked: tuple[Any, int]) -> bytes | None:
    """The text of a value without faults, of at most so many levels; None where it has one."""
    value, most = asked
    text = _json(value)
    is_sound = is_json(value, most) and (b"null" not in text or not _may_hold_one(value))
    return text if is_sound else None


def _depth_max(where: str) -> int:
    """Levels of a value; the object of a request has values in it."""
    return DEPTH_MAX if where else DEPTH_MAX + AROUND_MAX


_at_once: Final = deep(_encode_at_once)


def _text(value: object, where: str) -> bytes:
    """A tag or a node."""
    if not isinstance(value, str):
        raise TypeError(f"a {where} is text, not {_kind(value)}")
    return encode(value, where)


def is_json(value: Any, most: int = DEPTH_MAX) -> bool:
    """Whether the same value comes back from JSON; fast where it is made of built-in types.

    NaN and infinities are not looked for.

    Args:
        most: Levels that it may have.
    """
    level = [] if type(value) in _SCALARS else [value]
    for depth in range(most):
        if not level:
            return True
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                # One pass in C decides for most values; the loops below are for the others.
                if not _NAMES.issuperset(map(type, value)) and not all(map(_is_name, value)):
                    return False
                _add_others(value.values(), below)
            elif isinstance(value, list | tuple):
                _add_others(value, below)
            elif not _is_leaf(value) or _is_deeper(value, most - depth):
                return False
        level = below
    return not level


def _add_others(values: Iterable[Any], below: list[Any]) -> None:
    """Add the values that are not plain."""
    if not _SCALARS.issuperset(map(type, values)):
        below += [inner for inner in values if type(inner) not in _SCALARS]


def _is_deeper(value: Any, most: int) -> bool:
    """Whether a leaf is nested deeper than that in its JSON."""
    if isinstance(value, str | int | float | None):
        return False
    text = bytes(value) if isinstance(value, msgspec.Raw) else _json(value)
    return depth_of(text, most) > most


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
        if depth_of(content, DEPTH_MAX) > DEPTH_MAX:
            return TOO_DEEP
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return str(error) if content.strip() else "it is empty"
    except RecursionError:
        return TOO_DEEP
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
            if len(path) == _depth_max(where):
                raise ValueError(f"{TOO_DEEP}, at {_place(where, path)}")
            held.add(id(value))
            is_object = isinstance(value, dict)
            parts = iter(value.items()) if isinstance(value, dict) else enumerate(value)
            path.append(_Open(parts, b"}" if is_object else b"]", conversions, id(value)))
            pieces.append(b"{" if is_object else b"[")
        elif (text := _leaf_or_refused(value, where, path, default)) is not None:
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


def _leaf_or_refused(
    value: Any, where: str, path: list[_Open], default: Default | None
) -> bytes | None:
    """As `_leaf`, however deep."""
    try:
        return deep(lambda leaf: _leaf(leaf, where, path, default))(value)
    except RecursionError:
        raise ValueError(f"{TOO_DEEP}, at {_place(where, path)}") from None


def _leaf(value: Any, where: str, path: list[_Open], default: Default | None) -> bytes | None:
    """The text of what is no container; None where JSON has no form for it.

    Raises:
        TypeError, ValueError: JSON has a form for its type, and none for this value.
    """
    if isinstance(value, msgspec.Raw):
        if (fault := why_not_json(value)) is not None:
            raise ValueError(f"{_not_one(fault)}, at {_place(where, path)}")
        return _within(bytes(value), where, path)
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
        elif not _has_fields(value):
            return text
        elif (fault := next(_faulty_texts(value, hook), None)) is not None:
            what = f"{_not_one(fault)}, in {_kind(value)}"
        else:
            return _within(text, where, path)
    except TypeError as error:
        raise TypeError(f"{error}, at {_place(where, path)}") from None
    except UnicodeEncodeError as error:
        raise _half_a_pair(error, f"at {_place(where, path)}") from None
    except ValueError as error:
        what = f"JSON has no form for this {_kind(value)}: {error}"
    raise ValueError(f"{what}, at {_place(where, path, inner)}")


def _within(text: bytes, where: str, path: list[_Open]) -> bytes:
    """The text of a part, which is not nested too deeply where it stands."""
    most = _depth_max(where) - len(path)
    if depth_of(text, most) > most:
        raise ValueError(f"{TOO_DEEP}, at {_place(where, path)}")
    return text


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
