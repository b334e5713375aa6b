"""Fetches of Kafka's clients: what they are shown of records of both forms, how far, and when they wait (§1, §3)."""

import random
from typing import Any

import numpy as np
import pytest

from protocol.consumer import batches, consume, fetch, records, wait
from protocol.durable import Durable
from protocol.harness import Harness
from topics.protocol.batches.header import header_of
from topics.protocol.decide import fetches
from topics.protocol.model.commands import (
    AppendBatch,
    DeleteRecords,
    FetchBatches,
    FetchPart,
    FindPlaces,
)
from topics.protocol.model.errors import Corrupt, DamagedRun
from topics.protocol.model.fetched import (
    CutBatch,
    Fetched,
    Missing,
    NoRecords,
    PlacesFound,
    StoredBatches,
    TextBatch,
)
from topics.protocol.model.holder import Holder
from topics.protocol.model.outcomes import Parked
from topics.protocol.model.records import DELETED, LIVE
from topics.protocol.state import packed_run
from topics.store.runs import SealedRun

from .test_batches import put, sealed, values


def kinds(part: Any) -> list[type]:
    return [type(piece) for piece in part.pieces]


def test_batches_are_shown_as_they_are_stored() -> None:
    """Neighbours are one piece; text becomes batches; offsets are seqs less one."""
    engine = Harness()
    engine.put()
    put(engine, *values(b"1", b"2"))
    put(engine, *values(b"3"))
    engine.append({"data": 4, "tag": "k"}, 5)

    part = fetch(engine, 0)

    assert kinds(part) == [StoredBatches, TextBatch]
    assert (part.head_seq, part.start_seq, part.missing) == (5, 1, None)
    assert [each[0] for each in consume(engine)] == [0, 1, 2, 3, 4]
    assert [each.key for each in consume(engine)] == [b"k0", b"k1", b"k0", b"k", None]
    assert [each.value for each in consume(engine)] == [b"1", b"2", b"3", b"4", b"5"]
    assert fetch(engine, 5).pieces == ()


def test_a_place_within_a_batch_gets_all_of_it() -> None:
    engine = Harness()
    engine.put()
    put(engine, *values(b"1", b"2", b"3"))

    (batch,) = batches(fetch(engine, 2))

    assert [each.offset for each in records(batch)] == [0, 1, 2]
    assert [each.offset for each in consume(engine, 2)] == [2]


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("is_packed", [False, True])
def test_the_first_batch_is_shown_whatever_its_size(is_packed: bool, is_sealed: bool) -> None:
    """And no other beyond the budget, of a part or of all of them."""
    engine = Durable()
    engine.put()
    for _ in range(3):
        if is_packed:
            put(engine, *values(b"1" * 500))
        else:
            engine.append("1" * 500, "2")
    if is_sealed:
        sealed(engine)
    once = fetch(engine, 0, budget=1)
    assert len(batches(once)) == 1
    assert once.size_bytes > 500
    assert len(batches(fetch(engine, 0, budget=once.size_bytes))) == 1
    assert len(batches(fetch(engine, 0, budget=1 << 20))) == (3 if is_packed else 1)
    assert [each.offset for each in consume(engine, budget=1)] == list(
        range(engine.topic().head_seq)
    )

    parts = [FetchPart("t", None, 0, 1 << 20), FetchPart("t", None, 1, 1 << 20)]
    found = engine.ask(FetchBatches(parts, 1, 0, 0))
    assert isinstance(found, Fetched)
    assert [len(batches(part)) for part in found.parts] == [1, 0]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_dead_records_are_left_out_of_a_batch(is_sealed: bool) -> None:
    """What is left keeps its offsets, and the batch its last one. (§3)"""
    engine = Durable()
    engine.put()
    put(engine, *values(b"1", b"2", b"3"))
    put(engine, *values(b"4", b"5"))
    put(engine, *values(b"6"))
    if is_sealed:
        sealed(engine)
    engine.delete(match="k1")

    part = fetch(engine, 0)

    assert kinds(part) == [CutBatch, CutBatch, StoredBatches]
    assert [each.value for each in consume(engine)] == [b"1", b"3", b"4", b"6"]
    assert [header_of(each).last_delta for each in batches(part)] == [2, 1, 0]


def test_what_was_dropped_already_is_not_cut_again() -> None:
    """A segment that was written anew has the batch without its dead records: it is given as it is."""
    engine = Durable()
    engine.put()
    put(engine, *values(b"1", b"2", b"3"))
    engine.delete(match="k1")
    sealed(engine)

    assert kinds(fetch(engine, 0)) == [CutBatch]
    assert [each.value for each in consume(engine)] == [b"1", b"3"]


def test_where_nothing_live_is_left_a_batch_of_no_records_ends_at_the_head() -> None:
    """Without it a client would ask for its offset for ever. (§3)"""
    engine = Harness()
    engine.put()
    put(engine, *values(b"1", b"2"))
    engine.append(3, 4)
    engine.delete(before_seq=5)

    part = fetch(engine, 1)

    assert part.pieces == (NoRecords(1, 4),)
    (batch,) = batches(part)
    header = header_of(batch)
    assert (header.base_offset, header.last_delta, header.records) == (1, 2, 0)
    put(engine, *values(b"5"))
    assert [each.value for each in consume(engine)] == [b"5"]
    engine.delete(before_seq=6)
    assert consume(engine) == []


def test_a_cap_cuts_into_a_batch_and_moves_the_log_start() -> None:
    """Below it a place is out of range: the one loss of which this protocol tells. (§3)"""
    engine = Harness()
    engine.put(cap_records=2)
    put(engine, *values(b"1", b"2", b"3"))

    assert fetch(engine, 0).missing is Missing.OFFSET
    part = fetch(engine, 1)
    assert (part.start_seq, kinds(part)) == (2, [CutBatch])
    assert [each.offset for (batch,) in [batches(part)] for each in records(batch)] == [1, 2]


def test_deletes_do_not_move_the_log_start_and_a_trim_does() -> None:
    """And HTTP's readers pass a trim in silence. (§8)"""
    engine = Harness()
    engine.put()
    put(engine, *values(b"1", b"2", b"3"))
    engine.delete(before_seq=2)
    assert fetch(engine, 0).missing is None

    engine.ask(DeleteRecords("t", 3, None, trims=True))

    assert fetch(engine, 1).missing is Missing.OFFSET
    assert fetch(engine, 2).start_seq == 3
    assert engine.datas("t") == [3]
    assert fetch(engine, 4).missing is Missing.OFFSET
    assert fetch(engine, 3).pieces == ()


def test_records_expire_for_a_fetch_too() -> None:
    engine = Harness()
    engine.put(ttl_ms=1000)
    put(engine, *values(b"1"))
    engine.now_ms += 1001
    assert fetch(engine, 0).missing is Missing.OFFSET
    assert fetch(engine, 1).start_seq == 2


def test_another_topic_of_that_name_is_told_apart() -> None:
    """By its epoch, which a topic's id is made of. (§1)"""
    engine = Harness()
    assert fetch(engine, 0).missing is Missing.TOPIC
    assert fetch(engine, 0, epoch="0000000000000000-1").missing is Missing.INSTANCE
    engine.put()
    epoch = engine.topic().epoch
    assert fetch(engine, 0, epoch=epoch).missing is None
    engine.drop()
    engine.put()
    assert fetch(engine, 0, epoch=epoch).missing is Missing.INSTANCE


def test_what_is_not_shown_yet_is_not_fetched() -> None:
    """The high watermark is what HTTP's readers see, too. (§0.5)"""
    engine = Harness()
    engine.put(durability="fsync")
    engine.auto = False
    put(engine, *values(b"1"))
    engine.append(2)
    lsn = engine.write()
    part = fetch(engine, 0)
    assert (part.head_seq, part.pieces) == (0, ())
    engine.engine.on_synced(lsn)
    assert [each.value for each in consume(engine)] == [b"1", b"2"]


# ---------------------------------------------------------------------- waiting


def fetched(engine: Harness) -> list[Fetched]:
    found = [wake.result for wake in engine.engine.take_wakes()]
    assert all(isinstance(each, Fetched) for each in found)
    return found  # type: ignore[return-value]


def test_a_fetch_waits_for_as_many_bytes_as_it_wants() -> None:
    engine = Harness()
    engine.put()
    assert wait(engine, 0, least=150) is None
    put(engine, *values(b"1"))
    assert fetched(engine) == []
    put(engine, *values(b"2"))
    put(engine, *values(b"3"))

    (found,) = fetched(engine)

    assert found.parts[0].size_bytes >= 150
    assert engine.engine.fetches.parked == 0
    assert wait(engine, 0) is not None


@pytest.mark.parametrize("is_packed", [True, False])
def test_what_the_bounds_leave_out_counts_as_found(is_packed: bool) -> None:
    """A fetch that wants 250 bytes, and may have 250, does not wait before batches of 200. (§1)"""
    engine = Harness()
    engine.put()

    def ask(least: int, *bounds: int) -> Any:
        parts = [FetchPart("t", None, 0, bound) for bound in bounds]
        return engine.ask(FetchBatches(parts, 300, least, 1000))

    def append() -> None:
        put(engine, *values(b"1" * 130)) if is_packed else engine.append("1" * 130)

    append()
    assert isinstance(ask(250, 250), Parked), "there is one batch, and it is shown whole"
    assert fetched(engine) == []
    append()
    (found,) = fetched(engine)
    (part,) = found.parts
    assert part.size_bytes < 250 == part.ready_bytes
    assert isinstance(ask(250, 250), Fetched)
    assert isinstance(ask(300, 250), Parked), "its bound allows fewer than it wants"
    for part in ask(300, 1000, 1000).parts:
        assert part.ready_bytes >= part.size_bytes


def test_the_rest_of_a_fetch_shows_nothing_beyond_its_budget() -> None:
    """The first batch of all is shown whole; it was in a part before."""
    engine = Harness()
    engine.put()
    put(engine, *values(b"1" * 100))
    part = FetchPart("t", None, 0, 1 << 20)
    for is_rest, shown in ((False, 1), (True, 0)):
        found = engine.ask(FetchBatches([part], 10, 0, 0, is_rest=is_rest))
        assert isinstance(found, Fetched)
        assert len(found.parts[0].pieces) == shown


def test_connections_on_which_fetches_wait_count_as_event_streams() -> None:
    """Each once, in the share of its holder; beyond the bound a fetch has its answer at once. (129)"""
    engine = Harness(max_sse_connections=2)
    engine.put()
    shares = engine.engine.watches.connection_shares
    one, two = (Holder(f"192.0.2.{n}") for n in (1, 2))

    def ask(holder: Holder, connection: int) -> object:
        parts = [FetchPart("t", None, 0, 1 << 20)]
        return engine.ask(FetchBatches(parts, 1 << 20, 1, 1000, holder, connection))

    assert isinstance(ask(one, 1), Parked)
    assert isinstance(ask(one, 1), Parked)
    assert (shares.used, shares.held(one)) == (1, 1)
    assert isinstance(ask(two, 2), Parked)
    found = ask(two, 3)
    assert isinstance(found, Fetched)
    assert found.is_busy
    assert found.parts[0].head_seq == 0
    assert (shares.used, shares.held(two), shares.refused) == (2, 1, 1)
    engine.engine.forget("t", object())  # it waits for nothing

    put(engine, *values(b"1"))

    assert (shares.used, shares.held(one)) == (0, 0)
    found = ask(two, 3)
    assert isinstance(found, Fetched)
    assert not found.is_busy


def test_a_fetch_of_several_topics_waits_for_all_of_them() -> None:
    """Together they have the bytes; one of them twice."""
    engine = Harness()
    engine.put("a")
    engine.put("b")
    parts = [FetchPart(name, None, 0, 1 << 20) for name in ("a", "b", "a")]
    assert isinstance(engine.ask(FetchBatches(parts, 1 << 20, 200, 1000)), Parked)

    engine.append(1, name="a")
    assert fetched(engine) == []
    put(engine, *values(b"1" * 150), name="b")

    (found,) = fetched(engine)
    assert [len(batches(part)) for part in found.parts] == [1, 1, 1]


def test_a_fetch_is_over_with_its_time_its_topic_its_place_its_client_or_the_server() -> None:
    engine = Harness()
    engine.put()
    assert wait(engine, 0, least=1000) is None
    token = engine.last_token
    put(engine, *values(b"1"))
    engine.engine.timeout("", token)
    (late,) = fetched(engine)
    assert len(batches(late.parts[0])) == 1
    engine.engine.timeout("", token)
    assert fetched(engine) == []

    assert wait(engine, 1) is None
    engine.drop()
    (gone,) = fetched(engine)
    assert gone.parts[0].missing is Missing.TOPIC

    engine.put()
    put(engine, *values(b"1"))
    assert wait(engine, 0, least=1000) is None
    engine.ask(DeleteRecords("t", 2, None, trims=True))
    assert fetched(engine) == []
    put(engine, *values(b"2"))
    (trimmed,) = fetched(engine)
    assert trimmed.parts[0].missing is Missing.OFFSET

    assert wait(engine, 2) is None
    engine.engine.forget("", engine.last_token)
    put(engine, *values(b"3"))
    assert fetched(engine) == []
    assert engine.engine.fetches.parked == 0

    assert wait(engine, 3) is None
    engine.engine.release_all()
    assert [each.parts[0].pieces for each in fetched(engine)] == [()]


def test_a_fetch_that_meets_an_error_does_not_wait() -> None:
    engine = Harness()
    part = wait(engine, 0)
    assert part is not None
    assert part.missing is Missing.TOPIC


@pytest.mark.parametrize("is_packed", [False, True])
def test_damage_takes_what_stands_behind_it_and_no_other_part(
    is_packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands before it is shown; a fetch of the damage itself does not wait. (§0.5)"""
    engine = Durable()
    engine.put()
    engine.put("u")
    put(engine, *values(b"1"))
    if is_packed:
        engine.append(2)
        put(engine, *values(b"3"))
    else:
        engine.append(2, 3)
    sealed(engine)
    put(engine, *values(b"4"), name="u")
    bad = engine.topic().runs.at(3 if is_packed else 2)

    def damaged(run: Any) -> Any:
        if run.first_seq == bad.first_seq:
            raise DamagedRun(Corrupt("a.seg", 7, "digest"), 3, 3)
        return read(run)

    read = SealedRun.flags.fget
    assert read is not None
    monkeypatch.setattr(SealedRun, "flags", property(damaged))
    monkeypatch.setattr(SealedRun, "dead", property(lambda run: damaged(run) is None))
    parts = [FetchPart("t", None, 0, 1 << 20), FetchPart("u", None, 0, 1 << 20)]
    found = engine.ask(FetchBatches(parts, 1 << 20, 0, 0))
    assert isinstance(found, Fetched)
    assert (len(found.parts[0].pieces), len(found.parts[1].pieces)) == (1 + is_packed, 1)
    assert [each.damage is None for each in found.parts] == [False, True]

    part = wait(engine, bad.first_seq - 1)
    assert part is not None
    assert (part.pieces, part.damage is None) == ((), False)


def test_a_fetch_that_waits_is_answered_when_it_meets_damage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Harness()
    engine.put()
    put(engine, *values(b"1"))
    assert wait(engine, 0, least=1000) is None

    def damaged(*_: Any) -> Any:
        raise DamagedRun(Corrupt("a.seg", 7, "digest"), 1, 2)

    monkeypatch.setattr(fetches, "_batches", damaged)
    put(engine, *values(b"2"))
    [answer] = fetched(engine)
    assert answer.parts[0].damage is not None


def test_records_whose_flags_were_lost_are_passed_over() -> None:
    """What was deleted before its segment was written is not there, whatever the flags say; a client goes on behind
    it. (FORMAT.md)"""
    engine = Durable()
    engine.put()
    put(engine, *values(b"1", b"2"))
    put(engine, *values(b"3", b"4"))
    put(engine, *values(b"5", b"6"))
    engine.delete(before_seq=4)
    sealed(engine)
    run: Any = engine.topic().runs.at(1)
    for flags in ([LIVE] * 6, [LIVE, DELETED] + [LIVE] * 4):
        run._heap = np.array(flags, np.uint8)
        run._dead = int(np.count_nonzero(run._heap))
        assert [each.offset for each in consume(engine)] == [3, 4, 5]


# ---------------------------------------------------------------------- places


def place(engine: Harness, *, name: str = "t", has_time: bool = False) -> Any:
    found = engine.ask(FindPlaces([(name, has_time)]))
    assert isinstance(found, PlacesFound)
    return found.places[0]


def test_a_place_tells_begin_end_and_the_rows_for_a_time() -> None:
    engine = Harness()
    assert place(engine).missing is Missing.TOPIC
    engine.put(cap_records=2)
    put(engine, *values(b"1", b"2", b"3"))
    engine.auto = False
    engine.append(4)

    assert (place(engine).start_seq, place(engine).head_seq, place(engine).rows) == (3, 3, [])
    ((run, lo, hi),) = place(engine, has_time=True).rows
    assert (run.first_seq + lo, run.first_seq + hi) == (3, 4)


# ---------------------------------------------------------------------- a look is bounded


def test_a_look_at_many_dead_batches_ends_and_the_next_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A turn takes so many stretches of a run, and looks at so many runs."""
    monkeypatch.setattr(fetches, "CUTS_MAX", 2)
    monkeypatch.setattr(fetches, "LOOKS_MAX", 2)
    monkeypatch.setattr(packed_run, "RECORDS_MAX", 8)
    engine = Harness()
    engine.put()
    for nth in range(20):
        put(engine, *values(b"%d" % nth, b"x"))
    engine.delete(match="k1")

    assert len(batches(fetch(engine, 0))) < 20
    assert [each.value for each in consume(engine)] == [b"%d" % nth for nth in range(20)]
    engine.delete(match="k0")
    assert fetch(engine, 0).pieces[0] != NoRecords(0, 40)
    assert consume(engine) == []


def test_a_look_at_many_runs_ends_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetches, "LOOKS_MAX", 1)
    engine = Harness()
    engine.put()
    put(engine, *values(b"1"))
    engine.append(2)
    put(engine, *values(b"3"))

    assert kinds(fetch(engine, 0)) == [StoredBatches]
    assert [each.value for each in consume(engine)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("seed", range(12))
def test_a_consumer_sees_what_is_live(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was written by either face, deleted, capped, sealed, and however little it asks for at once."""
    monkeypatch.setattr(fetches, "TEXT_ROWS", 3)
    monkeypatch.setattr(packed_run, "RECORDS_MAX", 16)
    dice = random.Random(seed)
    engine = Durable(segment_max_records=16)
    engine.put(cap_records=dice.choice((0, 30)))
    nth = 0
    for _ in range(80):
        match dice.randrange(8):
            case 0 | 1 | 2:
                count = dice.randint(1, 6)
                sent = values(*(b"%d" % (nth + i) for i in range(count)))
                put(engine, *sent, codec=dice.choice((0, 1, 4)))
                nth += count
            case 3 | 4:
                count = dice.randint(1, 6)
                engine.append(*({"data": nth + i, "tag": f"k{i % 2}"} for i in range(count)))
                nth += count
            case 5:
                engine.delete(match=dice.choice(("k0", "k1")), before_seq=dice.randint(0, nth))
            case 6:
                sealed(engine)
            case 7:
                engine = dice.choice((engine.stop, engine.kill))()
        live = [
            (record["$seq"] - 1, str(record["data"]).encode())
            for record in engine.diff(0, limit=1000)["records"]
        ]
        budget = dice.choice((0, 1, 100, 1000, 1 << 20))
        start = engine.ask(FindPlaces([("t", False)])).places[0].start_seq - 1  # type: ignore[union-attr]
        found = consume(engine, start, budget=budget)
        assert [(each.offset, each.value) for each in found] == live


def test_a_write_to_another_topic_wakes_nobody() -> None:
    """A fetch waits for its own topics."""
    engine = Harness()
    engine.put()
    engine.put("u")
    assert wait(engine, 0) is None
    engine.ask(AppendBatch("u", b"".join(batches_of(b"1"))))
    assert fetched(engine) == []


def batches_of(*found: bytes) -> list[bytes]:
    engine = Harness()
    engine.put()
    put(engine, *values(*found))
    return batches(fetch(engine, 0))


def test_a_run_of_which_nothing_is_shown_yet_is_not_looked_at() -> None:
    """What is shown ends before it, and what is dead there is passed over."""
    engine = Harness()
    engine.put(durability="fsync")
    put(engine, *values(b"1"))
    engine.delete(before_seq=2)
    engine.auto = False
    engine.append(2)
    assert fetch(engine, 0).pieces == (NoRecords(0, 1),)
    assert fetch(engine, 1).pieces == ()


def test_two_that_wait_for_a_topic_are_told_apart() -> None:
    engine = Harness()
    engine.put()
    assert wait(engine, 0) is None
    first = engine.last_token
    assert wait(engine, 0) is None
    engine.engine.forget("", first)
    assert engine.engine.fetches.parked == 1
    put(engine, *values(b"1"))
    assert len(fetched(engine)) == 1
