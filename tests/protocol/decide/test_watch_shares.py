"""What watches may hold in memory: of all clients, and of one (§11, `max_watch_bytes`)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.harness import Harness
from protocol.viewers import Socket, Viewer
from topics.protocol.model.commands import View
from topics.protocol.model.errors import Rejection
from topics.protocol.model.tags import equals
from topics.protocol.state.watched import Watched, memory_bytes_of


def test_sessions_have_a_budget_of_bytes() -> None:
    """Their topics and filters count; the next session is 429, and one that is forgotten makes room.
    (§7.1, §11)"""
    engine = Harness(max_watch_bytes=20_000)
    engine.append(1)
    nodes = [f"node-{n}" for n in range(64)]
    Viewer(engine, node=nodes)
    Viewer(engine, node=nodes)
    watches = engine.engine.watches
    held_bytes = watches.byte_shares.used
    assert 2 * 64 * 60 < held_bytes < 20_000
    while watches.byte_shares.used + held_bytes // 2 <= 20_000:
        Viewer(engine, node=nodes)
    with pytest.raises(Rejection) as refused:
        Viewer(engine, node=nodes)
    assert refused.value.detail == {"limit": "max_watch_bytes", "max": 20_000}

    engine.now_ms += 300_001
    Viewer(engine, node=nodes)
    assert watches.byte_shares.used == held_bytes // 2
    assert watches.session_shares.used == len(watches.sessions) == 1


def test_a_session_that_is_too_large_by_its_names_is_refused_before_they_are_looked_up() -> None:
    """A flood of them costs little: 429, whatever the topics are.  One that leaves out topics which are
    not there counts those that are. (§7.2, §11)"""
    engine = Harness(max_watch_bytes=20_000)
    engine.append(1)
    watches = engine.engine.watches
    topics: dict[str, object] = {f"none-{n}": {} for n in range(40)}

    with pytest.raises(Rejection) as refused:
        Viewer(engine, topics=topics)
    Viewer(engine, topics=topics | {"t": {}}, lenient=True)

    assert refused.value.detail == {"limit": "max_watch_bytes", "max": 20_000}
    assert watches.byte_shares.refused == 1
    [session] = watches.sessions.values()
    assert list(session.watched) == ["t"]


@given(st.lists(st.tuples(st.text(max_size=9), st.integers(0, 2)), max_size=12))
def test_what_a_session_holds_is_the_sum_of_its_topics(named: list[tuple[str, int]]) -> None:
    """Filters count for each topic, shared or not, in whatever order they come. (§11)"""
    views = [
        View(limit=1, budget_bytes=1),
        View(limit=1, budget_bytes=1, nodes=("n", "node")),
        View(limit=1, budget_bytes=1, match=equals("tag"), nodes=("m",)),
    ]
    watched = [Watched(name, 1, 0, views[i]) for name, i in named]
    filters = [0, 2 * 60 + 5, 60 + 1 + 2 * (60 + 3)]

    assert memory_bytes_of(watched) == sum(one.memory_bytes for one in watched)
    assert [one.memory_bytes for one in watched] == [
        660 + len(name) + filters[i] for name, i in named
    ]


def test_subscriptions_of_sockets_count_as_well() -> None:
    """A second subscription of a topic takes the place of the first; a socket that closes holds
    nothing. (§7.7)"""
    engine = Harness(max_watch_bytes=10_000)
    engine.append(1)
    engine.append(1, name="u")
    socket = Socket(engine)
    watches = engine.engine.watches
    many = tuple(f"node-{n}" for n in range(64))
    for _ in range(5):
        socket.subscribe("t", nodes=many)
    large = watches.byte_shares.used
    socket.subscribe("t")
    assert watches.byte_shares.used < large
    socket.subscribe("t", nodes=many)
    other = Socket(engine)
    with pytest.raises(Rejection):
        other.subscribe("t", "u", nodes=many)
    for stream in list(watches.streams):
        watches.close_socket(stream)
        watches.close_socket(stream)
    assert other.stream not in watches.streams
    assert watches.byte_shares.used == watches.connection_shares.used == 0


def test_a_stream_that_takes_over_needs_no_slot() -> None:
    """With the bound reached, a session's stream may be replaced, and is counted once. (§7.3)"""
    engine = Harness(max_sse_connections=1)
    engine.append(1)
    viewer = Viewer(engine).open()
    first = viewer.stream
    viewer.open()
    watches = engine.engine.watches
    assert watches.connection_shares.used == 1
    watches.close_session_stream(viewer.session, first, engine.now_ms)
    assert watches.connection_shares.used == 1
    viewer.close()
    assert watches.connection_shares.used == 0
