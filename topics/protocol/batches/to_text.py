"""Records of a batch as the text that HTTP's clients read (§3).

A value that is JSON is `data` byte for byte, any other one a string, and `$form` says so: `text` of UTF-8, `base64` of
other bytes, `null` of none.  The key is the tag where it can be one, else `$key` in base64.  Headers are `meta`, and
`$headers`, too, where an object of texts cannot hold them.  `$time` is the producer's time where that is not `$ts`.
"""

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from topics.nesting import deep, may_be_deeper
from topics.protocol.batches.header import Header
from topics.protocol.batches.records import Fields, headers_of, listed
from topics.protocol.model.outline import is_too_deep
from topics.protocol.model.records import FORMED, HAS_HEADERS, HAS_KEY, ONE_LINE, Batch, Buffer

_MANY: Final = deep(msgspec.json.Decoder(list[Raw]).decode)
_ONE: Final = deep(msgspec.json.Decoder(Raw).decode)
_encode: Final = msgspec.json.Encoder().encode
_FIRST: Final = frozenset(b'{["-0123456789tfn \t\r\n')
"""With which a JSON text begins."""
_TRIED_TOGETHER: Final = 256
"""Values whose grammar is verified as one array; of fewer, the others are known sooner where it is not JSON."""


def text_of(
    header: Header,
    data: Buffer,
    *,
    first_seq: int,
    ts_ms: int,
    tag_bytes_max: int = 0,
    tagged: NDArray[np.bool_] | None = None,
) -> tuple[Batch, NDArray[np.int64]]:
    """The records as an append of them would be stored, and the offset of each in its batch.

    Args:
        data: Sound records, unpacked.
        first_seq: Of the record with offset 0.
        ts_ms: When they were appended.
        tag_bytes_max: A longer key is no tag.
        tagged: Where it is known already, whether the key of each offset is a tag.
    """
    raw = bytes(data)
    found = listed(raw, header.records, header.last_delta + 1)
    values = [
        None if size < 0 else raw[at : at + size]
        for at, size in zip(found.value_at, found.value_size, strict=True)
    ]
    forms, datas = _shown(values, one_line=b"\n" not in raw and b"\r" not in raw)
    offsets = np.array(found.offset, np.int64)
    tags, keys = _tags(raw, found, tag_bytes_max, None if tagged is None else tagged[offsets])
    metas, headers = _metas(raw, found)
    times = _times(header, found, ts_ms)
    seqs = [b'{"$seq":%d' % (first_seq + offset) for offset in found.offset]
    start = b',"$ts":%d' % ts_ms
    marks = [
        b"".join((start, *said, b',"data":'))
        for said in zip(forms, keys, times, headers, strict=True)
    ]
    ends = [b"}," if meta is None else b',"meta":' + meta + b"}," for meta in metas]
    pieces: list[Buffer] = [b""] * (4 * len(datas))
    pieces[::4], pieces[1::4], pieces[2::4], pieces[3::4] = seqs, marks, datas, ends
    count = len(datas)
    data_size = np.fromiter(map(len, datas), np.uint32, count)
    size = data_size - np.uint32(1)
    for part in (seqs, marks, ends):
        size += np.fromiter(map(len, part), np.uint32, count)
    form_of = np.full(count, FORMED, np.uint8)
    form_of |= np.fromiter(map(bool, keys), np.bool_, count) * np.uint8(HAS_KEY)
    form_of |= np.fromiter(map(bool, headers), np.bool_, count) * np.uint8(HAS_HEADERS)
    has_meta = metas.count(None) < count
    batch = Batch(
        text=b"".join(pieces),
        ts_ms=ts_ms,
        size=size,
        data_size=data_size,
        meta_size=np.array([0 if m is None else len(m) for m in metas], np.uint32)
        if has_meta
        else None,
        tags=tags if tags.count(None) < count else None,
        form=form_of,
    )
    return batch, offsets


# -- values ----------------------------------------------------------------------------------------------


def _times(header: Header, found: Fields, ts_ms: int) -> list[bytes]:
    """What says the producer's time of each record, where that is not when it was appended."""

    def shown(time_ms: int) -> bytes:
        return b"" if time_ms == ts_ms else b',"$time":%d' % time_ms

    if header.has_append_time:
        return [shown(header.max_ms)] * len(found.offset)
    known = {delta: shown(header.first_ms + delta) for delta in set(found.time_delta)}
    return [known[delta] for delta in found.time_delta]


def _shown(values: Sequence[bytes | None], *, one_line: bool) -> tuple[list[bytes], list[bytes]]:
    """What says the form of each value, and its `data`.

    Args:
        one_line: None of the values has a line end.
    """
    forms = [b""] * len(values)
    datas = [value or b"" for value in values] if one_line else list(map(_as_data, values))
    are_shown = are_json(values)
    if not all(are_shown):
        for at, (value, shown) in enumerate(zip(values, are_shown, strict=True)):
            if not shown:
                forms[at], datas[at] = _formed(value)
    return forms, datas


def _as_data(value: bytes | None) -> bytes:
    """A value that is JSON, in one line."""
    if value is None or (b"\n" not in value and b"\r" not in value):
        return value or b""
    return value.translate(ONE_LINE)


def _formed(value: bytes | None) -> tuple[bytes, bytes]:
    if value is None:
        return b',"$form":"null"', b"null"
    try:
        return b',"$form":"text"', _encode(value.decode())
    except UnicodeDecodeError:
        return b',"$form":"base64"', b'"%b"' % b64encode(value)


def are_json(values: Sequence[bytes | None]) -> list[bool]:
    """Whether each is a JSON text that an append takes as `data`."""
    found = [bool(value) and value[0] in _FIRST for value in values]  # type: ignore[index]
    likely = [at for at, is_likely in enumerate(found) if is_likely]
    for first in range(0, len(likely), _TRIED_TOGETHER):
        part = likely[first : first + _TRIED_TOGETHER]
        texts: list[Any] = [values[at] for at in part]
        if not _all_json(texts):
            for at, text in zip(part, texts, strict=True):
                found[at] = is_json(text)
    if may_be_deeper():
        return [each and not is_too_deep(values[at]) for at, each in enumerate(found)]  # type: ignore[arg-type]
    return found


def _all_json(values: list[bytes]) -> bool:
    """Whether all are: as one array they are as many, and the same bytes."""
    joined = b"[%b]" % b",".join(values)
    try:
        joined.decode()
        read = _MANY(joined)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return [*map(bytes, read)] == values or (
        len(read) == len(values) and all(map(_is_same, read, values))
    )


def _is_same(read: Raw, value: bytes) -> bool:
    """Whether what was read is the value, but for space around it."""
    found = bytes(read)
    return found == value or found == value.strip(b" \t\r\n")


def is_json(value: bytes) -> bool:
    """Whether a value is a JSON text that an append takes as `data`."""
    try:
        value.decode()
        _ONE(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


# -- keys and headers ------------------------------------------------------------------------------------


def is_utf8(key: bytes) -> bool:
    """Whether a key can be a tag, but for its size."""
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def _tags(
    raw: bytes,
    found: Fields,
    tag_bytes_max: int,
    tagged: NDArray[np.bool_] | None,
) -> tuple[list[str | None], list[bytes]]:
    """The tag of each record, and what says its key where that is no tag."""
    tags: list[str | None] = [None] * len(found.key_at)
    keys = [b""] * len(found.key_at)
    for at, (key_at, size) in enumerate(zip(found.key_at, found.key_size, strict=True)):
        if size < 0:
            continue
        key = raw[key_at : key_at + size]
        if tagged[at] if tagged is not None else 0 < size <= tag_bytes_max:
            try:
                tags[at] = key.decode()
                continue
            except UnicodeDecodeError:
                pass
        keys[at] = b',"$key":"%b"' % b64encode(key)
    return tags, keys


def _metas(raw: bytes, found: Fields) -> tuple[list[bytes | None], list[bytes]]:
    """`meta` of each record, and what lists its headers where an object of texts cannot hold them."""
    metas: list[bytes | None] = [None] * len(found.headers)
    lists = [b""] * len(found.headers)
    for at, count in enumerate(found.headers):
        if count:
            metas[at], lists[at] = _meta(headers_of(raw, found.headers_at[at], count))
    return metas, lists


def _meta(headers: Sequence[tuple[bytes, bytes | None]]) -> tuple[bytes, bytes]:
    shown = [(name.decode(errors="replace"), shown_header(value)) for name, value in headers]
    members = dict(shown)
    meta = _encode(members)
    if len(members) == len(headers) and all(
        isinstance(value, str) and name.encode() == own
        for (name, value), (own, _) in zip(shown, headers, strict=True)
    ):
        return meta, b""
    pairs = [(shown_header(name), shown_header(value)) for name, value in headers]
    return meta, b',"$headers":' + _encode(pairs)


def shown_header(value: bytes | None) -> Any:
    """A name or a value of a header: text, or `{"$base64": …}`, or null."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"$base64": b64encode(value).decode()}
