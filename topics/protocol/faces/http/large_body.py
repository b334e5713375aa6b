"""The body of a large write, decoded in steps.

A body may have 64 MiB, which a decoder would read in one call, and keep the interpreter meanwhile.  Owns
how such a body is taken apart: first groups of whole records, as long as a group can be told by how the
first record begins; from there on by an outline (`model.outline`).  What nobody reads is bounded here, and
so is a record that no limit allows: both are refused before they are decoded.

Invariants: what is returned is what one call of a decoder would return, and what is refused for its text
or its types it would refuse; no step decodes much more than `STEP_BYTES`, but of a single text.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from topics.nesting import deep
from topics.protocol.faces.http.decoding import FIELD_BYTES_MAX, FieldTooLong, invalid, why_not_json
from topics.protocol.faces.http.suggestions import field_types, struct_in
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import Limits
from topics.protocol.model.outline import (
    AROUND_MAX,
    STEP_BYTES,
    Outline,
    Unbalanced,
    closed,
    opened,
)

FIELDS_MAX: Final = 1000
"""Fields of a large body, whether they are known or not."""
UNKNOWN_BYTES_MAX: Final = 64 << 10
"""Text of a field of a record, in a large body, that nobody reads."""
SOON_BYTES: Final = 1 << 20
"""A record of less text is looked at to its end: that it is no JSON comes before its being too large."""
_SLACK_BYTES: Final = 64 << 10
"""What a record may have beside its values: names, white space, fields that nobody knows."""
_ESCAPED_BYTES: Final = 6
"""What one byte may take in JSON text."""
_SPACE: Final = b" \t\n\r"
_HEAD: Final = re.compile(rb'[ \t\n\r]*{[ \t\n\r]*"records"[ \t\n\r]*:[ \t\n\r]*\[')
_FIRST: Final = re.compile(rb'[ \t\n\r]*({[ \t\n\r]*"[a-z_]+"[ \t\n\r]*:)')
_NAME: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BYTE: Final = re.compile(r"(.*) \(byte (\d+)\)", re.DOTALL)
_ELEMENT: Final = re.compile(r"(.*) - at `\$\[(\d+)\](.*)`", re.DOTALL)
_MEMBER: Final = re.compile(r"(.*) - at `\$(.*)`", re.DOTALL)


def batch_too_large(limits: Limits) -> Rejection:
    return Rejection(
        ErrorCode.BATCH_TOO_LARGE,
        f"the batch exceeds {limits.max_batch_records} records",
        {"limit": limits.max_batch_records},
    )


class LargeBody:
    """One body that is decoded in steps.

    Args:
        body: JSON text in UTF-8.
        kind: The type of a body with `records`.
        pause: Called between two steps: it lets others have the interpreter, where that is due.
    """

    def __init__(
        self, body: bytes, kind: type[msgspec.Struct], limits: Limits, pause: Callable[[], None]
    ) -> None:
        self._body = body
        self._limits = limits
        self._pause = pause
        self._kind = kind
        element = struct_in(field_types(kind)["records"])
        self._element = element
        self._fields, self._members = _part_of(kind), _part_of(element)
        self._elements: msgspec.json.Decoder[Any] = _list_of(element)
        self._record_bytes_max = (
            max(limits.max_record_bytes, SOON_BYTES)
            + limits.max_meta_bytes
            + _ESCAPED_BYTES * (limits.max_tag_bytes + limits.max_node_bytes)
            + _SLACK_BYTES
        )
        self._outline = Outline(b"")

    def read(self) -> Any:
        """The body, of its type.

        Raises:
            msgspec.ValidationError, msgspec.DecodeError, RecursionError: As the decoder's, with places
                in the whole body.
            Rejection: Too many records; a record, or what nobody reads, is too long.
        """
        body = self._body
        found: dict[str, Any] = {}
        head = _HEAD.match(body, 0, STEP_BYTES)
        if head is not None:
            records: list[Any] = []
            begin = self._whole_groups(head.end() - 1, records)
            self._look_over(begin + 1, b"{[", len(records))
        else:
            begin = self._begin(-1, b"{", "object")
            self._look_over(begin, b"", 0)
        for first, last in self._spans(1, begin, self._end(len(body), b"}")):
            if first == begin and head is not None:
                self._read_records(first, self._end(last, b"]"), records)
                found["records"] = records
            elif last - first <= STEP_BYTES or self._name(first)[0] != "records":
                found.update(self._part(self._fields, first, last, ""))
            else:
                found["records"] = self._list(first, last)
        return self._made(self._kind, found, "")

    # ------------------------------------------------------------------ the records

    def _whole_groups(self, begin: int, records: list[Any]) -> int:
        """Decode what begins with records that look like the first; returns the place of the bracket or
        comma behind which the rest begins.

        A group is cut where a record seems to begin.  It is one if it decodes as a list of records:
        then the comma behind it stands between two of them.
        """
        body = self._body
        first = _FIRST.match(body, begin + 1, begin + STEP_BYTES)
        while first is not None and len(body) - begin > STEP_BYTES:
            place = body.rfind(first[1], begin + 1, begin + STEP_BYTES)
            comma = body.rfind(b",", begin + 1, max(place, begin + 1))
            if comma < 0 or body[comma + 1 : place].strip(_SPACE):
                break
            try:
                group = self._elements.decode(b"[%b]" % body[begin + 1 : comma])
            except (msgspec.DecodeError, RecursionError):
                break
            records += group
            if len(records) >= self._limits.max_batch_records:
                raise batch_too_large(self._limits)
            begin = comma
            self._pause()
        return begin

    def _list(self, first: int, last: int) -> list[Any]:
        """The records of the member of the body in `[first, last)`."""
        records: list[Any] = []
        value = self._begin(self._name(first)[1], b"[", "array", ".records")
        self._read_records(value, self._end(last, b"]"), records)
        return records

    def _read_records(self, begin: int, end: int, records: list[Any]) -> None:
        """Add the records between the bracket or comma at `begin` and the bracket at `end`."""
        for first, last in self._spans(2, begin, end):
            if last - first <= STEP_BYTES:
                records += self._group(first, last, len(records))
            else:
                records.append(self._record(first, last, f".records[{len(records)}]"))

    def _record(self, first: int, last: int, path: str) -> Any:
        begin = self._begin(first, b"{", "object", path)
        found: dict[str, Any] = {}
        types = field_types(self._element)
        for place, behind in self._spans(3, begin, self._end(last, b"}")):
            if behind - place <= STEP_BYTES:
                found.update(self._part(self._members, place, behind, path))
                continue
            name, value = self._name(place)
            if types.get(name) is Raw:
                found[name] = self._text(value, behind)
            elif name in types or self._element.__struct_config__.forbid_unknown_fields:
                found.update(self._part(self._members, place, behind, path))
            elif behind - place > UNKNOWN_BYTES_MAX:
                what = f"{behind - place} bytes exceed {UNKNOWN_BYTES_MAX}, and it is no field of a record"
                raise invalid(what, f"${path}.{name[:64]}")
            else:
                self._text(value, behind)
        return self._made(self._element, found, path)

    def _made(self, kind: type[msgspec.Struct], found: dict[str, Any], path: str) -> Any:
        for field in msgspec.structs.fields(kind):
            if field.required and field.name not in found:
                what = f"Object missing required field `{field.name}`"
                raise msgspec.ValidationError(what + _at(path))
        return kind(**found)

    def _text(self, colon: int, end: int) -> Raw:
        """A value of a record's field, checked in steps and kept as text."""
        begin, end = self._skip_space(colon + 1), self._trimmed(end)
        outline = self._outline
        at, stack = begin, b""
        for n in range(bisect_right(outline.cuts, begin), bisect_left(outline.cuts, end)):
            place, within = outline.cuts[n], outline.stacks[n][AROUND_MAX:]
            if self._body[self._trimmed(place) - 1] in b"[{":
                raise _nothing(place)  # the brackets that are added would make it an empty one
            self._check(at, place, stack, within)
            self._pause()
            at, stack = place, within
        self._check(at, end, stack, b"")
        return Raw(self._body[begin:end])

    def _check(self, begin: int, end: int, before: bytes, behind: bytes) -> None:
        """A part of a value is JSON between the brackets that are open at its ends."""
        front = opened(before)
        self._decode(
            _ANY, b"%b%b%b" % (front, self._body[begin:end], closed(behind)), begin - len(front)
        )

    # ------------------------------------------------------------------ cuts

    def _look_over(self, begin: int, stack: bytes, known: int) -> None:
        """Make the outline, and refuse what is too long before it is decoded.

        Args:
            known: Records before `begin`, where that lies within the records.
        """
        outline = self._outline = Outline(self._body, begin, stack)
        name, member = ("records", begin - 1) if stack else ("", begin)
        fields = outline.commas[1]
        while not outline.is_done:
            seen = len(fields)
            try:
                outline.step()
            except Unbalanced:
                raise msgspec.DecodeError("JSON is malformed: brackets do not match") from None
            self._pause()
            if outline.counts[1] >= FIELDS_MAX:
                raise invalid(f"the body has more than {FIELDS_MAX} fields")
            for end in fields[seen:]:
                self._bound_field(name, member, end)
                name, member, known = "", end, 0
            name = self._bound_field(name, member, outline.looked_at)
            if name == "records":
                self._bound_records(member, known)
        if outline.is_open:
            raise msgspec.DecodeError("Input data was truncated")

    def _bound_field(self, name: str, begin: int, end: int) -> str:
        """Refuse a field that is too long; returns its name, where that may matter."""
        if not name and end - begin > STEP_BYTES:
            name = self._name(begin)[0]
        if name not in ("", "records") and end - begin > FIELD_BYTES_MAX:
            raise FieldTooLong(name[:64], end - begin)
        return name

    def _bound_records(self, begin: int, known: int) -> None:
        """Refuse too many records, and one that is too long, of those from `begin`."""
        outline, limits = self._outline, self._limits
        count = known + outline.counts[2]
        if count >= limits.max_batch_records:
            raise batch_too_large(limits)
        begin = max([begin, *outline.commas[2][-1:]])
        if outline.looked_at - begin > self._record_bytes_max:
            raise Rejection(
                ErrorCode.RECORD_TOO_LARGE,
                f"a record exceeds {limits.max_record_bytes} bytes - at `$.records[{count}]`",
                {"limit": limits.max_record_bytes},
            )

    def _spans(self, depth: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """What lies between the bracket or comma at `begin` and the bracket at `end`, cut at commas of
        `depth`: each a single element or member, or short.  A span begins at its bracket or comma."""
        commas = self._outline.commas[depth]
        places = [*commas[bisect_right(commas, begin) : bisect_left(commas, end)], end]
        if len(places) == 1 and self._is_blank(begin, end):
            return
        for place in places:
            if self._is_blank(begin, place):
                raise _nothing(place)
            yield begin, place
            self._pause()
            begin = place

    def _is_blank(self, begin: int, end: int) -> bool:
        return self._skip_space(begin + 1) >= end

    def _name(self, begin: int) -> tuple[str, int]:
        """The name of the member behind the bracket or comma at `begin`, and the place of its colon."""
        begin = self._skip_space(begin + 1)
        found = _NAME.match(self._body, begin, begin + STEP_BYTES)
        colon = begin if found is None else self._skip_space(found.end())
        if found is None or self._body[colon : colon + 1] != b":":
            raise msgspec.DecodeError(f"JSON is malformed: expected a name (byte {begin})")
        name: str = self._decode(_NAMES, found[0], begin)
        return name, colon

    def _begin(self, before: int, bracket: bytes, noun: str, path: str = "") -> int:
        """The place of the bracket with which the value behind `before` begins."""
        begin = self._skip_space(before + 1)
        first = self._body[begin : begin + 1]
        if first == bracket:
            return begin
        if not first:
            raise msgspec.DecodeError("Input data was truncated")
        kind = _KINDS.get(first)
        if kind is None:
            raise msgspec.DecodeError(f"JSON is malformed: invalid character (byte {begin})")
        raise msgspec.ValidationError(f"Expected `{noun}`, got `{kind}`{_at(path)}")

    def _end(self, end: int, bracket: bytes) -> int:
        """The place of the bracket with which the value before `end` ends."""
        last = self._trimmed(end) - 1
        if self._body[last : last + 1] != bracket:
            raise msgspec.DecodeError(f"JSON is malformed: expected a bracket (byte {last})")
        return last

    def _skip_space(self, begin: int) -> int:
        """The place of the first byte from `begin` that is no white space."""
        while text := self._body[begin : begin + STEP_BYTES]:
            if kept := text.lstrip(_SPACE):
                return begin + len(text) - len(kept)
            begin += len(text)
            self._pause()
        return begin

    def _trimmed(self, end: int) -> int:
        """`end`, less the white space before it, which something stands before."""
        while not (kept := self._body[max(end - STEP_BYTES, 0) : end].rstrip(_SPACE)):
            end -= STEP_BYTES
            self._pause()
        return max(end - STEP_BYTES, 0) + len(kept)

    # ------------------------------------------------------------------ decoders

    def _part(
        self, decoder: msgspec.json.Decoder[Any], first: int, last: int, path: str
    ) -> dict[str, Any]:
        """The members in a span."""
        try:
            found = self._decode(decoder, b"{%b}" % self._body[first + 1 : last], first)
        except msgspec.ValidationError as error:
            said = _MEMBER.fullmatch(str(error))
            what, within = (str(error), "") if said is None else (said[1], said[2])
            raise msgspec.ValidationError(what + _at(path + within)) from None
        values = ((name, getattr(found, name)) for name in found.__struct_fields__)
        return {name: value for name, value in values if value is not UNSET}

    def _group(self, first: int, last: int, known: int) -> list[Any]:
        """The records in a span, of which `known` come before."""
        try:
            found: list[Any] = self._decode(
                self._elements, b"[%b]" % self._body[first + 1 : last], first
            )
        except msgspec.ValidationError as error:
            said = _ELEMENT.fullmatch(str(error))
            assert said is not None
            path = f".records[{known + int(said[2])}]{said[3]}"
            raise msgspec.ValidationError(said[1] + _at(path)) from None
        return found

    def _decode(self, decoder: msgspec.json.Decoder[Any], text: bytes, begin: int) -> Any:
        """Decode `text`; an error names the place that it has in the body, where `text` begins at
        `begin`."""
        try:
            return deep(decoder.decode)(text)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError as error:
            said = _BYTE.fullmatch(str(error))
            if said is None:
                raise msgspec.DecodeError(why_not_json(error, text)) from None
            raise msgspec.DecodeError(f"{said[1]} (byte {begin + int(said[2])})") from None


_ANY: Final = msgspec.json.Decoder(Raw)
_NAMES: Final = msgspec.json.Decoder(str)
_KINDS: Final = {
    b"{": "object",
    b"[": "array",
    b'"': "str",
    b"t": "bool",
    b"f": "bool",
    b"n": "null",
    **{b"%c" % each: "int" for each in b"-0123456789"},
}


def _at(path: str) -> str:
    return f" - at `${path}`" if path else ""


def _nothing(place: int) -> msgspec.DecodeError:
    return msgspec.DecodeError(f"JSON is malformed: expected a value or a name (byte {place})")


@cache
def _list_of(element: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(list[element])  # type: ignore[valid-type]


@cache
def _part_of(kind: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    """The same fields, of which any may be missing."""
    fields = [(each.name, each.type, UNSET) for each in msgspec.structs.fields(kind)]
    made = msgspec.defstruct(
        f"{kind.__name__}Part",
        fields,
        forbid_unknown_fields=kind.__struct_config__.forbid_unknown_fields,
    )
    return msgspec.json.Decoder(made)
