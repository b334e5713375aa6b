"""Where connected clients stand: their places, and how far they are from the heads."""

from collections.abc import Mapping

import pytest

from protocol.harness import Harness
from protocol.viewers import Viewer
from topics.protocol.driver.client_states import (
    TOPICS_SHOWN,
    ClientState,
    ClientTopic,
    ClientTopics,
    client_topics,
    joined,
)
from topics.protocol.driver.streams import JobStream, Streams
from topics.protocol.model.access import ANYONE
from topics.protocol.model.commands import Begin, Claim, View
from topics.protocol.model.holder import NOBODY


@pytest.fixture
def engine() -> Harness:
    found = Harness()
    found.put("a")
    found.put("b")
    found.append(1, 2, 3, name="a")
    found.append(1, name="b")
    return found


def topics_of(engine: Harness, seqs: Mapping[str, int | None], *known: str) -> ClientTopics:
    return client_topics(
        engine.engine, seqs, lambda _: True, lambda name: not known or name in known
    )


def test_a_stream_of_a_session_says_where_it_stands(engine: Harness) -> None:
    """Behind what was pulled, in each topic; a topic that was deleted is none of it any more. (§8.9)"""
    stream = Streams(engine.engine).session(
        Viewer(engine, "a", "b").wid, None, lambda: None, engine.now_ms
    )
    assert stream.state() == ClientState({"a": 0, "b": 0})

    while stream.next_frame(engine.now_ms) is not None:
        pass
    assert stream.state().seqs == {"a": 3, "b": 1}

    engine.drop("b")
    while stream.next_frame(engine.now_ms) is not None:
        pass
    assert stream.state().seqs == {"a": 3}


def test_a_socket_says_where_it_stands(engine: Harness) -> None:
    """In what it is subscribed to. (§7.7, §8.9)"""
    socket = Streams(engine.engine).socket(lambda: None)
    assert socket.state() == ClientState({})
    socket.add({"a": Begin(from_seq=1)}, View(256, 1 << 20), engine.now_ms)
    assert socket.state().seqs == {"a": 1}


def test_a_worker_says_what_it_holds(engine: Harness) -> None:
    """Jobs that were pushed to it and are not done; it has no place in the queue. (§10.8, §8.9)"""
    engine.put("q", type="queue")
    asked = Claim("q", "w", 2, None, 0)
    stream = JobStream(engine.engine, asked, lambda: None, engine.now_ms, ANYONE, NOBODY)
    assert stream.state() == ClientState({"q": None}, in_flight=0)
    engine.append(1, 2, 3, name="q")
    stream.take(engine.moment)
    assert stream.state().in_flight == 2


def test_the_greatest_lag_comes_first(engine: Harness) -> None:
    """A lag is the distance to the head; a cursor beyond it has none. (§8.9)"""
    found = topics_of(engine, {"b": 9, "a": 1, "gone": 4, "q": None})
    assert found == ClientTopics(
        [
            ClientTopic("a", 1, 2, None),
            ClientTopic("b", 9, 0, None),
            ClientTopic("gone", 4, None, None),
            ClientTopic("q", None, None, None),
        ],
        4,
        2,
    )


def test_only_what_this_engine_has_whole_has_a_lag(engine: Harness) -> None:
    """Of a topic whose records are in another process the head is not known here."""
    found = topics_of(engine, {"a": 1, "b": 0}, "b")
    assert [each.lag for each in found.shown] == [1, None]
    assert found.lag == 1
    assert topics_of(engine, {"a": 1}, "b").lag is None


def test_a_partition_says_its_number(engine: Harness) -> None:
    """Where its topic has several, the first one too. (§2.1, §8.9)"""
    engine.put("p", partitions=2)
    found = topics_of(engine, {"p": 0, "p#1": 0})
    assert [(each.name, each.partition) for each in found.shown] == [("p", 0), ("p#1", 1)]


def test_a_bounded_number_is_shown(engine: Harness) -> None:
    """All are counted; what may not be told of is not. (§8.9)"""
    seqs = {f"t{n}": 0 for n in range(TOPICS_SHOWN + 4)}
    found = client_topics(engine.engine, seqs, lambda name: name != "t0", lambda _: True)
    assert (len(found.shown), found.count) == (TOPICS_SHOWN, TOPICS_SHOWN + 3)
    assert "t0" not in {each.name for each in found.shown}


def test_two_processes_know_a_part_each(engine: Harness) -> None:
    """Counts and lags add up."""
    one, other = topics_of(engine, {"b": 0}), topics_of(engine, {"a": 0})
    both = joined(one, other)
    assert [each.name for each in both.shown] == ["a", "b"]
    assert (both.count, both.lag) == (2, 4)
    nothing = topics_of(engine, {})
    assert joined(nothing, nothing) == ClientTopics([], 0, None)
    assert joined(one, nothing) == one
