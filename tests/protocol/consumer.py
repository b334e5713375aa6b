"""A consumer of Kafka's, as the engine's own tests need one: it fetches, and goes on behind what it got."""

from collections.abc import Iterator
from typing import NamedTuple

from topics.protocol.batches.codecs import unpacked
from topics.protocol.batches.header import HEADER_BYTES, checked_header, header_of
from topics.protocol.batches.records import fields
from topics.protocol.batches.shown import bytes_of
from topics.protocol.model.commands import FetchBatches, FetchPart
from topics.protocol.model.fetched import Fetched, FetchedPart
from topics.protocol.model.outcomes import Parked
from topics.protocol.model.records import Buffer

from .harness import Harness


class Consumed(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None


def fetch(
    engine: Harness,
    offset: int,
    *,
    name: str = "t",
    budget: int = 1 << 20,
    epoch: str | None = None,
) -> FetchedPart:
    """What there is behind an offset, at once."""
    found = engine.ask(FetchBatches([FetchPart(name, epoch, offset, budget)], budget, 0, 0))
    assert isinstance(found, Fetched)
    return found.parts[0]


def wait(engine: Harness, offset: int, *, least: int = 1, name: str = "t") -> FetchedPart | None:
    """A fetch that waits; None where it does."""
    part = FetchPart(name, None, offset, 1 << 20)
    found = engine.ask(FetchBatches([part], 1 << 20, least, 1000))
    if isinstance(found, Parked):
        assert found.wait_ms == 1000
        return None
    assert isinstance(found, Fetched)
    return found.parts[0]


def batches(part: FetchedPart) -> list[bytes]:
    """Its batches, each by itself."""
    data = b"".join(
        bytes(each) for piece in part.pieces for each in bytes_of(piece, blocking=True) or ()
    )
    found = []
    while data:
        size = header_of(data).size_bytes
        found.append(data[:size])
        data = data[size:]
    return found


def records(batch: Buffer) -> Iterator[Consumed]:
    header = checked_header(batch)
    data = bytes(unpacked(header.codec, memoryview(batch)[HEADER_BYTES:], 1 << 24))
    for each in fields(data, header.records, header.last_delta + 1):
        key = data[each.key_at : each.key_at + each.key_size] if each.key_size >= 0 else None
        value = (
            data[each.value_at : each.value_at + each.value_size] if each.value_size >= 0 else None
        )
        yield Consumed(header.base_offset + each.offset, key, value)


def consume(
    engine: Harness, offset: int = 0, *, name: str = "t", budget: int = 1 << 20
) -> list[Consumed]:
    """All records from an offset to the head: the consumer goes on behind each batch's last offset, and never
    gets one whose end lies before its place."""
    found: list[Consumed] = []
    while True:
        part = fetch(engine, offset, name=name, budget=budget)
        assert part.missing is None, part.missing
        if offset == part.head_seq:
            return found
        got = batches(part)
        assert got, "a fetch below the head gives nothing: its client would ask for ever"
        for batch in got:
            header = checked_header(batch)
            last = header.base_offset + header.last_delta
            assert last >= offset
            found += [each for each in records(batch) if each.offset >= offset]
            offset = last + 1
