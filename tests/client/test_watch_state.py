"""Where a watch begins, and the cursor that says how far it is; without a connection (§7.2, §7.4)."""

import json
from typing import Any

import httpx
import pytest

from topics.client import NotFound, PartitionRequired, Record, Retry, TopicGone, Watched
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


# ---------------------------------------------------------------------- partitions


def positions(
    *from_seqs: int, earliest_seq: int = 1, epoch: str = "e", first: int = 0
) -> dict[str, Any]:
    """A topic with several partitions, in an answer."""
    each = [
        {
            "partition": n,
            "from_seq": seq,
            "head_seq": 100,
            "earliest_seq": earliest_seq,
            "epoch": f"{epoch}{n}",
        }
        for n, seq in enumerate(from_seqs, first)
    ]
    return {**each[0], "partitions": each}


def answered(state: WatchState[Any], **topics: Any) -> None:
    """The session is made, and its stream open."""
    call = state.call()
    assert call is not None
    answer = {"wid": "w", "topics": topics, "heartbeat_ms": 1000}
    assert state.posted(call, httpx.Response(200, json=answer)) == 0.0
    state.stream()


def event(kind: str, frame_id: str, **data: Any) -> bytes:
    return f"id: {frame_id}\nevent: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def records(partition: int | None, seqs: range, frame_id: str = "ID", topic: str = "a") -> bytes:
    which = {} if partition is None else {"partition": partition}
    found = [{"$seq": seq, "$ts": 5, "data": seq} for seq in seqs]
    at = {"from_seq": seqs[0] - 1, "to_seq": seqs[-1], "head_seq": 100}
    return event("record", frame_id, topic=topic, **which, records=found, **at)


def told(state: WatchState[Any], *pieces: bytes) -> list[tuple[int, Any]]:
    """Partition, and seq or what else was handed out."""
    found = []
    for piece in pieces:
        for each in state.take(piece):
            item = each.item
            found.append((each.partition, item.seq if isinstance(item, Record) else item))
    return found


def test_items_say_which_partition_they_are_of() -> None:
    """A pair of topic and item still; 0 where the topic has one. (§2.1)"""
    state = watch("a", "b")
    answered(state, a=positions(0, 0), b={"from_seq": 0, "head_seq": 1, "earliest_seq": 1})

    items = [
        *state.take(records(1, range(1, 2))),
        *state.take(records(0, range(1, 2))),
        *state.take(records(None, range(1, 2), topic="b")),
    ]

    assert [(topic, item.seq) for topic, item in items if isinstance(item, Record)] == [
        ("a", 1),
        ("a", 1),
        ("b", 1),
    ]
    assert [each.partition for each in items] == [1, 0, 0]


def test_each_partition_has_a_place() -> None:
    """What comes again is left out by the seq of its own partition. (§7.4)"""
    state = watch("a")
    answered(state, a=positions(0, 0))
    cursors = []
    for each in state.take(records(1, range(1, 4), "ID1")):
        cursors.append(state.cursor)
        assert each.partition == 1
    assert told(state, records(0, range(1, 3), "ID2")) == [(0, 1), (0, 2)]

    assert told(state, records(1, range(2, 6))) == [(1, 4), (1, 5)]
    other = watch("a", cursor=cursors[0])
    answered(other, a=positions(0, 0))
    assert told(other, records(1, range(1, 4)), records(0, range(1, 2))) == [(1, 2), (1, 3), (0, 1)]


def test_partitions_that_join_are_read_from_their_beginnings() -> None:
    """While the stream goes on, with a frame or with a loss. (§2.1)"""
    state = watch("a")
    answered(state, a={"from_seq": 4, "head_seq": 100, "earliest_seq": 1})
    lost = {"gap_from": 1, "gap_to": 2, "reason": "from_seq_too_old", "earliest_seq": 3}

    assert told(state, records(None, range(5, 6)), records(0, range(6, 7))) == [(0, 5), (0, 6)]
    assert told(state, records(1, range(1, 3))) == [(1, 1), (1, 2)]
    stone = event("tombstone", "ID", topic="a", partition=2, head_seq=9, **lost)
    ((partition, item),) = told(state, stone)
    assert (partition, item.gap_from, item.gap_to) == (2, 1, 2)
    assert told(state, records(2, range(3, 4)), records(2, range(3, 5))) == [(2, 3), (2, 4)]
    assert told(state, records(1, range(1, 2), topic="unknown")) == []


def test_a_new_session_is_asked_for_with_the_place_of_each() -> None:
    """Without an id, by name; topics with one partition as they always were. (§7.2)"""
    state = watch({"a": {"match": "x"}}, "b")
    answered(state, a=positions(7, 8), b={"from_seq": 3, "head_seq": 3, "earliest_seq": 1})

    body = asked(state)

    assert body["cursor"] == {"a": 7, "a#1": 8}
    assert body["topics"]["b"] == {"from_seq": 3}
    assert body["topics"]["a"]["match"] == "x"


def test_a_kept_cursor_without_an_id_names_partitions() -> None:
    """It was made before the first frame had come. (§7.4)"""
    first = watch("a", "b")
    answered(first, a=positions(7, 8), b={"from_seq": 3, "head_seq": 3, "earliest_seq": 1})

    body = asked(watch("a", "b", cursor=first.cursor))

    assert body["cursor"] == {"a": 7, "a#1": 8}
    assert body["topics"]["b"] == {"from_seq": 3}


def test_a_topic_that_got_partitions_while_nobody_watched() -> None:
    """A place in it was a number, which is refused by now: it is said once more, by name. (§2.1)"""
    state = watch("a")
    answered(state, a={"from_seq": 4, "head_seq": 100, "earliest_seq": 1, "epoch": "e0"})
    refusal = {"error": {"code": "partition_required", "message": "several"}}
    call = state.call()
    assert call is not None
    assert json.loads(call.body or b"")["topics"] == {"a": {"from_seq": 4}}

    assert state.posted(call, httpx.Response(400, json=refusal)) == 0.0

    assert asked(state)["cursor"] == {"a": 4}
    answered(state, a=positions(4, 0))
    assert told(state, records(1, range(1, 2))) == [(1, 1)]


def test_a_seq_of_a_topic_with_several_partitions_is_a_mistake() -> None:
    """Where the caller gave it: it is not known of which. (§2.1)"""
    state = watch({"a": 4})
    call = state.call()
    assert call is not None
    refusal = {"error": {"code": "partition_required", "message": "several"}}

    with pytest.raises(PartitionRequired):
        state.posted(call, httpx.Response(400, json=refusal))


def test_partitions_can_be_chosen() -> None:
    """By the watch, or for a topic; their own seq then is one. (§7.2)"""
    assert asked(watch({"a": {"partitions": [2], "from_seq": 4}}, "b", partitions=[1]))[
        "topics"
    ] == {
        "a": {"partitions": [2], "from_seq": 4},
        "b": {"partitions": [1]},
    }
    state = watch("a", partitions=[2])
    answered(state, a=positions(4, first=2))
    assert told(state, records(2, range(5, 6))) == [(2, 5)]
    assert asked_again(state)["cursor"] == {"a#2": 5}


def asked_again(state: WatchState[Any]) -> Any:
    """The server has forgotten the session, and the id is none that it knows."""
    state._id = None
    return asked(state)


def gone(partition: int, head_seq: int) -> bytes:
    return event("topic-deleted", "ID", topic="a", partition=partition, head_seq=head_seq)


def test_a_topic_ends_with_its_last_partition() -> None:
    """Which is told once, with the head of the first. (§7.5)"""
    state = watch("a", "b")
    answered(state, a=positions(0, 0, 0), b={"from_seq": 0, "head_seq": 1, "earliest_seq": 1})

    assert told(state, gone(0, 7), gone(2, 5)) == []
    assert told(state, gone(1, 3)) == [(0, TopicGone(head_seq=7))]
    assert told(state, records(1, range(1, 2)), records(3, range(1, 2))) == []
    assert not state.is_over


def test_a_topic_that_was_made_again_with_fewer_partitions() -> None:
    """What is there no more goes without a word; the rest is told of, each. (§7.5)"""
    state = watch("a")
    answered(state, a=positions(5, 6, 7))
    again = {"gap_from": 1, "gap_to": 1, "reason": "recreated", "earliest_seq": 1, "head_seq": 1}

    first = event("tombstone", "ID", topic="a", **again)
    ((partition, item),) = told(state, first, gone(1, 6), gone(2, 7))
    assert (partition, item.reason) == (0, "recreated")
    assert told(state, records(None, range(1, 2))) == [(0, 1)]

    # And again, with two: the next stream says so.
    state.stream()
    stones = [event("tombstone", "ID", topic="a", partition=n, **again) for n in (0, 1)]
    assert [(n, each.reason) for n, each in told(state, *stones)] == [
        (0, "recreated"),
        (1, "recreated"),
    ]
    assert told(state, records(1, range(1, 2))) == [(1, 1)]


def test_a_new_session_knows_another_topic_of_the_name() -> None:
    """Each partition that it still has is read from its start; one that it lacks is gone. (§3.3)"""
    state = watch("a")
    answered(state, a=positions(5, 6, 7))
    call = state.call()
    assert call is not None
    answer = {"wid": "v", "topics": {"a": positions(5, 6, epoch="f")}}
    state.posted(call, httpx.Response(200, json=answer))

    items = list(state.pending_items())

    assert [each.partition for each in items] == [0, 1]
    assert asked(state)["cursor"] == {"a": 0, "a#1": 0}


def test_more_places_than_an_id_names_are_said_by_name() -> None:
    """An id of more than 64 is a list of one session; it becomes one while the stream goes on. (§7.4)"""
    state = watch("a")
    answered(state, a=positions(*[0] * 64))
    assert told(state, records(5, range(1, 2), "MAP")) == [(5, 1)]
    assert state.cursor == "MAP"

    assert told(state, records(64, range(1, 3), "LIST")) == [(64, 1), (64, 2)]

    assert "LIST" not in (state.cursor or "")
    body = asked(watch("a", cursor=state.cursor))
    assert (len(body["cursor"]), body["cursor"]["a#64"], body["cursor"]["a#5"]) == (65, 2, 1)
