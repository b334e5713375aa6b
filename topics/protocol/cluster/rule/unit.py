"""What nodes write into the log that they share: the records of one shard, as bytes and back.

Owns the format of a unit, in one record or in parts, and of `TermBegan`.  Knows nothing of who may
write which (`replica`, `leading`).  A record begins with a prelude that every format has, so that an
old node tells a record that is not its cluster's, which it skips as all nodes do, from one that only a
newer node can read, at which it has to stop.

    prelude  0  magic    4   "tpcR"
             4  format   u16
             6  kind     u16  1 unit, 2 TermBegan
             8  size     u32  bytes of the record
            12  shard    u32
            16  cluster  16
            32  digest   16   of all other bytes of the record
    unit    48  term     u64
            56  index    u64
            64  prev     16   the chain that the unit goes on from
            80  part     u32  of `parts`, from 0
            84  parts    u32
            88  frames   u32  of the whole unit
            92  -        u32  0
            96  size     u64  bytes of all frames of the unit
           104  unit     16   digest of the whole unit
           120  bytes of the frames, a slice of them where there are parts
    TermBegan
            48  term     u64
            56  nonce    16
            72  node     UTF-8, to the record's end

Numbers are little-endian, digests BLAKE2b of 128 bits.  They find accidents: whoever may write into the
log can do anything to it.
"""

import struct
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final, TypeAlias, get_args

import msgspec

from topics.protocol.model.codec import Frames, decode_all
from topics.protocol.model.events import Event, PlaceReached, RunsDropped, RunsSealed
from topics.protocol.model.records import Buffer

MAGIC: Final = b"tpcR"
FORMAT: Final = 4
"""The newest that this version reads."""
FORMAT_OLDEST: Final = 1
"""The oldest that it reads and writes.  A leader writes the newest that all live nodes read."""
UNIT_KIND: Final = 1
TERM_KIND: Final = 2

PRELUDE: Final = struct.Struct("<4sHHII16s16s")
UNIT_HEADER: Final = struct.Struct("<QQ16sIIIIQ16s")
TERM_HEADER: Final = struct.Struct("<Q16s")

assert PRELUDE.size == 48
assert UNIT_HEADER.size == 72

DIGEST_BYTES: Final = 16
NODE_BYTES_MAX: Final = 255
TERM_MAX: Final = (1 << 23) - 1
"""A lease number begins at `term << 40` and has 63 bits."""
INDEX_MAX: Final = (1 << 63) - 1
UNIT_BYTES_MAX: Final = 256 << 20
"""Of the frames of one unit; a replica holds that much of one that has not all its parts yet."""
MESSAGE_BYTES_MIN: Final = 64 << 10
"""A log that takes no message of this size is refused."""
PARTS_MAX: Final = -(-UNIT_BYTES_MAX // (MESSAGE_BYTES_MIN - PRELUDE.size - UNIT_HEADER.size))

LOCAL_EVENTS: Final = (RunsSealed, RunsDropped, PlaceReached)
"""How one node keeps what all of them hold: never in a unit."""

assert set(LOCAL_EVENTS) < set(get_args(Event))


class NotOurs(ValueError):
    """No record of this cluster and shard, or none that is whole.  Every node skips it, in every
    version."""


class Unreadable(ValueError):
    """A whole record of this cluster and shard that this version cannot read.  A node that skipped it
    would go on from another state than the others, so it stops."""


class Shard(msgspec.Struct, frozen=True):
    """Which log: the cluster's id (16 bytes), and the number of the shard."""

    cluster: bytes
    number: int = 0


class TermBegan(msgspec.Struct, frozen=True):
    """From here on `node` decides, if it reads this back as accepted; `nonce` (16 bytes) is of one
    attempt of one process."""

    term: int
    nonce: bytes
    node: str


class UnitPart(msgspec.Struct, frozen=True):
    """Part `part` of `parts` of a unit; one that fits into a message is the one part of itself.

    Attributes:
        prev: Chain that the unit goes on from.
        frames: How many events the whole unit holds.
        size_bytes: Of the frames of the whole unit.
        unit: Digest of the whole unit.
        body: This part's slice of the frames.
    """

    term: int
    index: int
    prev: bytes
    part: int
    parts: int
    frames: int
    size_bytes: int
    unit: bytes
    body: bytes

    @property
    def chain(self) -> bytes:
        """The chain once the unit is accepted; no other unit has it."""
        return chain_over_unit(self.prev, self.unit)

    @property
    def is_last(self) -> bool:
        return self.part == self.parts - 1


Record: TypeAlias = TermBegan | UnitPart


class Unit(msgspec.Struct, frozen=True):
    """What one turn of a leader decided: the frames of its events (`model.codec`), one after another.
    None are a unit too: what its leader knew when it was sent is known to be true once it is
    accepted."""

    term: int
    index: int
    prev: bytes
    frames: int
    body: bytes

    @property
    def digest(self) -> bytes:
        head = struct.pack(
            "<QQ16sIQ", self.term, self.index, self.prev, self.frames, len(self.body)
        )
        return _digest(b"unit", head, self.body)

    @property
    def chain(self) -> bytes:
        return chain_over_unit(self.prev, self.digest)

    def events(self) -> list[Event]:
        """The events, in order.

        Raises:
            Unreadable: The frames are not events that this version knows and a unit may hold.
        """
        try:
            events = list(decode_all(memoryview(self.body), self.frames))
        except Exception as error:
            # The digest held, so these are the bytes that a node wrote: of another version.
            raise Unreadable(f"unit {self.index} of term {self.term}: {error}") from error
        for event in events:
            if isinstance(event, LOCAL_EVENTS):
                raise Unreadable(f"unit {self.index} holds {type(event).__name__}")
        return events


def body_of(events: Iterable[Event]) -> tuple[int, bytes]:
    """How many frames these events are, and their bytes."""
    events = list(events)
    assert not any(isinstance(event, LOCAL_EVENTS) for event in events)
    frames = Frames.of(events)
    return frames.count, b"".join(frames.parts)


def chain_over_unit(chain: bytes, unit: bytes) -> bytes:
    """The chain behind a unit of this digest."""
    return _digest(b"then", chain, unit)


def chain_over_term(chain: bytes, began: TermBegan) -> bytes:
    """The chain behind this `TermBegan`."""
    return _digest(b"term", chain, TERM_HEADER.pack(began.term, began.nonce), began.node.encode())


def origin(shard: Shard) -> bytes:
    """The chain before the first record."""
    return _digest(b"zero", shard.cluster, shard.number.to_bytes(4, "little"))


def chain_of_base(shard: Shard) -> bytes:
    """The chain behind what a shard had before its log."""
    return _digest(b"base", origin(shard))


def _digest(*pieces: Buffer) -> bytes:
    digest = blake2b(digest_size=DIGEST_BYTES)
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


# ---------------------------------------------------------------------- encoding


def parts_of(unit: Unit, message_bytes_max: int) -> list[UnitPart]:
    """The parts of a unit, none of which needs a larger message."""
    room = message_bytes_max - PRELUDE.size - UNIT_HEADER.size
    size, digest = len(unit.body), unit.digest
    assert room > 0
    assert 0 < unit.term <= TERM_MAX
    assert 0 < unit.index <= INDEX_MAX
    assert size <= UNIT_BYTES_MAX
    parts = max(1, -(-size // room))
    assert parts <= PARTS_MAX
    return [
        UnitPart(
            term=unit.term,
            index=unit.index,
            prev=unit.prev,
            part=part,
            parts=parts,
            frames=unit.frames,
            size_bytes=size,
            unit=digest,
            body=unit.body[part * room : (part + 1) * room],
        )
        for part in range(parts)
    ]


def encode(record: Record, shard: Shard, *, format_: int = FORMAT) -> bytes:
    """The bytes of a record in this format, as `decode` takes them."""
    if isinstance(record, TermBegan):
        node = record.node.encode()
        assert 0 < record.term <= TERM_MAX
        assert len(node) <= NODE_BYTES_MAX
        header = TERM_HEADER.pack(record.term, record.nonce)
        return _sealed(format_, TERM_KIND, shard, header, node)
    header = UNIT_HEADER.pack(
        record.term,
        record.index,
        record.prev,
        record.part,
        record.parts,
        record.frames,
        0,
        record.size_bytes,
        record.unit,
    )
    return _sealed(format_, UNIT_KIND, shard, header, record.body)


def _sealed(format_: int, kind: int, shard: Shard, header: bytes, body: bytes) -> bytes:
    size = PRELUDE.size + len(header) + len(body)
    prelude = PRELUDE.pack(
        MAGIC, format_, kind, size, shard.number, shard.cluster, bytes(DIGEST_BYTES)
    )[:-DIGEST_BYTES]
    return b"".join((prelude, _digest(prelude, header, body), header, body))


# ---------------------------------------------------------------------- decoding


def decode(raw: bytes, shard: Shard) -> Record:
    """The record.

    Raises:
        NotOurs: What is not a whole record of this shard.
        Unreadable: One that another version wrote, or a wrong one.
    """
    if len(raw) < PRELUDE.size:
        raise NotOurs(f"{len(raw)} bytes are no record")
    magic, format_, kind, size, number, cluster, digest = PRELUDE.unpack_from(raw)
    if magic != MAGIC:
        raise NotOurs("no record of a cluster")
    if cluster != shard.cluster:
        raise NotOurs(f"a record of cluster {cluster.hex()}")
    if number != shard.number:
        raise NotOurs(f"a record of shard {number}")
    if size != len(raw):
        raise NotOurs(f"a record of {size} bytes has {len(raw)}")
    view = memoryview(raw)
    if digest != _digest(view[: PRELUDE.size - DIGEST_BYTES], view[PRELUDE.size :]):
        raise NotOurs("the digest does not match")
    # From here on these are the bytes that a node of this cluster wrote.
    if not FORMAT_OLDEST <= format_ <= FORMAT:
        raise Unreadable(
            f"a record of format {format_}; this version reads up to {FORMAT}: upgrade this node"
        )
    if kind == TERM_KIND:
        return _term_began(raw)
    if kind == UNIT_KIND:
        return _part(raw)
    raise Unreadable(f"a record of kind {kind}")


def _term_began(raw: bytes) -> TermBegan:
    at = PRELUDE.size + TERM_HEADER.size
    if not at <= len(raw) <= at + NODE_BYTES_MAX:
        raise Unreadable(f"TermBegan of {len(raw)} bytes")
    term, nonce = TERM_HEADER.unpack_from(raw, PRELUDE.size)
    if not 0 < term <= TERM_MAX:
        raise Unreadable(f"term {term}")
    try:
        return TermBegan(term, nonce, raw[at:].decode())
    except UnicodeDecodeError as error:
        raise Unreadable(f"the node of TermBegan: {error}") from error


def _part(raw: bytes) -> UnitPart:
    at = PRELUDE.size + UNIT_HEADER.size
    if len(raw) < at:
        raise Unreadable(f"a unit's header of {len(raw) - PRELUDE.size} bytes")
    term, index, prev, part, parts, frames, zero, size_bytes, unit = UNIT_HEADER.unpack_from(
        raw, PRELUDE.size
    )
    if not (0 < term <= TERM_MAX and 0 < index <= INDEX_MAX):
        raise Unreadable(f"unit {index} of term {term}")
    if not part < parts <= PARTS_MAX or size_bytes > UNIT_BYTES_MAX or zero:
        raise Unreadable(f"part {part} of {parts}, of {size_bytes} bytes")
    body = raw[at:]
    if len(body) > size_bytes or (parts == 1 and len(body) != size_bytes):
        raise Unreadable(f"a part of {len(body)} bytes, of {size_bytes}")
    return UnitPart(term, index, prev, part, parts, frames, size_bytes, unit, body)


def joined(parts: Sequence[UnitPart]) -> Unit | None:
    """The unit of all these parts, in order; None where its digest does not match."""
    first = parts[0]
    assert len(parts) == first.parts
    body = first.body if len(parts) == 1 else b"".join(part.body for part in parts)
    unit = Unit(first.term, first.index, first.prev, first.frames, body)
    return unit if unit.digest == first.unit else None
