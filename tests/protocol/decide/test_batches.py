"""Record batches of Kafka's in a topic: appended, read by both kinds of client, and gone as any other record."""

import random
from typing import Any

import pytest

from protocol.durable import Durable
from protocol.harness import START_MS, Harness, refusal
from topics.protocol.batches.codecs import packed
from topics.protocol.batches.header import checked_header
from topics.protocol.decide import batches
from topics.protocol.faces.http.records import parse_diff
from topics.protocol.model.commands import (
    AppendBatch,
    DeleteRecords,
    DescribeProducers,
    ReserveProducerIds,
)
from topics.protocol.model.errors import ErrorCode, Untimely
from topics.protocol.model.events import ProducerIdsReserved
from topics.protocol.model.fetched import ProducerFacts, ProducersDescribed
from topics.protocol.model.outcomes import BatchAppended, Gate, Parked, ProducerIds
from topics.protocol.model.records import PACKED, TEXT
from topics.protocol.state.producers import EXPIRE_MS, Fenced, OutOfOrder, TooOld
from topics.store.files import read_whole
from topics.store.memory import MemoryStore

from ..batches.builder import NOW_MS, Record, batch, records_of, some_records


def sent(*records: Record, codec: int = 0, **fields: Any) -> bytes:
    data = packed(codec, records_of(records))
    return batch(data, len(records), attributes=codec, **fields)


def values(*found: bytes) -> list[Record]:
    return [(b"k%d" % (nth % 2), value, (), 0) for nth, value in enumerate(found)]


def put(engine: Harness, *records: Record, name: str = "t", **fields: Any) -> BatchAppended:
    found = engine.ask(AppendBatch(name, sent(*records, **fields)))
    assert isinstance(found, BatchAppended)
    return found


def datas(engine: Harness, **fields: Any) -> list[Any]:
    return [record["data"] for record in read(engine, **fields)["records"]]


def read(engine: Harness, **fields: Any) -> Any:
    return engine.diff(0, **fields)


def test_a_batch_takes_the_next_seqs_and_is_read_as_json() -> None:
    """Its bytes are in the log as they came, but for its place. (§3)"""
    engine = Harness()
    engine.put()
    engine.append({"by": "http"})

    first = put(engine, *values(b'{"by": "kafka"}', b"2"), codec=4)
    second = put(engine, *values(b"3"))
    engine.append({"by": "http", "n": 4})

    assert (first.first_seq, first.count, first.start_seq) == (2, 2, 1)
    assert second.first_seq == 4
    assert datas(engine) == [{"by": "http"}, {"by": "kafka"}, 2, 3, {"by": "http", "n": 4}]
    event = engine.events[2]
    assert checked_header(event.batch.text).base_offset == 1
    assert event.batch.text[16:] == sent(*values(b'{"by": "kafka"}', b"2"), codec=4)[16:]
    runs = engine.topic().runs
    assert [run.form for run in runs] == [TEXT, PACKED, TEXT]
    assert engine.state()["bytes"] == engine.topic().recount()[1]


def test_keys_are_tags() -> None:
    engine = Harness()
    engine.put()
    put(engine, *values(b"1", b"2", b"3"))
    engine.append({"data": 4, "tag": "k1"})

    assert datas(engine, match="k1") == [2, 4]
    assert engine.delete(match="k1")["deleted"] == 2
    assert datas(engine, include_tags=True) == [1, 3]
    assert engine.purge(filter="k0", keep=1)["purged"] == 1
    assert datas(engine) == [3]
    assert engine.topic().recount() == (1, engine.topic().size_bytes)


def test_a_batch_for_no_topic_is_refused() -> None:
    """Nothing is made by a write of Kafka's."""
    engine = Harness()

    assert refusal(put, engine, *values(b"1")).code is ErrorCode.TOPIC_NOT_FOUND
    assert not engine.engine.state.topics


def sealed(engine: Harness) -> None:
    """All that a topic has in memory is in a segment."""
    engine.sealing.press()
    engine.seal()
    engine.drive(engine.schedule._checkpoint())
    assert all(run.ref is not None for run in engine.topic().runs)


@pytest.mark.parametrize("is_sealed", [False, True])
def test_what_is_left_of_a_batch_counts_for_its_share(is_sealed: bool) -> None:
    """In the topic's bytes, rounded down, whatever was deleted, and however it is stored. (§1.2)"""
    engine = Durable()
    engine.put()
    size = len(sent(*values(b"1", b"2", b"3")))
    put(engine, *values(b"1", b"2", b"3"))
    assert engine.state()["bytes"] == size

    for left, match in ((2, "k1"), (0, "k0")):
        if is_sealed:
            sealed(engine)
        engine.delete(match=match)
        assert engine.state()["bytes"] == size * left // 3


def test_a_cap_cuts_into_a_batch() -> None:
    """Its first records are lost, and readers are told. (§3.3)"""
    engine = Harness()
    engine.put(cap_records=2)
    put(engine, *values(b"1", b"2", b"3"))
    put(engine, *values(b"4"))

    assert engine.datas("t") == [(1, 2, "cap"), 3, 4]
    assert engine.topic().recount() == (2, engine.topic().size_bytes)
    engine.put(cap_records=0, cap_bytes=engine.topic().size_bytes)
    assert put(engine, *values(b"5", b"6")).start_seq > 3
    assert engine.datas("t")[-2:] == [5, 6]
    assert engine.topic().recount()[1] == engine.topic().size_bytes


def test_a_full_topic_refuses_a_batch() -> None:
    engine = Harness()
    engine.put(cap_records=2, discard="reject")

    assert refusal(put, engine, *values(b"1", b"2", b"3")).code is ErrorCode.TOPIC_FULL
    engine.put(cap_bytes=50, discard="reject")
    assert refusal(put, engine, *values(b"1")).code is ErrorCode.TOPIC_FULL
    engine.put()
    engine.room_bytes = 0
    assert refusal(put, engine, *values(b"1")).code is ErrorCode.THROTTLED
    assert datas(engine) == []


def test_what_has_expired_elsewhere_refuses_no_batch() -> None:
    """A quota counts what lives. (§11)"""
    engine = Harness(max_total_bytes=200)
    engine.put("old", ttl_ms=1000)
    engine.put()
    engine.append("x" * 150, name="old")
    assert refusal(put, engine, *values(b"1")).code is ErrorCode.THROTTLED

    engine.now_ms += 2000

    assert put(engine, *values(b"1")).first_seq == 1


def test_memory_that_is_full_refuses_a_batch() -> None:
    """Until what is there is sealed. (§11)"""
    engine = Harness(max_hot_bytes=1000)
    engine.put()
    put(engine, *values(b'"%b"' % (b"x" * 700)))

    assert refusal(put, engine, *values(b'"%b"' % (b"x" * 700))).code is ErrorCode.THROTTLED
    engine.sealing.press()
    engine.seal()
    assert put(engine, *values(b'"%b"' % (b"x" * 700))).first_seq == 2


def test_records_of_a_batch_expire() -> None:
    """By when they were appended, not by what their producer says. (§1.2)"""
    engine = Harness()
    engine.put(ttl_ms=1000)
    put(engine, *values(b"1", b"2"))
    engine.now_ms += 600
    put(engine, *values(b"3"))
    engine.now_ms += 600

    assert engine.datas("t") == [(1, 2, "ttl"), 3]
    engine.now_ms += 1000
    assert engine.state()["count"] == engine.state()["bytes"] == 0


@pytest.mark.parametrize("codec", [0, 4])
def test_erased_records_are_in_no_file(codec: int) -> None:
    """Also inside a batch of which others live: it is made without them. (§5)"""
    engine = Durable()
    engine.put()
    put(engine, *values(*(b'"secret-%d"' % nth for nth in range(6))), codec=codec)
    sealed(engine)
    engine.delete(match="k1")
    engine.rewrite()
    for _ in range(3):
        engine.drive(engine.schedule.round(checkpoint=True))
        engine.append(0)

    assert datas(engine)[:3] == ["secret-0", "secret-2", "secret-4"]
    held = [engine.files.open(name) for name in engine.files.names()]
    whole = b"".join(bytes(read_whole(engine.files, file.name)) for file in held)
    assert codec or b"secret-0" in whole
    assert b"secret-1" not in whole
    first: Any = engine.topic().runs[0]
    assert checked_header(first.batch(next(first.batches(0, 1)))).records == 3


def test_a_queue_hands_out_records_of_batches() -> None:
    engine = Harness()
    engine.put("q", type="queue")
    put(engine, *values(b'{"job": 1}', b'{"job": 2}'), name="q")

    claim = engine.claim(max=1)
    assert [job["data"] for job in claim["claimed"]] == [{"job": 1}]
    assert engine.ack(1)["acked"] == 1
    assert engine.counters() == (1, 0, 0)
    assert engine.topic("q").recount() == (1, engine.topic("q").size_bytes)


def test_a_router_copies_records_of_batches_as_text() -> None:
    """With what Kafka needs to have them back. (§3)"""
    engine = Harness()
    engine.put("s")
    engine.route()
    put(engine, (b"k", b"two", [(b"h", b"x")], 5), name="s")
    engine.work_off()

    [record] = engine.diff(0, name="d", include_tags=True)["records"]
    assert (record["data"], record["$form"], record["$tag"]) == ("two", "text", "k")
    assert record["meta"]["h"] == "x"
    assert engine.topic("d").runs[0].form == TEXT


def test_ephemeral_topics_have_text() -> None:
    """No log has their records, so nobody needs the bytes of a batch. (§0.10)"""
    engine = Harness()
    engine.put(durability="ephemeral")
    put(
        engine,
        (b"k", b"two", (), 5),
        (None, b"3", (), 0),
        codec=2,
        producer_id=7,
        producer_epoch=0,
        sequence=0,
    )

    assert datas(engine) == ["two", 3]
    assert engine.topic().runs[0].form == TEXT
    again = put(
        engine,
        (b"k", b"two", (), 5),
        (None, b"3", (), 0),
        codec=2,
        producer_id=7,
        producer_epoch=0,
        sequence=0,
    )
    assert (again.first_seq, again.deduped) == (1, True)


# -- producers -------------------------------------------------------------------------------------------


def by(producer: int, sequence: int, *, epoch: int = 0) -> dict[str, int]:
    return {"producer_id": producer, "producer_epoch": epoch, "sequence": sequence}


@pytest.mark.parametrize("end", ["kill", "stop", "checkpoint"])
def test_a_batch_is_stored_once_however_the_server_ended(end: str) -> None:
    """What a producer wrote last comes out of its batches, or of a checkpoint. (KIP-98)"""
    engine = Durable()
    engine.put()
    for n in range(7):
        put(engine, *values(b"%d" % n), **by(9, n))
    if end == "checkpoint":
        engine.drive(engine.schedule.round(checkpoint=True))
    engine = engine.stop() if end == "stop" else engine.kill()

    again = put(engine, *values(b"4"), **by(9, 4))

    assert (again.first_seq, again.deduped, again.gate) == (5, True, Gate.NOW)
    assert isinstance(refusal(put, engine, *values(b"9"), **by(9, 9)), OutOfOrder)
    assert put(engine, *values(b"7"), **by(9, 7)).first_seq == 8
    assert isinstance(refusal(put, engine, *values(b"9"), **by(9, 1)), TooOld)
    assert put(engine, *values(b"8"), **by(9, 0, epoch=1)).first_seq == 9
    assert isinstance(refusal(put, engine, *values(b"9"), **by(9, 8)), Fenced)
    assert datas(engine) == list(range(9))


def test_a_batch_that_is_not_shown_yet_is_answered_when_it_is() -> None:
    engine = Harness(auto=False)
    engine.put(durability="fsync")
    first = put(engine, *values(b"1"), **by(9, 0))
    again = put(engine, *values(b"1"), **by(9, 0))
    early = engine.ask(AppendBatch("t", sent(*values(b"2")), waits_for_sync=False))

    assert (first.gate, again.gate) == (Gate.SYNCED, Gate.SYNCED)
    assert isinstance(early, BatchAppended)
    assert early.gate is Gate.WRITTEN


def test_ids_of_producers_are_given_once() -> None:
    """A block is durable before its first id is given; a history begins where no other does. (KIP-98)"""
    engine = Durable()
    first = engine.ask(ReserveProducerIds(1000))
    assert isinstance(first, ProducerIds)
    assert first.gate is Gate.SYNCED
    assert 0 <= first.first < 1 << 62
    assert first.first % (1 << 20) == 0
    engine.drive(engine.schedule.round(checkpoint=True))

    for restarted in (engine.kill(), engine.kill().stop()):
        found = restarted.ask(ReserveProducerIds(10))
        assert isinstance(found, ProducerIds)
        assert found.first >= first.first + 1000
    assert isinstance(engine.events[-1], ProducerIdsReserved)
    assert len({batches._first_id(history) for history in ("0a" * 8, "0b" * 8, "00" * 8)}) == 3


def test_a_copy_with_a_history_of_its_own_begins_elsewhere() -> None:
    """Ids that the copied directory gives from now on are never given here. (KIP-98)"""
    engine = Harness(store=MemoryStore(instance_id="0a" * 8))
    first = engine.ask(ReserveProducerIds(1000))
    engine.store.instance_id = "0b" * 8
    found = engine.ask(ReserveProducerIds(10))

    assert isinstance(first, ProducerIds)
    assert isinstance(found, ProducerIds)
    assert first.first == batches._first_id("0a" * 8)
    assert found.first == batches._first_id("0b" * 8)


def producers_of(engine: Harness, skip: int, size: int) -> tuple[list[ProducerFacts], int | None]:
    found = engine.ask(DescribeProducers("t", skip, size))
    assert isinstance(found, ProducersDescribed)
    return list(found.producers), found.next_skip


def test_who_writes_is_listed_page_by_page() -> None:
    """With the number of the last record of each; who wrote nothing for a day is not. (KIP-664)"""
    engine = Harness()
    assert refusal(producers_of, engine, 0, 2).code is ErrorCode.TOPIC_NOT_FOUND
    engine.put()
    assert producers_of(engine, 0, 2) == ([], None)
    for producer in (7, 8, 9):
        put(engine, *values(b"1", b"2"), producer_id=producer, producer_epoch=3, sequence=5)
    then_ms = engine.now_ms

    assert producers_of(engine, 0, 2) == (
        [ProducerFacts(7, 3, 6, then_ms), ProducerFacts(8, 3, 6, then_ms)],
        2,
    )
    assert producers_of(engine, 2, 2) == ([ProducerFacts(9, 3, 6, then_ms)], None)
    engine.now_ms += EXPIRE_MS
    assert producers_of(engine, 0, 2) == ([], 2)


# -- both faces, in any order ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_records_of_both_faces_are_as_a_dictionary_has_them(seed: int) -> None:
    """Whatever is written, deleted, sealed, rewritten and restarted in between."""
    dice = random.Random(seed)
    engine: Any = Durable()
    engine.put()
    model: dict[int, Any] = {}
    tags: dict[int, str] = {}

    def append_batch() -> None:
        records = [
            (b"k%d" % dice.randint(0, 3), b"%d" % dice.randint(0, 10**9), (), 0)
            for _ in range(dice.choice((1, 2, 40, 90)))
        ]
        found = put(engine, *records, codec=dice.randint(0, 4))
        for nth, (key, value, _, _) in enumerate(records):
            model[found.first_seq + nth] = int(value or b"")
            tags[found.first_seq + nth] = (key or b"").decode()

    def append_text() -> None:
        found = engine.append({"data": dice.randint(0, 99), "tag": f"k{dice.randint(0, 3)}"})
        [seq] = found["seqs"]
        [record] = engine.diff(seq - 1, include_tags=True)["records"]
        model[seq], tags[seq] = record["data"], record["$tag"]

    def delete() -> None:
        tag, before = f"k{dice.randint(0, 3)}", dice.randint(1, len(tags) + 1)
        gone = [seq for seq in model if seq < before and tags[seq] == tag]
        assert engine.delete(match=tag, before_seq=before)["deleted"] == len(gone)
        for seq in gone:
            del model[seq]

    def delete_all_before() -> None:
        before = dice.randint(1, max(len(tags) // 2, 1))
        engine.delete(before_seq=before)
        for seq in [seq for seq in model if seq < before]:
            del model[seq]

    def restart() -> None:
        nonlocal engine
        engine = engine.kill() if dice.random() < 0.5 else engine.stop()

    steps = (
        *(append_batch,) * 4, *(append_text,) * 3, *(delete,) * 3, delete_all_before, restart,
        lambda: sealed(engine), lambda: engine.seal(), lambda: engine.rewrite(),
        lambda: engine.drive(engine.schedule.round(checkpoint=dice.random() < 0.5)),
    )  # fmt: skip
    for _ in range(60):
        dice.choice(steps)()
        assert engine.topic().recount() == (len(model), engine.topic().size_bytes)
    found = {}
    cursor = 0
    while True:
        page = engine.diff(cursor, include_tags=True, limit=dice.choice((7, 500)))
        found |= {r["$seq"]: (r["data"], r["$tag"]) for r in page["records"]}
        cursor = page["next_from_seq"]
        if page["caught_up"]:
            break
    assert found == {seq: (value, tags[seq]) for seq, value in sorted(model.items())}


@pytest.mark.parametrize("is_sealed", [False, True])
def test_records_of_every_kind_are_read(is_sealed: bool) -> None:
    records = some_records(random.Random(5), 150)
    engine = Durable()
    engine.put()
    put(engine, *records, codec=3)
    if is_sealed:
        sealed(engine)

    found = read(engine, limit=200)["records"]

    assert len(found) == 150
    assert found[0]["$ts"] == START_MS
    assert {each.get("$form") for each in found} == {None, "text", "base64", "null"}
    assert NOW_MS == START_MS


def test_a_read_waits_while_a_thread_opens_batches() -> None:
    """To make text of many records takes longer than a turn may. (§3)"""
    engine = Harness(auto=False)
    engine.put()
    put(engine, *values(*(b"%d" % nth for nth in range(200))))
    engine.sync()
    run = engine.topic().runs[0]
    assert not run.is_warm

    parked = engine.ask(parse_diff("t", b'{"from_seq": 0, "limit": 3}', engine.limits))
    assert isinstance(parked, Parked)
    assert not run.is_warm
    engine.work_off()

    [page] = engine.woken()
    assert [record["data"] for record in page["records"]] == [0, 1, 2]
    assert run.is_warm
    assert engine.seqs(197) == [198, 199, 200]


@pytest.mark.parametrize("durability", ["disk", "ephemeral"])
def test_a_trim_moves_where_the_log_begins_for_kafkas_readers_alone(durability: str) -> None:
    """Readers of HTTP pass over what was asked to go in silence. (§3.3)"""
    engine: Any = Durable()
    engine.put(durability=durability)
    put(engine, *values(b"1", b"2", b"3"))
    engine.append(4)

    engine.ask(DeleteRecords("t", 3, None, trims=True))

    assert engine.datas("t") == [3, 4]
    assert engine.topic().floors.start_seq == 3
    assert engine.topic().evict_floor == 1
    engine.ask(DeleteRecords("t", 2, None, trims=True))
    assert engine.topic().floors.start_seq == 3
    engine.ask(DeleteRecords("t", 1 << 60, None, trims=True))
    assert engine.topic().floors.start_seq == 5
    if durability == "disk":
        assert engine.kill().topic().floors.start_seq == 5
        assert put(engine.kill(), *values(b"5")).start_seq == 5


def test_a_batch_is_no_larger_than_its_topic_takes() -> None:
    """As it is sent; unpacked, eight times that. (§8)"""
    engine = Harness()
    engine.put(max_message_bytes=100)
    assert refusal(put, engine, *values(b"1" * 100)).code is ErrorCode.BATCH_TOO_LARGE
    command = AppendBatch("t", sent(*values(b"1")), unpacked_bytes=801)
    assert refusal(engine.ask, command).code is ErrorCode.BATCH_TOO_LARGE
    assert put(engine, *values(b"1")).first_seq == 1


def test_the_time_of_the_append_may_be_that_of_all_records() -> None:
    """`message.timestamp.type`: the batch is stored with it, and the answer says it. (§8)"""
    engine = Durable()
    engine.put(message_timestamp_type="LogAppendTime")
    found = put(engine, *values(b"1", b"2"), codec=1)
    assert found.append_time_ms == START_MS
    assert all("$time" not in each for each in read(engine)["records"])
    header = checked_header(engine.events[-1].batch.text)
    assert (header.max_ms, header.has_append_time) == (START_MS, True)
    engine.put(message_timestamp_type="CreateTime")
    assert put(engine, *values(b"3")).append_time_ms is None


def test_a_topic_takes_times_near_that_of_the_append() -> None:
    """`message.timestamp.before.max.ms` and `.after.max.ms`, to the millisecond; a batch that came before gets its
    answer all the same, and neither a record without a time nor HTTP's is held against them. (§8)"""
    engine = Harness()
    engine.put()

    def ask(least: int, greatest: int, **fields: Any) -> Any:
        now_ms = engine.now_ms
        data = sent(*values(b"1"), max_ms=now_ms + greatest, **fields)
        return engine.ask(AppendBatch("t", data, min_ms=now_ms + least))

    producer = {"producer_id": 7, "producer_epoch": 0, "sequence": 0}
    old = ask(-9, 9, **producer)
    bounds = {"message.timestamp.before.max.ms": "5", "message.timestamp.after.max.ms": "3"}
    engine.put(kafka_configs=bounds)

    assert ask(-5, 3).first_seq == old.first_seq + 1
    for least, greatest in ((-6, 3), (-5, 4), (9, 9)):
        refused = refusal(ask, least, greatest)
        assert isinstance(refused, Untimely)
        assert (refused.earliest_ms, refused.latest_ms) == (engine.now_ms - 5, engine.now_ms + 3)
    assert ask(-9, 9, **producer).deduped
    engine.ask(AppendBatch("t", sent(*values(b"1"), first_ms=-1, max_ms=-1)))
    engine.append({"data": 4, "time": 1})
    engine.put(kafka_configs=bounds, message_timestamp_type="LogAppendTime")
    assert ask(-6, 4).append_time_ms == engine.now_ms


def test_a_batch_with_a_record_that_has_no_key_is_refused_by_a_compacted_topic() -> None:
    """A batch that came before gets its answer all the same. (§2, docs/kafka.md)"""
    engine = Harness()
    engine.put()
    came = sent(
        (None, b"1", (), 0), (b"a", b"2", (), 0), producer_id=7, producer_epoch=0, sequence=0
    )
    engine.ask(AppendBatch("t", came, unkeyed=(0,)))
    engine.put(compact=True)
    again = engine.ask(AppendBatch("t", came, unkeyed=(0,)))
    assert isinstance(again, BatchAppended)
    assert again.deduped
    refused = refusal(engine.ask, AppendBatch("t", sent((None, b"3", (), 0)), unkeyed=(0,)))
    assert (refused.code, (refused.detail or {})["records"]) == (ErrorCode.KEY_REQUIRED, [0])
    put(engine, *values(b"4"))
    engine.put(compact=True, durability="ephemeral")
    assert refusal(put, engine, (None, b"5", (), 0)).code is ErrorCode.KEY_REQUIRED
