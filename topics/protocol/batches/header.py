"""The head of a record batch: 61 bytes, the last 40 and all that follows under a CRC.

The first three fields, base offset, length and leader epoch, are outside the CRC: a broker sets them as it stores a
batch, and changes nothing else.
"""

from struct import Struct
from typing import Final, NamedTuple

from topics.protocol.model.records import Buffer

HEADER: Final = Struct(">qiibIhiqqqhii")
"""Base offset, length behind it, leader epoch, magic, CRC, attributes, last offset delta, first and greatest
timestamp, producer id, producer epoch, base sequence, records."""
HEADER_BYTES: Final = HEADER.size
LENGTH_FROM: Final = 12
"""The length of a batch counts from here."""
CRC_FROM: Final = 21
"""The CRC covers what stands from here on."""
_PLACED: Final = Struct(">qii")
_CRC: Final = Struct(">I")
_CRC_AT: Final = 17
_ATTRIBUTES: Final = Struct(">h")
_TIME: Final = Struct(">q")
_MAX_MS_AT: Final = 35
TIME_MAX: Final = 2**63 - 1
NO_TIME: Final = -1
"""Of a record to which its producer gave none."""
LEADER_EPOCH: Final = 0
"""Of a server that has no others beside it."""
MAGIC: Final = 2
MAGIC_AT: Final = 16

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

assert HEADER_BYTES == 61


class BatchError(Exception):
    """A batch that is not taken.

    Attributes:
        is_corrupt: Its bytes are not what was sent (Kafka's error 2); else they are, and are no sound batch (87).
    """

    def __init__(self, what: str, *, is_corrupt: bool = False) -> None:
        super().__init__(what)
        self.is_corrupt = is_corrupt


class Header(NamedTuple):
    """What a batch says of itself; times are milliseconds since the epoch.

    Attributes:
        length: Bytes behind the first twelve.
        last_delta: Offset of the last record, from `base_offset`; what is left of a batch keeps it.
        records: How many there are.
    """

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int
    first_ms: int
    max_ms: int
    producer_id: int
    producer_epoch: int
    sequence: int
    records: int

    @property
    def size_bytes(self) -> int:
        return LENGTH_FROM + self.length

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def has_append_time(self) -> bool:
        """The greatest timestamp is the server's, and that of every record."""
        return bool(self.attributes & LOG_APPEND_TIME)


def header_of(data: Buffer, at: int = 0) -> Header:
    """The head of the batch that begins at a place, whatever it says.

    Raises:
        BatchError: There are less than 61 bytes.
    """
    if len(data) - at < HEADER_BYTES:
        raise BatchError(f"{len(data) - at} bytes are no record batch", is_corrupt=True)
    return Header(*HEADER.unpack_from(data, at))


def checked_header(data: Buffer) -> Header:
    """The head of what has to be one whole batch, its CRC right.

    Raises:
        BatchError: Any other number of batches, an older form, a CRC that is another's.
    """
    header = header_of(data)
    if header.magic != MAGIC:
        raise BatchError(f"a record batch of form {header.magic}, and not {MAGIC}")
    if header.length < HEADER_BYTES - LENGTH_FROM or header.size_bytes > len(data):
        raise BatchError(
            f"a record batch of {header.size_bytes} bytes in {len(data)}", is_corrupt=True
        )
    if header.size_bytes < len(data):
        raise BatchError("more than one record batch for a partition")
    if crc_of(data) != header.crc:
        raise BatchError("the CRC is not that of the bytes", is_corrupt=True)
    return header


def crc_of(data: Buffer) -> int:
    """CRC-32C of a batch from its attributes on."""
    from crc32c import crc32c

    found: int = crc32c(memoryview(data)[CRC_FROM:])
    return found


def placed(data: Buffer, base_offset: int, leader_epoch: int) -> bytes:
    """A batch with its place in a log, which is outside the CRC."""
    length: int = _PLACED.unpack_from(data)[1]
    head = _PLACED.pack(base_offset, length, leader_epoch)
    return b"".join((head, memoryview(data)[_PLACED.size :]))


def timed(data: Buffer, base_offset: int, leader_epoch: int, time_ms: int) -> bytes:
    """A batch with its place in a log, and the time of its append for that of each record (`LogAppendTime`)."""
    out = bytearray(placed(data, base_offset, leader_epoch))
    (attributes,) = _ATTRIBUTES.unpack_from(out, CRC_FROM)
    _ATTRIBUTES.pack_into(out, CRC_FROM, attributes | LOG_APPEND_TIME)
    _TIME.pack_into(out, _MAX_MS_AT, time_ms)
    renew_crc(out)
    return bytes(out)


def dated(data: Buffer, max_ms: int) -> bytes:
    """A copy of a batch that says its greatest time; its CRC stays, if it said so before."""
    (said_ms,) = _TIME.unpack_from(data, _MAX_MS_AT)
    if said_ms == max_ms:
        return bytes(data)
    out = bytearray(data)
    _TIME.pack_into(out, _MAX_MS_AT, max_ms)
    renew_crc(out)
    return bytes(out)


def renew_crc(data: bytearray | memoryview) -> None:
    """Set the CRC of a batch whose attributes, times or records were changed."""
    _CRC.pack_into(data, _CRC_AT, crc_of(data))


def batch_of(header: Header, records: Buffer) -> bytearray:
    """A batch with this head, whose length and CRC are set, and these records, compressed as it says."""
    data = bytearray(HEADER_BYTES + len(records))
    HEADER.pack_into(data, 0, *header._replace(length=len(data) - LENGTH_FROM, magic=MAGIC, crc=0))
    data[HEADER_BYTES:] = records
    renew_crc(data)
    return data
