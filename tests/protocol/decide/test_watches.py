"""Watch commands: where a session begins, what limits it, and what a stream shows first (§7)."""

import pytest

from protocol.harness import Harness, refusal
from protocol.viewers import Socket, Viewer
from topics.protocol.http.statuses import STATUSES
from topics.protocol.model.commands import Begin
from topics.protocol.state.watches import SESSION_TTL_MS


@pytest.fixture
def engine() -> Harness:
    engine = Harness()
    engine.append("a", "b", "c")
    return engine


def test_a_session_says_where_it_stands(engine: Harness) -> None:
    """After a seq, or at the head with `tail`; with head, earliest seq and epoch of each. (§7.2)"""
    engine.append("x", "y", name="u")
    viewer = Viewer(engine, topics={"t": {"from_seq": 1}, "u": {"tail": True}})

    told = viewer.posted["topics"]
    assert viewer.cursors == {"t": 1, "u": 2}
    assert {name: (each["from_seq"], each["head_seq"]) for name, each in told.items()} == {
        "t": (1, 3),
        "u": (2, 2),
    }
    assert viewer.open().told() == ["t 2-3", "t caught up at 3", "u caught up at 2"]


def test_a_topic_that_is_not_there_refuses_the_session(engine: Harness) -> None:
    """404 and no session is made; leniently the topic is left out. (§7.2)"""
    assert STATUSES[refusal(Viewer, engine, "t", "none").code] == 404
    assert not engine.engine.watches.sessions
    assert "none" not in engine.engine.state.topics

    assert list(Viewer(engine, "t", "none", lenient=True).cursors) == ["t"]


def test_sessions_have_a_limit_that_idle_ones_do_not_count_towards() -> None:
    """429 with the limit; a session that nobody opened for its lifetime makes room. (§7.2, §11)"""
    engine = Harness(max_watch_sessions=1)
    engine.append("a")
    old = Viewer(engine)

    refused = refusal(Viewer, engine)
    assert STATUSES[refused.code] == 429
    assert refused.detail == {"limit": "max_watch_sessions", "max": 1}

    engine.now_ms += SESSION_TTL_MS + 1
    new = Viewer(engine)
    assert list(engine.engine.watches.sessions) == [new.wid]
    assert STATUSES[refusal(old.open).code] == 404


def test_a_takeover_needs_no_second_connection() -> None:
    """Connections have a limit; a stream that takes its session's place counts once. (§7.3, §11)"""
    engine = Harness(max_sse_connections=1)
    engine.append("a")
    first, second = Viewer(engine), Viewer(engine)
    first.open()
    first.open()

    for opened in (second.open, lambda: Socket(engine)):
        refused = refusal(opened)
        assert STATUSES[refused.code] == 429
        assert refused.detail == {"limit": "max_sse_connections", "max": 1}
    first.close()
    assert second.open().told() == ["t 1", "t caught up at 1"]


def test_no_frame_is_larger_than_half_a_mebibyte() -> None:
    """Whatever its budget, but for one record that is: each waits in memory for its client, and is
    made in one go. The next frame goes on behind it. (§7.2, §7.6)"""
    engine = Harness()
    engine.append(*["x" * 100_000] * 12, "y" * 900_000, "z")
    socket = Socket(engine)
    socket.subscribe("t", budget_bytes=8 << 20)

    assert socket.told() == ["t 1-5", "t 6-10", "t 11-12", "t 13", "t 14", "t caught up at 14"]


def test_an_id_that_the_client_kept_wins(engine: Harness) -> None:
    """A stream goes on behind the frame whose id is sent back; an id that is none of ours is like
    no id. (§7.4)"""
    viewer = Viewer(engine).open()
    start = viewer.id
    assert viewer.told() == ["t 1-3", "t caught up at 3"]

    assert viewer.open("not an id").told() == ["t caught up at 3"]
    assert viewer.open(start).told() == ["t 1-3", "t caught up at 3"]


def test_a_socket_subscribes_to_all_or_none() -> None:
    """A missing topic, or one too many, leaves what there was. (§7.7, §11)"""
    engine = Harness(max_watch_topics=2)
    for name in ("t", "u", "v"):
        engine.append("a", name=name)
    socket = Socket(engine)
    socket.subscribe("t", begin=Begin(tail=True))

    assert STATUSES[refusal(socket.subscribe, "t", "none").code] == 404
    assert STATUSES[refusal(socket.subscribe, "u", "v").code] == 400
    assert {name: each.cursor for name, each in socket.stream.watched.items()} == {"t": 1}

    socket.subscribe("t", "u", begin=Begin(tail=True))
    assert sorted(socket.stream.watched) == ["t", "u"]


def test_the_topic_of_higher_priority_comes_first() -> None:
    """Whatever order they were named in. (§7.6)"""
    engine = Harness()
    for name, priority in (("low", 1), ("high", 9)):
        engine.put(name, priority=priority)
        engine.append("a", name=name)

    told = Viewer(engine, "low", "high").open().told()
    assert told.index("high 1") < told.index("low 1")


def test_a_stream_shows_no_record_whose_time_is_over() -> None:
    """Time passes for a topic before a stream looks at it: the loss is told instead. (§3.3)"""
    engine = Harness()
    engine.put(ttl_ms=100)
    viewer = Viewer(engine).open()
    assert viewer.told() == ["t caught up at 0"]
    engine.append("a", "b")
    engine.now_ms += 101

    assert viewer.told() == ["t lost 1-2 ttl"]
