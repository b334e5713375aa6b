"""Record commands that write: append, delete and purge (§2, §5)."""

import orjson
import pytest
from msgspec.structs import replace

from protocol.harness import Harness, refusal, tagged
from topics.protocol.commit.admission import FRAME_BYTES
from topics.protocol.decide import partial_scans
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.records import parse_delete, parse_purge
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.access import Caller
from topics.protocol.model.commands import Purge
from topics.protocol.model.events import RecordsAppended, TopicCreated
from topics.protocol.model.outcomes import Appended, Deleted, Gate, Outcome, Parked


def test_an_append_creates_its_topic_with_the_config_it_brings() -> None:
    """The topic and its first batch come together; a topic that is there keeps its config. (§2)"""
    engine = Harness()
    first = engine.append("a", "b", config={"cap_records": 5})
    assert (first["seqs"], first["created"]) == ([1, 2], True)
    assert [type(event) for event in engine.events] == [TopicCreated, RecordsAppended]

    second = engine.append("c", config={"cap_records": 1})
    assert (second["seqs"], second.get("created", False)) == ([3], False)
    assert engine.state()["config"]["cap_records"] == 5
    assert engine.seqs() == [1, 2, 3]


@pytest.mark.parametrize("asked", [{"create": False}, {"config": {"auto_create": False}}])
def test_an_append_creates_nothing_unasked(asked: dict[str, object]) -> None:
    """404 where the call or its config says so. (§2)"""
    engine = Harness()
    assert STATUSES[refusal(engine.append, "a", **asked).code] == 404
    assert engine.events == []
    assert "t" not in engine.engine.state.topics


def test_what_is_refused_makes_no_topic() -> None:
    """A first batch that its own config has no space for, or the log no room, leaves nothing. (§2)"""
    engine = Harness()
    full = {"cap_records": 1, "discard": "reject"}
    assert STATUSES[refusal(engine.append, "a", "b", config=full).code] == 422
    engine.room_bytes = 0
    assert STATUSES[refusal(engine.append, "a").code] == 429
    assert engine.events == []
    assert not engine.engine.state.topics

    engine.room_bytes = 1 << 40
    assert engine.append("a")["seqs"] == [1]


def test_a_config_that_is_applied_asks_for_more_than_a_write() -> None:
    """The scope `admin`, where the topic is absent; where it is there nothing is configured. (§0.2)"""
    engine = Harness()
    writer = Caller("writer", frozenset({"write"}))
    engine.put("there")

    def write(name: str, **fields: object) -> Outcome | Parked:
        body = orjson.dumps({"records": [{"data": 1}], **fields})
        made = parse_append(name, body, engine.limits, return_seqs=True, header_key=None)
        return engine.ask(replace(made, caller=writer))

    assert STATUSES[refusal(write, "new", config={}).code] == 403
    assert "new" not in engine.engine.state.topics
    assert isinstance(write("new"), Outcome)
    assert isinstance(write("there", config={}), Outcome)


def test_what_has_expired_leaves_its_room_to_a_write() -> None:
    """Expired records count for nothing, also where no read has passed them. (§0.10)"""
    engine = Harness()
    engine.put(ttl_ms=100, cap_records=1, discard="reject")
    engine.append("a")
    assert STATUSES[refusal(engine.append, "b").code] == 422

    engine.now_ms += 1000

    assert engine.append("b")["seqs"] == [2]


def test_the_room_that_a_write_needs_in_the_log() -> None:
    """Its records, where they are logged, and its topic, where that has to be made. (§2)"""
    engine = Harness()
    engine.put("disk")
    engine.put("volatile", durability="ephemeral")
    long = "x" * 50_000
    engine.room_bytes = 20_000
    assert STATUSES[refusal(engine.append, long, name="disk").code] == 429
    assert engine.append(long, name="volatile")["seqs"] == [1]

    engine.room_bytes = FRAME_BYTES + 1000
    assert engine.append("short", name="disk")["seqs"] == [1]
    assert STATUSES[refusal(engine.append, "short", name="new").code] == 429
    engine.room_bytes = 2 * FRAME_BYTES + 1000
    assert engine.append("short", name="new")["seqs"] == [1]


def test_a_repeated_batch_is_told_what_the_first_was() -> None:
    """Under one key of one topic, within its window, whatever the retry holds. (§0.8)"""
    engine = Harness()
    engine.put(idempotency_window_ms=1000)
    engine.append("a")
    assert engine.append("b", "c", idempotency_key="k")["seqs"] == [2, 3]
    engine.append("d")
    before = len(engine.events)

    again = engine.append("other", idempotency_key="k")
    assert (again["seqs"], again["deduped"], again["head_seq"]) == ([2, 3], True, 4)
    assert len(engine.events) == before
    assert engine.append("e", name="u", idempotency_key="k")["seqs"] == [1]

    engine.now_ms += 1001
    assert engine.append("f", idempotency_key="k")["seqs"] == [5]
    assert engine.datas("t") == ["a", "b", "c", "d", "f"]


def test_a_repeated_batch_waits_for_the_first() -> None:
    """A hit is answered when the original is durable, and its head is no older than that. (§0.8)"""
    engine = Harness(auto=False)
    engine.put(durability="fsync")
    engine.sync()
    body = orjson.dumps({"records": [{"data": 1}, {"data": 2}], "idempotency_key": "k"})
    command = parse_append("t", body, engine.limits, return_seqs=True, header_key=None)
    engine.ask(command)

    waits = engine.ask(command)
    assert isinstance(waits, Appended)
    assert (waits.first_seq, waits.head_seq, waits.gate) == (1, 2, Gate.SYNCED)

    engine.sync()
    known = engine.ask(command)
    assert isinstance(known, Appended)
    assert (known.first_seq, known.head_seq, known.gate) == (1, 2, Gate.NOW)


def test_a_window_of_none_forgets_a_key() -> None:
    """Also one that was remembered while there was a window. (§0.8)"""
    engine = Harness()
    engine.put(idempotency_window_ms=1000)
    engine.append("a", idempotency_key="k")

    engine.put(idempotency_window_ms=0)

    assert engine.append("a", idempotency_key="k")["seqs"] == [2]


def test_a_delete_is_silent_and_says_what_is_left() -> None:
    """No tombstone for what was deleted on request; a second one finds nothing. (§5)"""
    engine = Harness()
    engine.append(*"abcd")

    first = engine.delete(before_seq=3)
    assert (first["deleted"], first["count"], first["earliest_seq"]) == (2, 2, 3)
    assert first["head_seq"] == 4
    assert engine.delete(before_seq=3)["deleted"] == 0
    assert engine.datas("t") == ["c", "d"]


def test_a_delete_is_of_what_was_there_when_it_was_asked() -> None:
    """A bound beyond the head takes nothing that comes later. (§5)"""
    engine = Harness()
    engine.append("a", "b")
    assert engine.delete(before_seq=10**6)["deleted"] == 2

    assert engine.append("c")["seqs"] == [3]
    assert engine.datas("t") == ["c"]


def test_a_delete_needs_both_to_hold() -> None:
    """A match and a bound together take what matches below the bound. (§5)"""
    engine = Harness()
    engine.append(*(tagged(tag, i) for i, tag in enumerate("xyxyx")))

    assert engine.delete(before_seq=4, match="x")["deleted"] == 2
    assert engine.seqs() == [2, 4, 5]
    assert engine.delete(match="y")["deleted"] == 2
    assert engine.seqs() == [5]


def test_a_purge_keeps_the_newest() -> None:
    """All but the newest `keep` that match; of a topic with no more than those, none. (ADR-10)"""
    engine = Harness()
    engine.append(*(tagged(tag, i) for i, tag in enumerate("xyxyx")))

    kept = engine.ask(Purge("t", None, 5, None))
    assert isinstance(kept, Outcome)
    assert engine.seqs() == [1, 2, 3, 4, 5]
    assert engine.purge(keep=2)["purged"] == 3
    assert engine.seqs() == [4, 5]
    assert engine.purge()["purged"] == 2
    assert engine.state()["count"] == 0


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_an_append_and_a_delete_wait_for_what_the_class_promises(durability: str) -> None:
    """A sync in class `fsync`, the write in the others. (§0.10)"""
    engine = Harness()
    engine.put(durability=durability)
    gates = []
    ask = engine.ask

    def noted(command: object) -> object:
        found = ask(command)  # type: ignore[arg-type]
        assert isinstance(found, Outcome)
        gates.append(found.gate)
        return found

    engine.ask = noted  # type: ignore[assignment,method-assign]
    engine.append("a", "b")
    engine.delete(before_seq=2)

    assert gates == [Gate.SYNCED if durability == "fsync" else Gate.WRITTEN] * 2


@pytest.mark.parametrize("durability", ["ephemeral", "disk", "fsync"])
def test_an_erasure_waits_for_a_sync(durability: str) -> None:
    """In every class, and names the topic whose bytes are to go; a delete names none. (§5)"""
    engine = Harness()
    engine.put(durability=durability)
    engine.append("a", "b")

    erased = engine.ask(parse_delete("t", b'{"before_seq":2,"erase":true}', engine.limits))
    deleted = engine.ask(parse_delete("t", b'{"before_seq":3}', engine.limits))

    assert isinstance(erased, Deleted)
    assert (erased.removed, erased.erases, erased.gate) == (
        1,
        (engine.topic().topic_id,),
        Gate.SYNCED,
    )
    assert isinstance(deleted, Deleted)
    assert (deleted.removed, deleted.erases) == (1, ())


def test_a_delete_of_nothing_there_is_404() -> None:
    """It creates no topic. (§5)"""
    engine = Harness()
    assert STATUSES[refusal(engine.delete, before_seq=1).code] == 404
    assert STATUSES[refusal(engine.purge).code] == 404
    assert not engine.engine.state.topics


@pytest.mark.parametrize("bound", [{}, {"before_seq": 1000}, {"before_seq": 5}])
def test_a_delete_in_parts_is_of_the_moment_of_its_decision(
    bound: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read may have shown an old record beside one that came while the delete searched.  No moment
    had one of them without the other: both are gone, or neither, within the bound that was given. (§5)"""
    monkeypatch.setattr(partial_scans, "LOOKS_MAX", 2)
    engine = Harness(segment_max_records=2)
    for _ in range(4):
        engine.append(tagged("x"), tagged("y"))
        engine.seal()

    first = engine.ask(parse_delete("t", orjson.dumps({"match": "*", **bound})))
    assert isinstance(first, Parked)
    for _ in range(3):
        engine.append(tagged("x"))
    finish(engine)

    assert engine.seqs() == list(range(bound.get("before_seq", 12), 12))
    assert engine.topic().recount() == (engine.topic().count, engine.topic().size_bytes)


def test_a_purge_in_parts_keeps_the_newest_of_its_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records that came while it searched are the newest. (ADR-10)"""
    monkeypatch.setattr(partial_scans, "LOOKS_MAX", 2)
    engine = Harness(segment_max_records=2)
    for _ in range(4):
        engine.append(tagged("x"), tagged("y"))
        engine.seal()

    first = engine.ask(parse_purge("t", orjson.dumps({"keep": 2, "filter": "x"})))
    assert isinstance(first, Parked)
    for _ in range(3):
        engine.append(tagged("x"))
    finish(engine)

    assert engine.seqs() == [2, 4, 6, 8, 10, 11]


def finish(engine: Harness) -> None:
    """Let the engine go on until its scan is answered."""
    for _ in range(100):
        engine.read_fetches()
        engine.engine.work_off(engine.moment)
        engine.sync()
        if engine.engine.take_wakes():
            return
    raise AssertionError("the scan does not end")


@pytest.mark.parametrize("guess", [0, 3, 5000], ids=["right", "near", "of another length"])
def test_a_batch_that_was_rendered_before_is_what_it_would_be(guess: int) -> None:
    """A thread rendered it for the seqs and the time that it thought of. (§2)"""
    drafted, plain = Harness(), Harness()
    batch = [{"data": {"n": n}, "tag": "x", "node": "w", "meta": {"m": n}} for n in range(7)]
    for engine in (drafted, plain):
        assert engine.engine.next_seq("t") == 1
        engine.append("a")
        assert engine.engine.next_seq("t") == 2
        engine.now_ms += 1234
    command = drafted.appending(*batch)
    first_seq = drafted.engine.next_seq("t") + guess

    shown = drafted.ask(command.drafted(first_seq, drafted.now_ms - 999, lambda: None))

    assert isinstance(shown, Appended)
    assert plain.append(*batch)["seqs"] == [2, 3, 4, 5, 6, 7, 8]
    pages = [each.diff(include_tags=True) for each in (drafted, plain)]
    assert pages[0]["records"] == pages[1]["records"]
    assert drafted.topic().size_bytes == plain.topic().size_bytes
