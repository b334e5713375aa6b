"""A VARIANT as the JSON text that Spark writes of it.

Owns the reading of Spark's binary form (the variant encoding of Parquet) and the text of each of its
types.  PySpark's own `toJson` writes a float with digits that it has not, and NaN as no JSON at all.
"""

import base64
import uuid
from datetime import tzinfo
from decimal import Context, Decimal
from itertools import pairwise
from json.encoder import encode_basestring as escaped
from struct import unpack_from
from typing import Final

import numpy as np

from topics.spark.java_texts import clock, day, number, offset_s

_INTEGERS: Final = {3: "<b", 4: "<h", 5: "<i", 6: "<q"}
_DECIMALS: Final = {8: 4, 9: 8, 10: 16}
"""Type -> bytes of its digits."""
_TEXT: Final = 16
_EXACT: Final = Context(prec=80)


def variant_text(value: bytes, metadata: bytes, zone: tzinfo) -> str:
    """The text of a value.

    Args:
        zone: Of its times.

    Raises:
        ValueError: A type that Spark does not write.
    """
    return _text(value, 0, _names(metadata), zone)


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _names(metadata: bytes) -> list[str]:
    """The names of objects' members, as JSON."""
    size = (metadata[0] >> 6) + 1
    count = _number(metadata, 1, size)
    ends = [_number(metadata, 1 + size * (n + 1), size) for n in range(count + 1)]
    begin = 1 + size * (count + 2)
    spans = pairwise(ends)
    return [escaped(metadata[begin + lo : begin + hi].decode()) for lo, hi in spans]


def _text(value: bytes, at: int, names: list[str], zone: tzinfo) -> str:
    kind, info = value[at] & 3, value[at] >> 2
    match kind:
        case 1:
            return escaped(value[at + 1 : at + 1 + info].decode())
        case 2:
            return _object(value, at, names, zone)
        case 3:
            return _array(value, at, names, zone)
    return _scalar(value, at + 1, info, zone)


def _object(value: bytes, at: int, names: list[str], zone: tzinfo) -> str:
    info = value[at] >> 2
    offset_size, id_size = (info & 3) + 1, (info >> 2 & 3) + 1
    count_size = 4 if info >> 4 & 1 else 1
    count = _number(value, at + 1, count_size)
    ids = at + 1 + count_size
    offsets = ids + count * id_size
    data = offsets + (count + 1) * offset_size
    members = [
        f"{names[_number(value, ids + n * id_size, id_size)]}:"
        + _text(value, data + _number(value, offsets + n * offset_size, offset_size), names, zone)
        for n in range(count)
    ]
    return "{" + ",".join(members) + "}"


def _array(value: bytes, at: int, names: list[str], zone: tzinfo) -> str:
    info = value[at] >> 2
    offset_size, count_size = (info & 3) + 1, 4 if info >> 2 & 1 else 1
    count = _number(value, at + 1, count_size)
    offsets = at + 1 + count_size
    data = offsets + (count + 1) * offset_size
    places = [_number(value, offsets + n * offset_size, offset_size) for n in range(count)]
    return "[" + ",".join([_text(value, data + place, names, zone) for place in places]) + "]"


def _scalar(value: bytes, at: int, kind: int, zone: tzinfo) -> str:
    match kind:
        case 0 | 1 | 2:
            return ("null", "true", "false")[kind]
        case 3 | 4 | 5 | 6:
            return str(unpack_from(_INTEGERS[kind], value, at)[0])
        case 7:
            return number(repr(unpack_from("<d", value, at)[0]))
        case 8 | 9 | 10:
            digits = int.from_bytes(value[at + 1 : at + 1 + _DECIMALS[kind]], "little", signed=True)
            return f"{Decimal(digits).scaleb(-value[at], _EXACT).normalize(_EXACT):f}"
        case 11:
            return f'"{day(unpack_from("<i", value, at)[0])}"'
        case 12:
            return _time(unpack_from("<q", value, at)[0], zone)
        case 13:
            return _time(unpack_from("<q", value, at)[0], None)
        case 14:
            return number(str(np.float32(unpack_from("<f", value, at)[0])), is_single=True)
        case 15 | 16:
            size = _number(value, at, 4)
            found = value[at + 4 : at + 4 + size]
            return escaped(found.decode() if kind == _TEXT else base64.b64encode(found).decode())
        case 20:
            return f'"{uuid.UUID(bytes=value[at : at + 16])}"'
    raise ValueError(f"a VARIANT has a value of type {kind}, which no text is known of")


def _time(us: int, zone: tzinfo | None) -> str:
    ahead_s = 0 if zone is None else offset_s(zone, us // 1_000_000)
    seconds, fraction = divmod(us + ahead_s * 1_000_000, 1_000_000)
    days, rest = divmod(seconds, 86_400)
    text = f"{day(days)} {clock(rest)}" + f".{fraction:06d}".rstrip("0").rstrip(".")
    if zone is None:
        return f'"{text}"'
    minutes = abs(ahead_s) // 60
    return f'"{text}{"-" if ahead_s < 0 else "+"}{minutes // 60:02d}:{minutes % 60:02d}"'
