"""The engine's turns: what is shown when, who waits, and what wakes them (§2, §3)."""

import pytest

from topics.protocol.engine import Engine
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.codec import Frames
from topics.protocol.model.outcomes import Gate, Outcome

from .harness import Harness, by, refusal, tagged


def test_an_fsync_record_is_shown_once_it_is_synced() -> None:
    """Readers see what is published: with the write, or with the sync where that is promised. (§0.10)"""
    for durability, seen in (("ephemeral", 1), ("memory", 1), ("disk", 1), ("fsync", 0)):
        engine = Harness()
        engine.put(durability=durability)
        engine.auto = False
        engine.append("x")
        before = engine.diff()
        lsn = engine.write()
        written = engine.state()
        engine.engine.on_synced(lsn)
        after = engine.state()

        assert (before["head_seq"], before["records"], before["caught_up"]) == (0, [], True)
        assert (written["head_seq"], written["count"]) == (seen, seen)
        assert (after["head_seq"], after["count"], after["earliest_seq"]) == (1, 1, 1)


def test_what_is_not_shown_is_not_counted_either() -> None:
    """Count, bytes and earliest are those of published records. (§1.2)"""
    engine = Harness()
    engine.put(durability="fsync")
    engine.append("a")
    whole = engine.state()
    engine.auto = False
    engine.append("b", "c")
    engine.write()

    assert engine.state() == whole
    assert engine.seqs() == [1]
    assert engine.listing()["topics"][0]["head_seq"] == 1


def test_a_retry_is_told_no_sooner_than_the_original() -> None:
    """A repeated key waits for the sync that its records wait for. (§0.8)"""
    engine = Harness()
    engine.put(durability="fsync")
    engine.auto = False
    engine.append("a", idempotency_key="k")
    engine.write()
    again = engine.append("a", idempotency_key="k")

    assert again["deduped"] is True
    gates = []
    ask = engine.ask
    engine.ask = lambda c: gates.append(o := ask(c)) or o  # type: ignore[method-assign, func-returns-value, assignment]
    engine.append("a", idempotency_key="k")
    engine.sync()
    engine.append("a", idempotency_key="k")
    assert [o.gate for o in gates if isinstance(o, Outcome)] == [Gate.SYNCED, Gate.NOW]


def test_a_failed_log_is_read_only() -> None:
    """Writes are refused with 503, reads go on, and what was not written stays unseen. (§8.3)"""
    engine = Harness()
    engine.append("a")
    engine.auto = False
    engine.append("b")
    engine.engine.on_failed()

    assert engine.seqs() == [1]
    for call, args in ((engine.append, "u"), (engine.put, "u"), (engine.drop, "t")):
        rejection = refusal(call, *args)
        assert (STATUSES[rejection.code], rejection.detail) == (503, {"reason": "read_only"})


def test_a_log_that_failed_for_want_of_space_says_so() -> None:
    """503 with `detail.limit`: it passes by itself. (§11)"""
    engine = Harness()
    engine.append("a")
    engine.engine.on_failed(lacks_space=True)

    rejection = refusal(engine.append, "u")

    assert engine.engine.lacks_space
    assert STATUSES[rejection.code] == 503
    assert rejection.detail == {"reason": "read_only", "limit": "disk"}


@pytest.mark.parametrize("room", [0, 4095])
def test_no_room_refuses_appends(room: int) -> None:
    """429 `disk`; nothing was assigned. (§11)"""
    engine = Harness()
    engine.append("a")
    engine.room_bytes = room

    for call, args in ((engine.append, ("b",)), (engine.put, ("new",)), (engine.delete, ())):
        named = {"before_seq": 2} if not args else {}
        rejection = refusal(call, *args, **named)
        assert (STATUSES[rejection.code], (rejection.detail or {})["limit"]) == (429, "disk")
    assert engine.seqs() == [1]
    engine.room_bytes = 1 << 30
    assert engine.append("b")["seqs"] == [2]


def test_events_of_a_turn_share_its_room() -> None:
    """What is decided but not written yet counts. (§11)"""
    engine = Harness()
    engine.put()
    engine.auto = False
    engine.room_bytes = 10_000
    engine.append("a" * 2000)
    engine.append("b" * 2000)
    assert STATUSES[refusal(engine.append, "c" * 2000).code] == 429
    engine.write()
    engine.append("c" * 2000)


def test_time_never_runs_backwards() -> None:
    """`$ts` of a later record is no smaller, whatever the wall clock says. (§0.4)"""
    engine = Harness()
    engine.append("a")
    engine.now_ms -= 5000
    engine.append("b")

    first, second = (r["$ts"] for r in engine.diff()["records"])
    assert first == second
    assert isinstance(engine.engine, Engine)


def test_replay_tells_the_same_story() -> None:
    """`apply` over the events of a session is that session. (§0.10)"""
    engine = Harness(segment_max_records=4)
    engine.put(cap_records=20)
    for i in range(10):
        engine.append(tagged(f"t{i % 3}"), by("n"), name="t", idempotency_key=f"k{i}")
    engine.delete(match="t1")
    engine.put(cap_records=6)
    engine.append("other", name="u")
    engine.drop("u")
    copy = Harness()
    for event in engine.events:
        copy.engine.state.apply(event)
    copy.engine.finish_recovery(copy.store.recover(None), START)  # type: ignore[arg-type]

    skipped = ("effective_priority", "last_read_ts")
    assert {k: v for k, v in copy.state().items() if k not in skipped} == {
        k: v for k, v in engine.state().items() if k not in skipped
    }
    assert copy.diff() == engine.diff()
    assert [t["topic"] for t in copy.listing()["topics"]] == ["t"]
    assert copy.append("x", idempotency_key="k3")["deduped"] is True


def test_a_replica_follows_events_of_all_kinds() -> None:
    """What another engine decided, a unit at a time: a topic that goes within its unit is never seen, one
    that goes later ends for who reads it, and jobs leave the queue that dead letters come from."""
    leader, replica = Harness(), Harness()
    done = 0

    def catch_up() -> None:
        nonlocal done
        events, done = leader.events[done:], len(leader.events)
        replica.engine.follow(events, b"".join(Frames.of(events).parts))
        replica.write()

    leader.put(name="q", type="queue", max_deliveries=1, dead_letter="d", lease_ms=1000)
    leader.append("x", "y", name="q")
    leader.append("z", name="short")
    leader.drop("short")
    catch_up()
    assert [t["topic"] for t in replica.listing()["topics"]] == ["q"]
    assert replica.state("q")["count"] == 2

    assert leader.claimed() == [1]
    leader.now_ms += 1001
    assert leader.claimed() == [2]
    catch_up()
    assert replica.state("q")["count"] == 1
    assert replica.datas() == ["x"]

    leader.drop("q")
    catch_up()
    assert [t["topic"] for t in replica.listing()["topics"]] == ["d"]


def test_a_counter_of_the_process_leaves_out_the_replay() -> None:
    """What was appended before the start is not a rate of the first second. (§8.6)"""
    engine = Harness()
    engine.append("a", "b")
    assert engine.engine.state.appended_total == 2
    copy = Harness()
    for event in engine.events:
        copy.engine.state.apply(event)
    copy.engine.finish_recovery(copy.store.recover(None), START)  # type: ignore[arg-type]

    assert copy.engine.state.appended_total == 0
    copy.append("c", name="u")
    assert copy.engine.state.appended_total == 1


START = 1_750_000_000_000


def test_an_engine_says_what_there_is_of_a_topic_by_its_name() -> None:
    """For those who carry its streams and its log: whether the log has it whole, and how far it is
    shown."""
    harness = Harness()
    harness.put("a")
    harness.put("quick", durability="ephemeral")
    harness.append(1, 2, name="a")
    engine = harness.engine
    assert engine.topic_count == 2
    assert not (engine.is_memory_full)
    assert not (engine.is_writing)
    assert engine.held_heads() == {}
    assert [engine.is_logged(name) for name in ("a", "quick", "none")] == [True, False, False]
    assert [engine.has_ephemeral((name,)) for name in ("a", "quick", "none")] == [
        False,
        True,
        False,
    ]
    topic = harness.topic("a")
    engine.note_read(topic.topic_id, harness.now_ms + 5)
    engine.note_read(topic.topic_id, harness.now_ms)  # it was read later by another
    engine.note_read(99, harness.now_ms)
    assert topic.last_read_ms == harness.now_ms + 5
