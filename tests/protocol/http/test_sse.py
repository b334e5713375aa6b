"""Server-sent events: bytes that any conforming reader takes apart again, and ids (§7.4, §7.5)."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.event_source import Event, EventSource
from protocol.harness import Harness
from protocol.viewers import Viewer
from topics.protocol.http import sse
from topics.protocol.model import cursor
from topics.protocol.model.commands import View
from topics.protocol.model.cursor import Remembered, composite
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.state.topic import Tombstone
from topics.protocol.state.watches import (
    CaughtUpFrame,
    DeletedFrame,
    Frame,
    RecordFrame,
    TombstoneFrame,
    Watched,
)

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


def test_a_shared_frame_is_written_out_once() -> None:
    """Only the id is each stream's own. (§7.6)"""
    engine = Harness()
    engine.append(1)
    (frame,) = Viewer(engine).open().frames(1)
    first = written(engine, frame, b"one")
    assert sse.encode(frame, b"two") == first.replace(b"id: one", b"id: two")


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


# ---------------------------------------------------------------------- ids


def watching(count: int, seq: int = 7) -> list[Watched]:
    return [Watched(f"t{i}", i + 1, seq + i, VIEW) for i in range(count)]


def names_of(watched: list[Watched]) -> list[str]:
    return [each.name for each in watched]


def parse_composite(text: str, names: list[str]) -> Remembered:
    found = cursor.parse_composite(text, names)
    assert found is not None
    return found


def plain(frame_id: bytes) -> Any:
    return json.loads(urlsafe_b64decode(frame_id + b"=="))


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 256])
def test_an_id_comes_back_as_what_it_was(count: int) -> None:
    """base64url without padding, small enough for a header. (§7.4)"""
    watched = watching(count)
    frame_id = composite(watched)
    assert not frame_id.strip(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    known = parse_composite(frame_id.decode(), names_of(watched))
    assert known == Remembered({each.name: each.cursor for each in watched})


def test_up_to_64_topics_the_id_is_the_documented_map() -> None:
    """Beyond it a list in the session's order, with a digest of its names. (§7.4)"""
    assert plain(composite(watching(64))) == {f"t{i}": 7 + i for i in range(64)}
    assert set(plain(composite(watching(65)))) == {"d", "s"}
    far = [Watched(f"topic-{i}", 1, 2**63, VIEW) for i in range(256)]
    assert len(composite(far)) < 8000


def test_an_id_tells_an_instance_where_there_was_an_earlier_one() -> None:
    """In both forms; without one it keeps the documented shape. (§7.4)"""
    for count in (3, 70):
        watched = watching(count)
        watched[1].is_heir = True
        known = parse_composite(composite(watched).decode(), names_of(watched))
        assert {name: at for name, at in known.instances.items() if at} == {"t1": 2}
        assert known.positions["t1"] == 8
    assert plain(composite(watching(2))) == {"t0": 7, "t1": 8}


def test_an_id_of_another_session_says_nothing_of_this_one() -> None:
    """Other names, another order, another number of them. (§7.4)"""
    many = watching(65)
    frame_id = composite(many).decode()
    names = names_of(many)
    assert parse_composite(frame_id, names[::-1]) == Remembered()
    assert parse_composite(frame_id, names[:-1]) == Remembered()
    assert parse_composite(frame_id, [*names, "more"]) == Remembered()
    assert parse_composite(composite(watching(3)).decode(), ["t2", "u"]).positions == {"t2": 9}


def encoded(value: Any) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode()


FORGED = st.one_of(
    st.text(max_size=40),
    JSON.map(encoded),
    st.dictionaries(
        st.sampled_from(["t0", "t1", "~", "d", "s"]),
        st.integers(-5, 2**70) | st.booleans() | st.floats() | st.text() | st.lists(st.integers()),
    ).map(encoded),
)


@given(forged=FORGED)
def test_a_forged_id_moves_nothing_forward_and_raises_nothing(forged: str) -> None:
    """It can rewind to where the records are anyway, and no more. (§7.4)"""
    engine = Harness()
    for name in ("t0", "t1"):
        engine.append(1, 2, 3, name=name)
    viewer = Viewer(engine, "t0", "t1", limit=2).open()
    viewer.frames(2)
    before = viewer.cursors
    viewer.close()
    viewer.open(forged)

    assert all(viewer.cursors[name] <= before[name] for name in before)
    frames = viewer.frames()
    assert not any(isinstance(frame, TombstoneFrame) for frame in frames)
    assert viewer.cursors == {"t0": 3, "t1": 3}


@given(
    positions=st.dictionaries(st.sampled_from(["t0", "t1"]), st.integers(0, 2**64)),
    instances=st.lists(st.integers(0, 9) | st.text()) | st.none(),
)
def test_a_forged_instance_only_begins_again(positions: dict[str, int], instances: Any) -> None:
    """At worst everything is told once more, and said to be. (§7.4)"""
    engine = Harness()
    for name in ("t0", "t1"):
        engine.put(name)
    viewer = Viewer(engine, "t0", "t1")
    engine.drop("t0")
    for name in ("t0", "t1"):
        engine.append(1, 2, 3, name=name)
    viewer.open().told()
    viewer.close()
    viewer.open(encoded({**positions, "~": instances}))
    told = viewer.told()
    assert sum("lost" in line for line in told) <= 1
    assert viewer.cursors == {"t0": 3, "t1": 3}
