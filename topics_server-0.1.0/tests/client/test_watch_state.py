"""Where a watch begins, and the cursor that says how far it is; without a connection (§7.2, §7.4)."""

import json
from typing import Any

import httpx
import pytest

from topics.client import NotFound, Record, Retry, TopicGone, Watched
from topics.client.retry import Clock
from topics.client.watch_state import WatchState


def watch(*topics: Any, **options: Any) -> WatchState[Record[Any]]:
    clock = Clock(lambda: 0.0, lambda: 0.0)
    return WatchState(topics, Record, retry=Retry(for_s=0), clock=clock, **options)


def asked(state: WatchState[Any]) -> Any:
    call = state.call()
    assert call is not None
    assert call.body is not None
    return json.loads(call.body)


def session(**from_seqs: int) -> httpx.Response:
    topics = {
        name: {"from_seq": seq, "head_seq": 100, "earliest_seq": 1, "epoch": "e"}
        for name, seq in from_seqs.items()
    }
    return httpx.Response(200, json={"wid": "w", "topics": topics, "heartbeat_ms": 1000})


def frame(topic: str, seqs: range, frame_id: str) -> bytes:
    records = [{"$seq": seq, "$ts": 5, "data": seq} for seq in seqs]
    data = {"topic": topic, "records": records, "from_seq": seqs[0] - 1, "to_seq": seqs[-1]}
    text = json.dumps({**data, "head_seq": 100})
    return f"id: {frame_id}\nevent: record\ndata: {text}\n\n".encode()


def opened(state: WatchState[Any], **from_seqs: int) -> None:
    """Post the session, and open its stream."""
    call = state.call()
    assert call is not None
    assert state.posted(call, session(**from_seqs)) == 0.0
    state.stream()
    assert state.opens(httpx.Response(200, headers={"content-type": "text/event-stream"}))


@pytest.mark.parametrize(
    ("topics", "options", "begins"),
    [
        (("a",), {}, {"a": {}}),
        (("a", "b"), {"from_seq": 5}, {"a": {"from_seq": 5}, "b": {"from_seq": 5}}),
        ((["a", "b"],), {"tail": True}, {"a": {"tail": True}, "b": {"tail": True}}),
        (({"a": 7, "b": {}},), {"from_seq": 5}, {"a": {"from_seq": 7}, "b": {"from_seq": 5}}),
        (({"a": {"from_ts": 9}},), {"from_seq": 5}, {"a": {"from_ts": 9}}),
        (({"a": {"match": "x"}},), {"tail": True}, {"a": {"match": "x", "tail": True}}),
    ],
)
def test_a_topic_s_own_beginning_goes_before_the_watch_s(
    topics: Any, options: Any, begins: dict[str, Any]
) -> None:
    """One place to begin replaces another, and nothing else. (§7.2)"""
    assert asked(watch(*topics, **options))["topics"] == begins


@pytest.mark.parametrize("topics", [(1,), ([1],), ({"a": "x"},), ({1: 2},), ({"a": {"from": 1}},)])
def test_what_is_no_beginning_is_a_mistake(topics: Any) -> None:
    """Told by the call, before anything is sent."""
    with pytest.raises(TypeError):
        watch(*topics)


def test_a_cursor_is_the_id_of_the_frame_that_was_handed_out() -> None:
    """Within a frame it names the seq that was reached, and none that was not. (§7.4)"""
    state = watch("a")
    opened(state, a=0)
    cursors = []

    for item in state.take(frame("a", range(1, 4), "ID1")):
        assert isinstance(item, Watched)
        cursors.append(state.cursor)

    assert cursors[-1] == "ID1"
    for seen, cursor in enumerate(cursors[:-1], 1):
        other = watch("a", cursor=cursor)
        opened(other, a=0)
        assert seqs(other, frame("a", range(1, 4), "ID1")) == list(range(seen + 1, 4))


def test_a_frame_that_comes_again_is_handed_out_from_where_it_was_left() -> None:
    """A stream that was cut is opened behind its last id; what overlaps is left out. (§7.4)"""
    state = watch("a")
    opened(state, a=0)
    seen = seqs(state, frame("a", range(1, 3), "ID1"))
    call, _ = state.stream()

    assert call.last_event_id == "ID1"
    assert seen + seqs(state, frame("a", range(1, 6), "ID2")) == [1, 2, 3, 4, 5]


def test_a_session_of_which_no_id_is_known_is_posted_anew() -> None:
    """It may have sent a frame that did not arrive, and without an id there is no way back. (§7.4)"""
    state = watch("a")
    opened(state, a=3)

    assert asked(state)["topics"] == {"a": {"from_seq": 3}}


def seqs(state: WatchState[Record[Any]], piece: bytes) -> list[int]:
    items = [watched.item for watched in state.take(piece)]
    return [item.seq for item in items if isinstance(item, Record)]


@pytest.mark.parametrize("cursor", ["x.y", "x.!!", "x.eyJhIjoieCJ9"])
def test_a_cursor_of_something_else_is_a_mistake(cursor: str) -> None:
    """`ValueError`, and not a watch from the start. (§7.4)"""
    with pytest.raises(ValueError, match="not the cursor"):
        watch("a", cursor=cursor)


def test_a_watch_of_no_topic_that_exists_is_over() -> None:
    """With `lenient`, topics that do not exist are left out; with the last the watch is over. (§7.2)"""
    state = watch("a", lenient=True)
    call = state.call()
    assert call is not None

    state.posted(call, session())

    assert state.is_over


def test_a_topic_that_ends_is_told_once() -> None:
    """And none of its frames is handed out after that. (§7.5)"""
    state = watch("a", "b")
    opened(state, a=0, b=0)
    gone = b'id: ID1\nevent: topic-deleted\ndata: {"topic":"a","head_seq":7}\n\n'

    items = list(state.take(gone + gone + frame("a", range(1, 3), "ID2")))

    assert items == [Watched("a", TopicGone(head_seq=7))]
    assert not state.is_over
    assert state.cursor == "ID2"


def test_a_session_that_is_refused_raises() -> None:
    """With no patience left, the server's own error. (§7.1)"""
    state = watch("a")
    call = state.call()
    assert call is not None
    refusal = {"error": {"code": "topic_not_found", "message": "no a"}}

    with pytest.raises(NotFound):
        state.posted(call, httpx.Response(404, json=refusal))


def test_silence_counts_as_a_loss_after_two_heartbeats() -> None:
    """And some slack. (§7.6)"""
    state = watch("a")
    opened(state, a=0)

    _, read_timeout_s = state.stream()

    assert 2.0 < read_timeout_s < 10.0
