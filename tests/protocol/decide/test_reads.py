"""Long polls: readers that wait for the next record, and when they are answered (§3)."""

from typing import Any

import pytest

from protocol.harness import Harness, by, tagged
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.errors import Rejection
from topics.protocol.model.events import Hole


def test_a_wait_is_over_with_the_first_record_this_reader_may_see() -> None:
    """Not with its own echoes, nor with other tags; its cursor has passed them. (§3.2)"""
    engine = Harness()
    engine.put()
    assert engine.wait(node="me", match="a*") is None

    engine.append(by("me") | {"tag": "a"})
    engine.append(tagged("b"))
    assert engine.woken() == []
    engine.append(by("you") | {"tag": "ab"})
    (page,) = engine.woken()
    assert [r["$seq"] for r in page["records"]] == [3]
    assert page["performance"] if "performance" in page else page["next_from_seq"] == 3


def test_a_wait_on_fsync_is_over_with_the_sync() -> None:
    """Nobody is woken for what might still be lost. (§0.10)"""
    engine = Harness()
    engine.put(durability="fsync")
    assert engine.wait() is None
    engine.auto = False
    engine.append("x")
    lsn = engine.write()
    assert engine.woken() == []
    engine.engine.on_synced(lsn)
    assert len(engine.woken()) == 1


def test_a_wait_ends_with_its_topic() -> None:
    """404, and the waiter is forgotten. (§1.4)"""
    engine = Harness()
    engine.put()
    assert engine.wait() is None
    engine.drop()
    (refused,) = engine.woken()
    assert isinstance(refused, Rejection)
    assert STATUSES[refused.code] == 404
    engine.append("x")
    assert engine.woken() == []


def test_a_wait_ends_with_its_time() -> None:
    """It is told what there is: nothing, and how far it is. (§3)"""
    engine = Harness()
    engine.append(by("me"))
    assert engine.wait(node="me") is None
    engine.engine.timeout("t", engine.last_token)
    (page,) = engine.woken()
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 1, True)
    engine.engine.timeout("t", engine.last_token)
    assert engine.woken() == []


def test_who_is_forgotten_is_not_woken() -> None:
    """The client is gone. (§3)"""
    engine = Harness()
    engine.put()
    assert engine.wait() is None
    engine.engine.forget("t", engine.last_token)
    engine.append("x")
    assert engine.woken() == []


def test_all_are_released_at_the_end() -> None:
    """The server stops: who waits is answered. (§3)"""
    engine = Harness()
    engine.put("a")
    engine.put("b")
    assert [engine.wait(name=n) for n in "aab"] == [None] * 3
    engine.engine.release_all()
    assert len(engine.woken()) == 3


def test_a_wait_does_not_stand_before_a_hole() -> None:
    """Everything before the hole was deleted: the loss behind it is told, not waited over. (§3.3)"""
    engine = Harness()
    engine.append("a", "b")
    topic = engine.topic()
    topic.holes.append(Hole(3, 5, "crash"))
    topic.head_seq = topic.published_seq = 5
    engine.delete(before_seq=3)

    page = engine.wait()
    assert page is not None
    while not page["caught_up"] and page["tombstone"] is None:
        page = engine.wait(page["next_from_seq"])
        assert page is not None
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (3, 5)


def test_a_wait_does_not_stand_where_a_scan_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that looked at its share of rows goes on with the next, it does not wait. (§3.2)"""
    monkeypatch.setattr("topics.protocol.state.selection.SCAN_ROWS_MAX", 10)
    engine = Harness()
    engine.append(*[by("me")] * 25, by("you"))

    from_seq: int = 0
    found: list[Any] = []
    while not found:
        page = engine.wait(from_seq, node="me")
        assert page is not None
        assert page["next_from_seq"] > from_seq
        from_seq, found = page["next_from_seq"], page["records"]
    assert [r["$seq"] for r in found] == [26]


def test_a_server_that_stops_answers_every_poll() -> None:
    """Of each topic, with what there is; none waits any more. (§0.5)"""
    engine = Harness()
    for name in ("t", "u"):
        engine.put(name)
        assert engine.wait(name=name) is None
    assert engine.wait() is None
    assert engine.engine.reads.parked == 3

    engine.engine.reads.release_all()

    assert [page["records"] for page in engine.woken()] == [[], [], []]
    assert engine.engine.reads.parked == 0
