"""A small directory of packed runs, and what both kinds of client find in it."""

import json
import random
import re
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from protocol.batches.builder import NOW_MS, Record, batch, records_of
from protocol.harness import Harness
from sim.files import SimFiles
from store.disks import FILE

from topics.protocol.batches.codecs import packed, unpacked
from topics.protocol.batches.header import HEADER_BYTES, checked_header, header_of
from topics.protocol.batches.records import fields
from topics.protocol.faces.http.records import parse_diff
from topics.protocol.model.commands import (
    AppendBatch,
    FetchBatches,
    FetchPart,
    ReserveProducerIds,
)
from topics.protocol.model.errors import Rejection
from topics.protocol.model.fetched import Fetched
from topics.protocol.model.limits import Limits
from topics.protocol.model.outcomes import Parked, ProducerIds
from topics.protocol.model.records import Buffer
from topics.protocol.model.shown_records import records_of as shown_of
from topics.server.service import batches, texts
from topics.store.store import DiskStore

UNREADABLE = b"\xff unreadable"
"""What stands in the place of a record that answers `corrupt`; no record is like it."""
NAMES = ("a", "b")
Records: TypeAlias = dict[str, dict[int, bytes]]
"""By topic and seq."""


class Content(NamedTuple):
    """What a directory holds.

    Attributes:
        http: The text of each record.
        kafka: The time and the bytes of each record.
        counts: By topic, what it says of its count and bytes.
        producers: Rows of what is known of producers.
        reserved: Ids of producers are given up to here.
    """

    http: Records
    kafka: Records
    counts: dict[str, tuple[int, int]]
    producers: dict[int, list[bytes]]
    reserved: int


def started(files: SimFiles, seed: int = 0) -> Harness:
    """Raises Corrupt, Unusable: The start is refused."""
    store = DiskStore(files, wal_file_bytes=FILE, reserve_bytes=FILE)
    return Harness(store=store, auto=False)


def small_directory(
    *, clean: bool = False, idle: bool = True, seed: int = 0
) -> tuple[SimFiles, list[Content]]:
    """A directory of packed runs, and what it held after each of its last synced writes.

    Topic `a` has batches of every codec in a merged segment, some of them without their dead records and one without any;
    `b` has a batch that is larger than a block, in a segment of both; and both have batches in the log alone, of a
    producer and of none.
    """
    files, dice = SimFiles(seed), random.Random(seed + 5)
    engine = started(files)
    engine.sync()
    for name in NAMES:
        engine.put(name)
    reserved = engine.ask(ReserveProducerIds(10))
    assert isinstance(reserved, ProducerIds)
    engine.sync()
    producer = {"producer_id": reserved.first, "producer_epoch": 0}
    for nth in range(5):
        records = [(b"gone", b"1", (), 0), *some(dice, 3)] if nth % 2 else some(dice, 4)
        send(engine, "a", records, codec=nth, sequence=4 * nth, **producer)
    send(engine, "b", some(dice, 3))
    engine.sync()
    checkpoint(engine)
    engine.delete("a", before_seq=3)
    send(engine, "a", [(b"gone", b"1", (), 0), (b"gone", b"2", (), 0)], codec=2)
    send(engine, "b", [(b"k", dice.randbytes(20_000), (), 0), *some(dice, 2)])
    send(engine, "b", some(dice, 3), codec=1)
    engine.sync()
    engine.delete("a", match="gone")
    for codec in (3, 0, 4):
        send(engine, "a", [*some(dice, 3), (b"late", b"3", (), 0)], codec=codec)
    engine.append({"by": "http"}, name="a")
    engine.sync()
    checkpoint(engine)
    engine.delete("b", before_seq=2)
    engine.delete("a", match="late")
    send(engine, "a", some(dice, 4), codec=4, sequence=20, **producer)
    send(engine, "b", some(dice, 2))
    engine.sync()
    history = [content_of(engine)]
    send(engine, "a", some(dice, 2), codec=2, sequence=24, **producer)
    engine.sync()
    history.append(content_of(engine))
    if clean:
        engine.drive(engine.schedule.last())
    else:
        if idle:
            engine.store.idle()
        engine.store.close(None)
    return files, history


def checkpoint(engine: Harness) -> None:
    engine.drive(engine.schedule._checkpoint())
    engine.sync()


def some(dice: random.Random, count: int) -> list[Record]:
    """Records of every kind, short ones, so that many are in a block."""

    def one() -> Record:
        value = dice.choice((None, b'{"a": [1, 2]}', b"text", b"\xff\x00", dice.randbytes(40)))
        headers = [
            (b"h", dice.choice((None, b"x", b"\xff"))) for _ in range(dice.choice((0, 1, 2)))
        ]
        return dice.choice((None, b"", b"k", b"\xff\xfe")), value, headers, dice.choice((0, 1, -5))

    return [one() for _ in range(count)]


def send(engine: Harness, name: str, records: list[Record], codec: int = 0, **named: int) -> None:
    data = batch(
        packed(codec, records_of(records)), len(records), attributes=codec,
        max_ms=NOW_MS + max(record[3] for record in records), **named,
    )  # fmt: skip
    engine.ask(AppendBatch(name, data))
    engine.sync()


def content_of(engine: Harness) -> Content:
    """All that both kinds of client find, each record by itself where there is damage."""
    names = [name for name in NAMES if name in engine.engine.state.topics]
    producers, by_id = engine.engine.state.producers, engine.engine.state.by_id
    return Content(
        {name: dict(http_records(engine, name)) for name in names},
        {name: dict(kafka_records(engine, name)) for name in names},
        {name: (engine.topic(name).count, engine.topic(name).size_bytes) for name in names},
        {topic_id: list(producers.rows(topic_id)) for topic_id in by_id},
        engine.engine.state.producer_ids,
    )


# -- HTTP --------------------------------------------------------------------------------------


def http_records(engine: Harness, name: str) -> list[tuple[int, bytes]]:
    """Of each seq, the text that a page of it shows; a reader goes on behind damage, and behind a gap."""
    found: list[tuple[int, bytes]] = []
    from_seq, limit = 0, 1000
    while from_seq < engine.topic(name).head_seq:
        page = _page(engine, name, from_seq, limit)
        if page is None and limit > 1:
            limit = 1
            continue
        if page is None:
            found.append((from_seq + 1, UNREADABLE))
        found += page or ()
        from_seq = page[-1][0] if page else from_seq + 1
    return found


def _page(engine: Harness, name: str, from_seq: int, limit: int) -> list[tuple[int, bytes]] | None:
    """A page; None where it is refused as corrupt."""
    body = b'{"from_seq": %d, "limit": %d, "include_tags": true}' % (from_seq, limit)
    try:
        outcome = engine.ask(parse_diff(name, body, Limits()))
        if isinstance(outcome, Parked):  # a thread opens batches
            engine.work_off()
            [wake] = engine.engine.take_wakes()
            if isinstance(wake.result, Exception):
                raise wake.result
            outcome = wake.result
    except Rejection as refusal:
        require_corrupt(refusal)
        return None
    records = shown_of(outcome)
    assert records is not None
    if not records.extents:
        return []
    read = texts.read(records, blocking=True)
    if isinstance(read, Rejection):
        require_corrupt(read)
        return None
    assert read is not None
    found = split(b"".join(map(bytes, read)))
    chosen = {
        run.first_seq + row
        for run, spans in records.extents
        for span in spans
        for row in range(*span)
    }
    assert {seq for seq, _ in found} <= chosen
    return found


def require_corrupt(refusal: Rejection) -> None:
    assert (refusal.detail or {}).get("reason") == "corrupt", refusal


def split(text: bytes) -> list[tuple[int, bytes]]:
    """Records side by side, each by itself, with its seq."""
    seqs = [record["$seq"] for record in json.loads(b"[%b]" % text)]
    begins = [begin.start() for begin in re.finditer(rb'\{"\$seq":', text)]
    texts = [text[lo:hi].rstrip(b",") for lo, hi in pairwise([*begins, len(text)])]
    return list(zip(seqs, texts, strict=True))


# -- Kafka -------------------------------------------------------------------------------------


def kafka_records(engine: Harness, name: str) -> list[tuple[int, bytes]]:
    """Of each seq, the record that a fetch of its offset shows; a consumer goes on behind damage."""
    found: list[tuple[int, bytes]] = []
    offset, head = 0, engine.topic(name).head_seq
    while offset < head:
        got = fetched(engine, name, offset)
        if got is None:
            found.append((offset + 1, UNREADABLE))
            offset += 1
            continue
        assert got, "a fetch below the head gives nothing: its client would ask for ever"
        for data in got:
            header = checked_header(data)
            last = header.base_offset + header.last_delta
            assert last >= offset
            found += [each for each in rows(data) if each[0] > offset]
            offset = last + 1
    return found


def fetched(engine: Harness, name: str, offset: int) -> list[bytes] | None:
    """Batches behind an offset, each by itself; None where they cannot be read."""
    command = FetchBatches([FetchPart(name, None, offset, 1 << 20)], 1 << 20, 0, 0)
    outcome = engine.ask(command)
    assert isinstance(outcome, Fetched)
    assert outcome.parts[0].missing is None
    [read] = batches.read(outcome.parts)
    if isinstance(read, batches.Unreadable):
        assert read.reason == "corrupt"
        return None
    data, found = b"".join(map(bytes, read)), []
    while data:
        size = header_of(data).size_bytes
        found.append(data[:size])
        data = data[size:]
    return found


def rows(data: Buffer) -> list[tuple[int, bytes]]:
    """The records of a batch, by seq: time, and their bytes behind length, attributes, time and offset."""
    header = checked_header(data)
    raw = bytes(unpacked(header.codec, memoryview(data)[HEADER_BYTES:], 1 << 24))
    return [
        (
            header.base_offset + each.offset + 1,
            b"%d " % (header.first_ms + each.time_delta) + raw[each.key_at : each.end],
        )
        for each in fields(raw, header.records, header.last_delta + 1)
    ]
