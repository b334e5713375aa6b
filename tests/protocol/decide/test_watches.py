"""Watch commands: where a session begins, what limits it, and what a stream shows first (§7)."""

import msgspec
import pytest

from protocol.harness import Harness, refusal
from protocol.viewers import Socket, Viewer
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.faces.http.watch import parse_watch
from topics.protocol.model.access import Caller, unknown_key
from topics.protocol.model.commands import Begin
from topics.protocol.model.holder import Holder
from topics.protocol.model.permission import permitted
from topics.protocol.state.watched import Stream, StreamEnd
from topics.protocol.state.watches import SESSION_TTL_MS, Session


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


# Owners (§7.1, §11).


class Owner:
    """What one key has open, as a driver holds it."""

    def __init__(self, engine: Harness, name: str) -> None:
        self.caller = Caller(name)
        self.engine = engine
        self.commands = engine.engine.watch_commands
        self.wakes = 0

    def wake(self) -> None:
        self.wakes += 1

    def post(self) -> str:
        body = b'{"topics":{"t":{}}}'
        wid = f"wid_{self.caller.name}"
        command = parse_watch(body, self.engine.limits, wid=wid, lenient=False)
        self.engine.ask(permitted(command, self.caller))
        return wid

    def open(self, wid: str) -> tuple[Session, Stream]:
        return self.commands.open_stream(wid, None, self.wake, self.engine.now_ms, self.caller)

    def dial(self) -> Stream:
        return self.commands.open_socket(self.wake, self.caller)


def test_a_session_opens_for_who_made_it(engine: Harness) -> None:
    """Another key is 401, in the words for one that is unknown, and opens nothing. (§7.1)"""
    mine, other = Owner(engine, "mine"), Owner(engine, "other")
    wid = mine.post()

    refused = refusal(other.open, wid)

    assert (STATUSES[refused.code], refused.message) == (401, unknown_key().message)
    assert refusal(engine.engine.watch_commands.require_session, wid, engine.now_ms).code is (
        refused.code
    )
    assert mine.open(wid)[0].owner is mine.caller
    assert (mine.caller.streams, other.caller.streams) == (1, 0)


def test_streams_of_a_key_have_a_limit() -> None:
    """Event streams and sockets together; one that takes over counts once, one that was closed does not,
    however often; another key has its own. (§11)"""
    engine = Harness(max_sse_connections_per_key=2)
    engine.append("a")
    mine, other = Owner(engine, "mine"), Owner(engine, "other")
    session, stream = mine.open(mine.post())
    socket = mine.dial()

    assert refusal(mine.dial).detail == {"limit": "max_sse_connections_per_key", "max": 2}
    other.dial()
    _, newer = mine.open(session.wid)
    engine.engine.watches.close_session_stream(session, stream, engine.now_ms)
    assert mine.caller.streams == 2
    for _ in range(2):
        engine.engine.watches.close_socket(socket)
        engine.engine.watches.close_session_stream(session, newer, engine.now_ms)
    assert mine.caller.streams == 0


def test_a_removed_key_has_no_sessions_and_no_streams(engine: Harness) -> None:
    """Streams and sockets are ended and woken to say so; sessions are forgotten; those of another key
    go on. (§7.1)"""
    mine, other = Owner(engine, "mine"), Owner(engine, "other")
    session, stream = mine.open(mine.post())
    kept, _ = other.open(other.post())
    socket, watches = mine.dial(), engine.engine.watches
    before = mine.wakes

    engine.engine.revoke(mine.caller)

    assert mine.wakes == before + 2
    assert {stream.ended_by, socket.ended_by} == {StreamEnd.KEY_REMOVED}
    assert list(watches.sessions) == [kept.wid]
    assert STATUSES[refusal(mine.open, session.wid).code] == 404
    engine.append("d")
    watches.close_session_stream(session, stream, engine.now_ms)
    watches.close_socket(socket)
    assert (mine.caller.streams, other.caller.streams) == (0, 1)
    assert kept.stream is not None
    assert kept.stream.ended_by is None


def test_sessions_without_topics_go_with_their_key_as_others_do(engine: Harness) -> None:
    """Leniently a session may have no topic that is there: it takes no memory, and ends like any
    other. (§7.2, §7.7)"""
    mine, other = Owner(engine, "mine"), Owner(engine, "other")
    holder = Holder("mine", is_key=True)
    watches = engine.engine.watches
    for n, topic in enumerate(("none", "t", "none")):
        body = b'{"topics":{"%b":{}}}' % topic.encode()
        command = parse_watch(body, engine.limits, wid=f"w{n}", lenient=True)
        engine.ask(msgspec.structs.replace(permitted(command, mine.caller), holder=holder))
    assert watches.session_shares.held(holder) == 3
    kept, _ = other.open(other.post())

    engine.engine.revoke(mine.caller)

    assert list(watches.sessions) == [kept.wid]
    assert watches.byte_shares.held(holder) == watches.session_shares.held(holder) == 0
