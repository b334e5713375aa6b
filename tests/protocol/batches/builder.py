"""Record batches as a producer makes them, and as none would: any field may lie."""

import random
import struct
from collections.abc import Sequence
from typing import Any

from crc32c import crc32c

Header = tuple[bytes, bytes | None]
Record = tuple[bytes | None, bytes | None, Sequence[Header], int]
"""Key, value, headers, and the time from the batch's."""

NOW_MS = 1_750_000_000_000


def zigzag(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def sized(value: bytes | None) -> bytes:
    return zigzag(-1) if value is None else zigzag(len(value)) + value


def record(
    offset: int,
    key: bytes | None = None,
    value: bytes | None = b"{}",
    headers: Sequence[Header] = (),
    delta: int = 0,
) -> bytes:
    body = b"\0" + zigzag(delta) + zigzag(offset) + sized(key) + sized(value)
    body += zigzag(len(headers))
    for name, content in headers:
        body += sized(name) + sized(content)
    return zigzag(len(body)) + body


def records_of(records: Sequence[Record], offsets: Sequence[int] | None = None) -> bytes:
    numbered = zip(offsets or range(len(records)), records, strict=True)
    return b"".join(record(offset, *each) for offset, each in numbered)


def batch(data: bytes, count: int, **fields: Any) -> bytes:
    """A batch of records that are packed already, if they are."""
    known = {
        "base_offset": 0, "leader_epoch": -1, "magic": 2, "attributes": 0, "last_delta": count - 1,
        "first_ms": NOW_MS, "max_ms": NOW_MS, "producer_id": -1, "producer_epoch": -1,
        "sequence": -1, "crc": None, "length": None,
    } | fields  # fmt: skip
    tail = struct.pack(
        ">hiqqqhii",
        *(known[name] for name in ("attributes", "last_delta", "first_ms", "max_ms")),
        *(known[name] for name in ("producer_id", "producer_epoch", "sequence")),
        count,
    )
    tail += data
    length = len(tail) + 9 if known["length"] is None else known["length"]
    crc = crc32c(tail) if known["crc"] is None else known["crc"]
    head = (known["base_offset"], length, known["leader_epoch"], known["magic"], crc)
    return struct.pack(">qiibI", *head) + tail


def some_records(dice: random.Random, count: int) -> list[Record]:
    """Of every kind: without a key, a value, headers; short and long."""

    def one() -> Record:
        key = dice.choice((None, b"", b"k", b"\xff\xfe", dice.randbytes(dice.randint(1, 300))))
        value = dice.choice(
            (None, b"", b"null", b'{"a": [1, 2]}', b"text", b"\xff\x00", b'"' + b"v" * 400 + b'"')
        )
        headers = [
            (b"h%d" % dice.randint(0, 3), dice.choice((None, b"", b"x", b"\xff")))
            for _ in range(dice.choice((0, 0, 1, 3, 12)))
        ]
        return key, value, headers, dice.choice((0, 1, -5, 1 << 40))

    return [one() for _ in range(count)]
