"""Server-sent events: bytes that any conforming reader takes apart again, and ids (§7.4, §7.5)."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.event_source import Event, EventSource
from protocol.harness import Harness
from protocol.viewers import Viewer
from topics.protocol.faces.http import sse, websocket
from topics.protocol.faces.http.queues import JobEvent
from topics.protocol.faces.http.watch import (
    CaughtUpEvent,
    ErrorEvent,
    RecordEvent,
    TombstoneEvent,
    TopicDeletedEvent,
)
from topics.protocol.model.commands import View
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.outcomes import Grant, Jobs, Records
from topics.protocol.model.ports import Extent
from topics.protocol.model.render import project, render_batch
from topics.protocol.model.shown_records import job_records
from topics.protocol.state.frames import (
    CaughtUpFrame,
    DeletedFrame,
    Frame,
    RecordFrame,
    TombstoneFrame,
)
from topics.protocol.state.hot_run import HotRun
from topics.protocol.state.topic import Tombstone
from topics.protocol.state.watched import StreamEnd

VIEW = View(limit=1, budget_bytes=1)


def written(engine: Harness, frame: Frame, frame_id: bytes = b"ID") -> bytes:
    """A frame with its records as the shell would hand them over."""
    texts: list[Any] = []
    if isinstance(frame, RecordFrame):
        for run, spans in frame.records.extents:
            for text in run.read(spans) or []:
                texts += [b",", text] if texts else [text]
    return sse.encode(frame, frame_id, texts)


def read(stream: bytes, cuts: list[int] | None = None) -> tuple[EventSource, list[Event]]:
    """What a browser makes of the bytes, however they are cut."""
    source = EventSource()
    events: list[Event] = []
    at = 0
    for cut in [*sorted(cuts or []), len(stream)]:
        events += source.feed(stream[at:cut])
        at = max(at, cut)
    return source, events


# ---------------------------------------------------------------------- frames


def test_a_transcript_of_every_frame() -> None:
    """Fields in the contract's order, one line of data each, LF at the ends. (§7.5)"""
    engine = Harness()
    engine.append({"data": {"a": 1}, "tag": "x", "node": "n"}, 2)
    (records,) = Viewer(engine).open().frames(1)
    stone = TombstoneFrame("t", Tombstone(3, 5, "cap"), 6, 9)
    first, second = engine.diff()["records"]
    event = f'"records":[{{"$seq":1,"$ts":{first["$ts"]},"$node":"n","data":{{"a":1}}}},'
    event += f'{{"$seq":2,"$ts":{second["$ts"]},"data":2}}],"from_seq":0,"to_seq":2,"head_seq":2}}'
    assert written(engine, records).decode() == (
        f'id: ID\nevent: record\ndata: {{"topic":"t",{event}\n\n'
    )
    assert written(engine, stone).decode() == (
        'id: ID\nevent: tombstone\ndata: {"topic":"t","reason":"cap","gap_from":3,"gap_to":5,'
        '"missed_estimate":3,"earliest_seq":6,"head_seq":9}\n\n'
    )
    assert written(engine, CaughtUpFrame("t", 9)).decode() == (
        'id: ID\nevent: caught-up\ndata: {"topic":"t","head_seq":9}\n\n'
    )
    assert written(engine, DeletedFrame("t", 9)).decode() == (
        'id: ID\nevent: topic-deleted\ndata: {"topic":"t","head_seq":9,"reason":"deleted"}\n\n'
    )


def test_a_frame_says_of_which_partition_it_is() -> None:
    """Behind the topic, where that has several. (§2.1, §7.5)"""
    engine = Harness()
    engine.put(partitions=2)
    engine.append({"data": 1, "partition": 1})
    (record,) = (f for f in Viewer(engine).open().frames() if isinstance(f, RecordFrame))
    stone = TombstoneFrame("t", Tombstone(3, 5, "cap"), 6, 9, 1)
    frames = [record, stone, CaughtUpFrame("t", 9, 0), DeletedFrame("t", 9, 1)]
    heads = [written(engine, frame).split(b"data: ")[1][:32] for frame in frames]
    assert heads == [
        b'{"topic":"t","partition":1,"reco',
        b'{"topic":"t","partition":1,"reas',
        b'{"topic":"t","partition":0,"head',
        b'{"topic":"t","partition":1,"head',
    ]


def test_what_is_no_frame_moves_no_id() -> None:
    """The opening, heartbeats and errors dispatch nothing that is not theirs. (§7.5, §7.6)"""
    stopping = sse.encode_error(503, "stopping")
    source, events = read(sse.opening(b"FIRST") + sse.heartbeat(1748467205000) + stopping)

    assert (source.retry_ms, source.last_event_id) == (2000, "FIRST")
    assert source.comments == [" hb 1748467205000"]
    assert events == [Event("error", '{"code":503,"error":"stopping"}', "FIRST")]


def test_an_unreadable_topic_is_named() -> None:
    """With where the damage lies, so that a reader can go around it. (§7.5)"""
    detail = {"reason": "corrupt", "first_seq": 3, "last_seq": 5}
    _, (event,) = read(sse.unreadable("t", Rejection(ErrorCode.INTERNAL, "no", detail)))
    assert json.loads(event.data) == {
        "code": 500,
        "error": "no",
        "topics": ["t"],
        "detail": detail,
    }
    _, (event,) = read(sse.unreadable("t", Rejection(ErrorCode.INTERNAL, "no", detail), 3))
    found = msgspec.json.decode(event.data.encode(), type=ErrorEvent, strict=True)
    assert (found.topics, found.partition) == (["t"], 3)


def test_a_shared_frame_is_written_out_once() -> None:
    """Only the id is each stream's own. (§7.6)"""
    engine = Harness()
    engine.append(1)
    (frame,) = Viewer(engine).open().frames(1)
    first = written(engine, frame, b"one")
    assert sse.encode(frame, b"two") == first.replace(b"id: one", b"id: two")


# ---------------------------------------------------------------------- models

EVENTS: dict[str, type[msgspec.Struct]] = {
    "record": RecordEvent,
    "tombstone": TombstoneEvent,
    "caught-up": CaughtUpEvent,
    "topic-deleted": TopicDeletedEvent,
}
TOPICS, SEQS = st.sampled_from(["t", "a.b-c_d"]), st.integers(0, 2**63 - 1)
REASONS = st.sampled_from(["cap", "ttl", "mixed", "crash", "recreated", "from_seq_too_old"])
STONES = st.builds(Tombstone, SEQS.filter(bool), SEQS, REASONS)
PARTITIONS = st.none() | st.integers(0, 999)
FRAMES = st.one_of(
    st.builds(RecordFrame, TOPICS, st.just(Records(())), SEQS, SEQS, SEQS, partition=PARTITIONS),
    st.builds(TombstoneFrame, TOPICS, STONES, SEQS.filter(bool), SEQS, PARTITIONS),
    st.builds(CaughtUpFrame, TOPICS, SEQS, PARTITIONS),
    st.builds(DeletedFrame, TOPICS, SEQS, PARTITIONS),
)
RECORDS = st.sampled_from([[], [b'{"$seq":1,"$ts":7,"data":null}'],
                           [b'{"$seq":1,"$ts":7}', b",", b'{"$seq":2,"$ts":7,"meta":{}}']])  # fmt: skip


@given(FRAMES, RECORDS)
def test_an_event_is_what_its_model_says(frame: Frame, texts: list[bytes]) -> None:
    """Every field of the model, of its type, and no other; and a message of a WebSocket is the same
    behind its `op`. (§7.5, §7.7)"""
    _, (event,) = read(sse.encode(frame, b"ID", texts))
    found = msgspec.json.decode(event.data.encode(), type=EVENTS[event.kind], strict=True)
    assert json.loads(msgspec.json.encode(found)) == json.loads(event.data)

    message = json.loads(websocket.encode(frame, texts))
    assert message.pop("op") == event.kind.replace("-", "_")
    assert message == json.loads(event.data)


@given(TOPICS, SEQS.filter(bool), SEQS.filter(bool))
def test_a_job_is_what_its_model_says(topic: str, seq: int, lease: int) -> None:
    """A record with its lease, and the queue that it is of. (§10.8)"""
    run = HotRun(seq)
    run.append(render_batch([b"[]"], first_seq=seq, ts_ms=7))
    jobs = Jobs(Grant(1, "w", [seq], [lease], [1], 9), [Extent(run, [(0, 1)])])
    records = job_records(jobs, queue=topic)
    (text,) = project(
        run, [(0, 1)], run.read([(0, 1)]), tags=True, meta=True, data=True,
        inserts=iter(records.inserts),
    )  # fmt: skip
    _, (event,) = read(sse.encode_job(seq, text))
    found = msgspec.json.decode(event.data.encode(), type=JobEvent, strict=True)
    assert json.loads(msgspec.json.encode(found)) == json.loads(event.data)
    assert (event.kind, found.topic, found.seq) == ("job", topic, seq)


# ---------------------------------------------------------------------- any JSON

AWKWARD = st.one_of(
    st.text(),
    st.sampled_from(
        ["\u2028", "\u2029", "\r", "\n", "\r\n", "\0", "\ufeff", "data: x\n\nevent: y", ":", "\x85"]
    ),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | AWKWARD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(AWKWARD, inner, max_size=3),
    max_leaves=8,
)


@given(
    datas=st.lists(JSON, min_size=1, max_size=4),
    spaces=st.sampled_from([(", ", ": "), (",\n", ":\r\n"), ("\r,\r", "\n:\t"), (",", ":")]),
    escaped=st.booleans(),
    cuts=st.lists(st.integers(0, 4000), max_size=8),
)
def test_any_json_arrives_whole(
    datas: list[Any], spaces: tuple[str, str], escaped: bool, cuts: list[int]
) -> None:
    """Line breaks between tokens, separators of Unicode, whatever the pieces. (§0.3, §7.5)"""
    engine = Harness()
    records = [json.dumps(d, ensure_ascii=escaped, separators=spaces) for d in datas]
    body = '{"records":[' + ",".join('{"data":' + text + "}" for text in records) + "]}"
    engine.append_raw(body.encode())
    frames = Viewer(engine).open().frames()
    stream = sse.opening(b"e30") + b"".join(written(engine, frame) for frame in frames)

    _, events = read(stream, [cut for cut in cuts if cut < len(stream)])

    assert [event.kind for event in events] == ["record", "caught-up"]
    assert [record["data"] for record in json.loads(events[0].data)["records"]] == datas


@pytest.mark.parametrize("why", list(StreamEnd), ids=lambda why: why.name)
def test_the_end_of_a_stream_says_why(why: StreamEnd) -> None:
    """An `error` event with a status of §0.6 is the last one that comes. (§7.5)"""
    [event] = EventSource().feed(sse.ended(why))

    assert event.kind == "error"
    told = json.loads(event.data)
    assert told["error"] == why.value
    assert 400 <= told["code"] < 600
