"""Watching over connections that break, sessions that are forgotten and topics that go."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from topics.client import (
    AsyncClient,
    BadAnswer,
    Client,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    NotReady,
    RawRecord,
    Record,
    RecordHead,
    Retry,
    ServerFault,
    Throttled,
    Tombstone,
    TopicGone,
    TopicNotFound,
    TopicsError,
    Unauthorized,
    Unreachable,
    Watched,
    sse,
)

from .script import ONE_TRY, URL, Script, error, ok
from .streams import (
    EVENT_STREAM,
    Follow,
    Model,
    Pieces,
    Stream,
    Streams,
    composite,
    frame,
    gone,
    records,
    session,
    session_of,
)

BROKEN = httpx.ReadError("broken")


def watched(face: Any, script: Any, *topics: Any, **options: Any) -> Follow:
    """A watch of `jobs`, unless others are named, run to its end."""
    follow = Follow(*(topics or ("jobs",)), **options)
    face(script).do(follow)
    return follow


# ---------------------------------------------------------------------- what is asked and given


def test_one_topic(face: Any) -> None:
    """A session is posted, its stream opened; records come in order, until the topic goes. (§7)"""
    script = Streams(session(jobs=9), Stream(records(10, 12), gone(head_seq=12)))

    follow = watched(face, script, tail=True)

    assert follow.got == ["jobs 10", "jobs 11", "jobs 12", "jobs gone"]
    assert script.lines == ["POST /v0/watch", "GET /v0/watch/w1"]
    assert script.posts == [{"topics": {"jobs": {"tail": True}}, "include_data": True}]
    headers = script.requests[1].headers
    assert headers["accept"] == "text/event-stream"
    assert headers["accept-encoding"] == "identity"
    assert "last-event-id" not in headers
    assert script.pauses_s == []


def test_beginnings(face: Any) -> None:
    """Each topic begins where it says, the others where the watch says. (§7.2)"""
    script = Streams(session("w", a=1, b=2, c=3, d=4), Stream(records(2, 2, "a")))
    topics = ("a", {"b": 4096, "c": {"tail": True, "match": "x"}, "d": {"match": "y*"}})

    watched(face, script, *topics, from_ts=7, match="z", stop=1)

    assert script.posts[0]["topics"] == {
        "a": {"from_ts": 7, "match": "z"},
        "b": {"from_seq": 4096, "match": "z"},
        "c": {"tail": True, "match": "x"},
        "d": {"from_ts": 7, "match": "y*"},
    }


@pytest.mark.parametrize("several", [list, tuple, set, iter], ids=str)
def test_several_names(face: Any, several: Any) -> None:
    """A list of names, or any other iterable of them, is as good as the names one by one."""
    script = Streams(session("w", jobs=0, audit=0), Stream(records(1, 1)))

    watched(face, script, several(["jobs", "audit"]), tail=True, stop=1)

    assert script.posts[0]["topics"] == {"jobs": {"tail": True}, "audit": {"tail": True}}


def test_options(face: Any) -> None:
    """Every option is a field of the session; `lenient` is a parameter. (§7.2)"""
    script = Streams(session(jobs=0), Stream(gone()))
    options = {
        "node": ["a", "b"],
        "limit": 5,
        "include_tags": True,
        "include_meta": False,
        "consistency": "strong",
        "heartbeat_ms": 2000,
    }

    watched(face, script, lenient=True, include_data=False, **options)

    assert script.lines[0] == "POST /v0/watch?lenient=true"
    assert script.posts[0] == {"topics": {"jobs": {}}, "include_data": False, **options}


@dataclass
class Job:
    url: str


def test_record_types(face: Any) -> None:
    """Records come as the type that was asked for, as they do from a read."""
    stream = records(1, 1, data={"url": "x"}, tag="t")

    def one(**options: Any) -> Any:
        script = Streams(session(jobs=0), Stream(stream))
        return watched(face, script, stop=1, **options).items[0]

    assert one() == Watched("jobs", Record(seq=1, ts_ms=5, data={"url": "x"}))
    assert one(record_type=Record[Job]).item.data == Job("x")
    assert bytes(one(record_type=RawRecord).item.data) == b'{"url":"x"}'
    assert one(include_data=False).item == RecordHead(seq=1, ts_ms=5)
    assert one(record_type=dict) == (
        "jobs",
        {"$seq": 1, "$ts": 5, "data": {"url": "x"}, "tag": "t"},
    )


def test_data_that_do_not_fit(face: Any) -> None:
    """A record of another type than was asked for is named."""
    frame = records(7, 8).replace(b'"data":8', b'"data":"x"')
    script = Streams(session(jobs=0), Stream(frame))

    with pytest.raises(BadAnswer, match="stream: record 8: Expected `int`") as raised:
        watched(face, script, record_type=Record[int])
    assert raised.value.detail == {"seq": 8}


def test_losses_and_what_is_no_item(face: Any) -> None:
    """A tombstone is an item; caught-up, heartbeats and what is unknown are none. (§7.5)"""
    lost = {"gap_from": 1, "gap_to": 4, "earliest_seq": 5, "head_seq": 9}
    script = Streams(
        session(jobs=0),
        Stream(
            frame(composite(jobs=4), "tombstone", topic="jobs", reason="cap", **lost),
            b": hb 17\n\n",
            records(5, 5),
            frame(composite(jobs=5), "caught-up", topic="jobs", head_seq=5),
            frame(composite(jobs=6), "of-the-future", topic="jobs"),
            records(7, 7),
            gone(),
        ),
    )

    follow = watched(face, script)

    assert follow.got == ["jobs lost 1-4 cap", "jobs 5", "jobs 7", "jobs gone"]
    assert follow.cursors[:2] == [composite(jobs=4), composite(jobs=5)]


def test_a_topic_that_went_is_over(face: Any) -> None:
    """Of a topic that was deleted nothing follows, though one is made under its name. (§7.5)"""
    script = Streams(
        session(jobs=0, dlq=0),
        Stream(records(1, 1), gone("dlq", 12), fault=BROKEN),
        Stream(gone("dlq", 12), records(1, 3, "dlq"), records(2, 2), gone("jobs", 2)),
    )

    assert watched(face, script, "jobs", "dlq").got == [
        "jobs 1",
        "dlq gone",
        "jobs 2",
        "jobs gone",
    ]


def test_nothing_to_watch(face: Any) -> None:
    """Where no topic exists and none is required, the watch is over at once. (§7.2)"""
    script = Streams(ok({"wid": "w", "topics": {}}))

    assert watched(face, script, lenient=True).got == []
    assert len(script.requests) == 1


def test_an_unknown_topic_is_refused(face: Any) -> None:
    """Without `lenient` a topic that is not there is an error before any stream. (§7.2)"""
    with pytest.raises(TopicNotFound):
        watched(face, Streams(error(404, "topic_not_found")))


# ---------------------------------------------------------------------- going on


@pytest.mark.parametrize("forgets", [False, True], ids=["session kept", "session forgotten"])
def test_cut_at_every_byte(face: Any, forgets: bool) -> None:
    """Wherever a connection breaks, and whether or not the server still knows the session, no
    record is missing or doubled. (§7.4)"""
    heads = {"jobs": 5, "audit": 2}
    whole = Model(heads)
    straight = watched(face, _scripted(whole), {"jobs": 0, "audit": 0}).got
    length = 700
    reached_end = 0

    for cut_at in range(0, length, 1 if face.__name__ == "SyncFace" else 7):
        model = Model(heads, cut=_once(cut_at), forgets=forgets)
        follow = watched(face, _scripted(model), {"jobs": 0, "audit": 0})
        assert sorted(follow.got) == sorted(straight), cut_at
        assert [i for i in follow.got if "jobs" in i] == [i for i in straight if "jobs" in i]
        reached_end += model.streams == 1
    assert reached_end < length / 2  # the cuts were cuts


@pytest.mark.parametrize("tail", [False, True])
def test_cut_again_and_again(face: Any, tail: bool) -> None:
    """A connection that breaks a few bytes further each time brings everything in the end."""
    model = Model({"jobs": 9}, cut=lambda n: 30 + 60 * n)
    script = _scripted(model)
    begin: Any = {"from_seq": 0}
    if tail:
        model.heads["jobs"] = 0
        begin = {"tail": True}
        post = model._post

        def posted(body: Any) -> httpx.Response:
            answer = post(body)
            model.heads["jobs"] = 9
            return answer

        model._post = posted  # type: ignore[method-assign]

    follow = watched(face, script, {"jobs": begin})

    assert follow.got == [*(f"jobs {n}" for n in range(1, 10)), "jobs gone"]
    assert model.streams > 3


def _once(cut_at: int) -> Callable[[int], int | None]:
    return lambda stream: cut_at if stream == 1 else None


def _scripted(model: Model) -> Any:
    """A model as a script, which keeps the pauses."""

    class Modelled(Script):
        def __call__(self, request: httpx.Request) -> httpx.Response:
            return model(request)

    return Modelled()


def test_a_broken_connection_is_made_again(face: Any) -> None:
    """The same session goes on after the last frame that was whole, when `retry` allows. (§7.4)"""
    script = Streams(
        session("w7", jobs=0),
        Stream(records(1, 2), records(3, 4)[:-1], fault=BROKEN),
        Stream(records(3, 4), gone()),
    )

    follow = watched(face, script)

    assert follow.got == ["jobs 1", "jobs 2", "jobs 3", "jobs 4", "jobs gone"]
    assert script.resumes == [("w7", None), ("w7", composite(jobs=2))]
    assert script.pauses_s == [2.0]


def test_a_session_that_is_forgotten_is_posted_again(face: Any) -> None:
    """On 404 a new session begins at the last composite id; and from there if it is not read. (§7.4)"""
    script = Streams(
        session("w1", jobs=0, audit=7),
        Stream(records(1, 2), fault=BROKEN),
        error(404, "not_found"),
        session("w2", jobs=2, audit=7),
        Stream(records(3, 3), gone("jobs"), gone("audit")),
    )

    watched(face, script, {"jobs": {"match": "x"}, "audit": {"tail": True}}, node="n")

    assert script.resumes[1:] == [("w1", composite(jobs=2)), ("w2", composite(jobs=2))]
    assert script.posts[1] == {
        "topics": {"jobs": {"from_seq": 2, "match": "x"}, "audit": {"from_seq": 7}},
        "cursor": composite(jobs=2),
        "node": "n",
        "include_data": True,
    }
    assert script.lines[3] == "POST /v0/watch?lenient=true"
    assert script.pauses_s == [2.0]  # none between the 404 and the new session


def test_a_tail_stays_where_it_began(face: Any) -> None:
    """Where nothing came before the connection broke, a new session begins where the first did: a
    frame may have been sent, and what came after the subscription is not to be missed. (§7.4)"""
    script = Streams(
        session("w1", jobs=9), Stream(fault=BROKEN), session("w2", jobs=9), Stream(gone())
    )

    watched(face, script, tail=True)

    assert script.posts[1]["topics"] == {"jobs": {"from_seq": 9}}
    assert script.resumes == [("w1", None), ("w2", None)]


FAULTS: list[tuple[str, Callable[[], Any], float]] = [
    ("refused", lambda: httpx.ConnectError("refused"), 2.0),
    ("no connection in time", lambda: httpx.ConnectTimeout("slow"), 2.0),
    ("broken", lambda: BROKEN, 2.0),
    ("silent", lambda: Stream(fault=httpx.ReadTimeout("silent"), preamble=b""), 2.0),
    ("over before it began", lambda: Stream(preamble=b""), 2.0),
    ("503", lambda: error(503, "not_ready"), 2.0),
    ("503 with a time", lambda: error(503, "not_ready", retry_after="4"), 4.0),
    ("429", lambda: error(429, "throttled", {"retry_after_ms": 2500}), 2.5),
    ("502 of a proxy", lambda: httpx.Response(502), 2.0),
]


@pytest.mark.parametrize(("fault", "pause_s"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_every_fault_of_coming_back(face: Any, fault: Callable[[], Any], pause_s: float) -> None:
    """What fails on the way back is tried again, no sooner than `retry` and the answer say."""
    script = Streams(session(jobs=0), Stream(records(1, 1), fault=BROKEN), fault(), Stream(gone()))

    assert watched(face, script).got == ["jobs 1", "jobs gone"]
    assert script.pauses_s == [2.0, pause_s]


@pytest.mark.parametrize(("fault", "pause_s"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_every_fault_of_the_first_stream(
    face: Any, fault: Callable[[], Any], pause_s: float
) -> None:
    """The same before anything came: back off; and a stream that broke has a new session."""
    script = Streams(session(jobs=0), fault(), session("w2", jobs=0), Stream(gone()))

    assert watched(face, script).got == ["jobs gone"]
    assert script.pauses_s == [pause_s if pause_s > 2 else 0.025]


@pytest.mark.parametrize(
    "fault",
    [f[1]() for f in FAULTS if not isinstance(f[1](), Stream)],
    ids=lambda fault: repr(fault)[:20],
)
def test_every_fault_of_a_session(face: Any, fault: Any) -> None:
    """A post is tried again like any call that may be repeated."""
    script = Streams(fault, session(jobs=0), Stream(gone()))

    assert watched(face, script).got == ["jobs gone"]
    assert len(script.pauses_s) == 1


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error(400, "invalid_request"), InvalidRequest),
        (error(401, "unauthorized"), Unauthorized),
        (error(403, "forbidden"), Forbidden),
        (error(406, "not_acceptable"), InvalidRequest),
        (error(500, "internal"), ServerFault),
        (httpx.Response(200, html="<p>"), BadAnswer),
        (httpx.Response(302), BadAnswer),
    ],
    ids=lambda value: getattr(value, "status_code", value.__class__.__name__),
)
@pytest.mark.parametrize("step", ["session", "stream"])
def test_refusals_end_it(
    face: Any, answer: httpx.Response, kind: type[TopicsError], step: str
) -> None:
    """What would be refused again is raised and not repeated. (§7.6)"""
    before = [] if step == "session" else [session(jobs=0)]
    script = Streams(*before, answer)

    with pytest.raises(kind):
        watched(face, script)

    assert script.answers == []


def test_patience_ends(face: Any) -> None:
    """Attempts end as the policy says, counted from when the stream was lost; told once. (§7.6)"""
    refused = httpx.ConnectError("refused")
    told: list[TopicsError | None] = []
    script = Streams(
        session(jobs=0), Stream(records(1, 1), fault=BROKEN), *[refused] * 3, Stream(gone())
    )

    follow = Follow("jobs", connection=told.append)
    with pytest.raises(Unreachable, match="refused"):
        face(script, retry=Retry(for_s=5)).do(follow)

    assert follow.got == ["jobs 1"]
    assert script.pauses_s == [2.0, 2.0, 2.0]
    assert [str(why) for why in told] == ["http://topics.test: broken (unreachable)"]


def test_a_server_that_cuts_every_stream(face: Any) -> None:
    """A server that takes each connection and ends it before it has brought anything is as good as away:
    `retry` ends it, counted from the first loss. What a stream brings begins the count anew."""
    cut, last = Stream, frame(None, "error", code=503, error="not yet")
    told: list[str] = []
    follow = Follow("jobs", connection=lambda why: told.append(str(why)))
    script = Streams(
        session(jobs=0),
        *[cut(), session(jobs=0)] * 2,
        Stream(records(1, 1)),
        *[cut(), cut(), cut(), Stream(last), cut()],
    )

    with pytest.raises(NotReady, match="not yet"):
        face(script, retry=Retry(for_s=7)).do(follow)

    assert follow.got == ["jobs 1"]
    assert script.pauses_s == [2.0] * 6
    assert told == ["the stream ended (unreachable)", "None"] * 6


def test_one_try_still_comes_back(face: Any) -> None:
    """Without retries a stream that worked is made again, its session too, but only once. (§7.4)"""
    script = Streams(
        session(jobs=0),
        Stream(records(1, 1), fault=BROKEN),
        error(404, "not_found"),
        session("w2", jobs=1),
        Stream(records(2, 2), fault=BROKEN),
        httpx.ConnectError("refused"),
    )
    follow = Follow("jobs")

    with pytest.raises(Unreachable):
        face(script, retry=ONE_TRY).do(follow)

    assert follow.got == ["jobs 1", "jobs 2"]


def test_sessions_that_are_never_known(face: Any) -> None:
    """A stream that is 404 after each new session, as behind a balancer, ends with it. (§7.6)"""
    script = Streams(*[session(jobs=0), error(404, "not_found")] * 9)

    with pytest.raises(NotFound):
        face(script, retry=Retry(for_s=0.2)).do(Follow("jobs"))

    assert script.pauses_s[0] == 0.025
    assert sum(script.pauses_s) <= 0.2


def test_the_connection_is_told(face: Any) -> None:
    """Lost and found are told once each, whatever happens in between."""
    told: list[str] = []
    script = Streams(
        httpx.ConnectError("not there yet"),
        session(jobs=0),
        Stream(records(1, 1)),
        error(503, "not_ready"),
        Stream(gone()),
    )

    watched(face, script, connection=lambda why: told.append(str(why)))

    assert told == [
        "http://topics.test: not there yet (unreachable)",
        "None",
        "the stream ended (unreachable)",
        "None",
    ]


def test_silence_is_a_loss(face: Any) -> None:
    """The watchdog is twice the heartbeat that the server granted, and five seconds. (§7.6)"""
    granted = ok(
        {
            "wid": "w",
            "heartbeat_ms": 1000,
            "topics": {"jobs": {"from_seq": 0, "head_seq": 0, "earliest_seq": 1}},
        }
    )
    untold = ok({"wid": "w", "topics": {"jobs": {"from_seq": 0, "head_seq": 0, "earliest_seq": 1}}})

    def read_timeout_s(answer: httpx.Response) -> dict[str, float]:
        script = Streams(answer, Stream(gone()))
        watched(face, script, heartbeat_ms=10)
        timeout: dict[str, float] = script.requests[1].extensions["timeout"]
        return timeout

    assert read_timeout_s(granted) == {"connect": 30.0, "read": 7.0, "write": 30.0, "pool": 30.0}
    assert read_timeout_s(untold)["read"] == 125.0


# ---------------------------------------------------------------------- errors within a stream


def fault(code: int, **more: Any) -> bytes:
    return frame(None, "error", code=code, error="why", **more)


def test_a_stream_that_took_over(face: Any) -> None:
    """Another stream of the session ends this one with an error: both cannot have it. (§7.5)"""
    script = Streams(session(jobs=0), Stream(records(1, 1), fault(409), records(2, 2)))
    follow = Follow("jobs")

    with pytest.raises(Conflict) as caught:
        face(script).do(follow)

    assert follow.got == ["jobs 1"]
    assert (caught.value.status, caught.value.code, caught.value.message) == (
        409,
        "conflict",
        "why",
    )


def test_a_server_that_stops(face: Any) -> None:
    """503 ends the stream, and the watch comes back when it is told to. (§7.5)"""
    script = Streams(
        session(jobs=0),
        Stream(records(1, 1), fault(503, retry_after_ms=3500), fault=BROKEN),
        Stream(records(2, 2), fault(503)),
        Stream(gone()),
    )

    assert watched(face, script).got == ["jobs 1", "jobs 2", "jobs gone"]
    assert script.pauses_s == [3.5, 2.0]


def test_advice_changes_nothing(face: Any) -> None:
    """429 within a stream is advice; the stream goes on. (§7.5)"""
    script = Streams(
        session(jobs=0),
        Stream(fault(429, retry_after_ms=1500, topics=["x"]), records(1, 1), gone()),
    )

    assert watched(face, script).got == ["jobs 1", "jobs gone"]
    assert len(script.requests) == 2


def test_a_session_that_expired(face: Any) -> None:
    """410 within a stream is a new session at the same place. (§7.5)"""
    script = Streams(
        session("w1", jobs=0),
        Stream(records(1, 1), fault(410)),
        session("w2", jobs=1),
        Stream(gone()),
    )

    watched(face, script)

    assert script.posts[1]["cursor"] == composite(jobs=1)


@pytest.mark.parametrize(
    ("code", "kind"), [(500, ServerFault), (403, Forbidden), (400, InvalidRequest)]
)
def test_other_errors_are_raised(face: Any, code: int, kind: type[TopicsError]) -> None:
    """What a new connection would hear again ends the watch."""
    script = Streams(session(jobs=0), Stream(fault(code)))

    with pytest.raises(kind):
        watched(face, script)


@pytest.mark.parametrize(
    "text",
    [
        b"event: record\ndata: {\n\n",
        b'event: record\ndata: {"topic":"jobs"}\n\n',
        b"event: tombstone\ndata: []\n\n",
        b"event: error\ndata: \xff\n\n",
        b'event: topic-deleted\ndata: {"topic":5}\n\n',
    ],
)
def test_what_is_not_ours_is_said(face: Any, text: bytes) -> None:
    """A frame that does not parse is a bad answer, not a guess."""
    with pytest.raises(BadAnswer):
        watched(face, Streams(session(jobs=0), Stream(text)))


def test_a_frame_without_end(face: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream cannot make the client hold more than one large frame."""
    monkeypatch.setattr(sse, "EVENT_BYTES_MAX", 100)

    with pytest.raises(BadAnswer, match="more than 100 bytes"):
        watched(face, Streams(session(jobs=0), Stream(b"data: " + b"x" * 100)))


# ---------------------------------------------------------------------- cursors


def test_a_cursor_at_every_item(face: Any) -> None:
    """Whichever item is in hand, another watch goes on with the next one of each topic. (§7.4)"""
    heads = {"jobs": 7, "audit": 4}
    begin = {"jobs": 0, "audit": 0}
    whole = watched(face, _scripted(Model(heads)), begin)
    assert whole.cursors[2] == composite(jobs=3, audit=0)  # the end of a frame: its id, untouched

    for count, cursor in enumerate(whole.cursors[:-2], start=1):
        rest = watched(face, _scripted(Model(heads, limit=2)), begin, cursor=cursor)
        assert Counter(whole.got[:count] + rest.got) == Counter(whole.got), count
        jobs = [item for item in whole.got[:count] + rest.got if item.startswith("jobs")]
        assert jobs == [item for item in whole.got if item.startswith("jobs")]


def test_a_cursor_within_a_frame_outlives_more_watches(face: Any) -> None:
    """A topic that is ahead of the id stays ahead of it while only others move. (§7.4)"""
    first = Streams(session(jobs=0, audit=0), Stream(_both(5, 0, "jobs", 1, 5)))
    cursor = watched(face, first, "jobs", "audit", stop=2).cursors[-1]
    second = Streams(session(jobs=2, audit=0), Stream(_both(0, 3, "audit", 1, 3)))
    cursor = watched(face, second, "jobs", "audit", cursor=cursor, stop=3).cursors[-1]
    third = Streams(session(jobs=0, audit=3), Stream(_both(5, 3, "jobs", 1, 5), gone("jobs")))

    follow = watched(face, third, "jobs", "audit", cursor=cursor, stop=4)

    assert third.posts[0]["topics"]["jobs"] == {"from_seq": 2}
    assert third.posts[0]["cursor"] == composite(jobs=0, audit=3)
    assert follow.got == ["jobs 3", "jobs 4", "jobs 5", "jobs gone"]


def _both(jobs: int, audit: int, topic: str, first_seq: int, last_seq: int) -> bytes:
    """Records of one topic under an id of two."""
    own = composite(**{topic: last_seq}).encode()
    text = records(first_seq, last_seq, topic)
    return text.replace(own, composite(jobs=jobs, audit=audit).encode())


def test_a_cursor_of_many_topics_holds_when_one_is_gone(face: Any) -> None:
    """The id of more than 64 topics holds for the same topics only; what is kept names each of them,
    and a new session is posted without the id. (§7.2, §7.4)"""
    names = [f"t{n}" for n in range(65)]
    seqs = dict.fromkeys(names, 3)
    record = {"$seq": 4, "$ts": 1, "data": 1}
    script = Streams(
        session_of("w1", seqs),
        Stream(
            frame("list1", "record", topic="t1", records=[record], from_seq=3, to_seq=4, head_seq=4),
            frame("list2", "topic-deleted", topic="t0", head_seq=3),
            fault(410),
        ),
        session_of("w2", {**seqs, "t1": 4}),
        Stream(frame("list3", "record", topic="t2", records=[record],
                     from_seq=3, to_seq=4, head_seq=4)),
    )  # fmt: skip

    follow = watched(face, script, names, stop=3)
    later = Streams(session_of("w3", seqs), Stream(gone("t9")))
    watched(face, later, *names[1:], cursor=follow.cursors[-1], stop=1)

    assert follow.got == ["t1 4", "t0 gone", "t2 4"]
    assert "cursor" not in script.posts[1]
    assert script.posts[1]["topics"].keys() == set(names[1:])
    assert script.posts[1]["topics"]["t1"] == {"from_seq": 4}
    assert "cursor" not in later.posts[0]
    assert [later.posts[0]["topics"][n]["from_seq"] for n in ("t1", "t2", "t3")] == [4, 4, 3]


def test_no_cursor_before_the_first_answer(face: Any) -> None:
    """A watch that has not begun has no cursor but the one it was given."""
    own = composite(jobs=3)

    for given in (None, own):
        follow = Follow("jobs", cursor=given)
        with pytest.raises(InvalidRequest):
            face(Streams(error(400, "invalid_request"))).do(follow)
        assert follow.watch.cursor == given


def test_a_cursor_that_is_none_is_refused(face: Any) -> None:
    """Text that no watch has given is refused before anything is sent."""
    script = Streams()

    for text in ("x.!", "x.e30x", ".W10"):
        with pytest.raises(ValueError, match="not the cursor of a watch"):
            watched(face, script, cursor=text)
    assert script.requests == []


def test_what_was_given_is_not_given_again(face: Any) -> None:
    """A server that goes further back than it must doubles nothing, lost or not. (§7.4)"""
    lost = {"topic": "jobs", "reason": "cap", "earliest_seq": 6, "head_seq": 9}
    script = Streams(
        session(jobs=0),
        Stream(records(1, 3), fault=BROKEN),
        Stream(
            frame(composite(jobs=2), "tombstone", gap_from=1, gap_to=2, **lost),
            frame(composite(jobs=5), "tombstone", gap_from=1, gap_to=5, missed_estimate=5, **lost),
            records(4, 7),
            records(6, 7),
            records(8, 8),
            gone(),
        ),
    )

    assert watched(face, script).got == [
        "jobs 1",
        "jobs 2",
        "jobs 3",
        "jobs lost 4-5 cap",
        "jobs 6",
        "jobs 7",
        "jobs 8",
        "jobs gone",
    ]


# ---------------------------------------------------------------------- topics made anew


def test_a_topic_made_anew_is_read_from_its_start(face: Any) -> None:
    """The server's word that a topic is another instance: its seqs begin again. (§3.3)"""
    anew = {"gap_from": 1, "gap_to": 2, "reason": "recreated", "earliest_seq": 1, "head_seq": 2}
    script = Streams(
        session(jobs=0),
        Stream(records(1, 5), fault=BROKEN),
        Stream(frame(composite(jobs=0), "tombstone", topic="jobs", **anew), records(1, 2), gone()),
    )

    assert watched(face, script).got[5:] == [
        "jobs lost 1-2 recreated",
        "jobs 1",
        "jobs 2",
        "jobs gone",
    ]


def test_a_topic_made_anew_while_the_session_was_forgotten(face: Any) -> None:
    """A new session cannot tell that a cursor is of an older instance; the epoch does. (§3.3)"""
    audit = {"from_seq": 4, "head_seq": 9, "earliest_seq": 1, "epoch": "e1"}
    jobs = {"from_seq": 5, "head_seq": 8, "earliest_seq": 3, "epoch": "e2"}
    copy_of = ok({"wid": "w2", "topics": {"jobs": jobs, "audit": audit}})
    script = Streams(
        session("w1", jobs=0, audit=4),
        Stream(records(1, 5), fault=BROKEN),
        error(404, "not_found"),
        copy_of,
        ok({"wid": "w3", "topics": {"jobs": {**jobs, "from_seq": 2}, "audit": audit}}),
        Stream(records(3, 4)),
    )

    follow = watched(face, script, "jobs", "audit", stop=8)

    assert follow.got[5:] == ["jobs lost 1-8 recreated", "jobs 3", "jobs 4"]
    assert "cursor" not in script.posts[2]
    assert script.posts[2]["topics"] == {"jobs": {"from_seq": 2}, "audit": {"from_seq": 4}}


def test_a_topic_that_went_while_the_session_was_forgotten(face: Any) -> None:
    """A topic that is not there when the watch comes back has gone. (§7.5)"""
    script = Streams(
        session("w1", jobs=0, dlq=3),
        Stream(records(1, 1), fault=BROKEN),
        error(404, "not_found"),
        session("w2", jobs=1),
        Stream(records(2, 2), gone("jobs")),
    )

    assert watched(face, script, "jobs", "dlq").got == ["jobs 1", "dlq gone", "jobs 2", "jobs gone"]


def test_all_went_while_the_session_was_forgotten(face: Any) -> None:
    """With the last topic the watch is over, and opens no stream for nothing."""
    script = Streams(
        session("w1", jobs=0),
        Stream(records(1, 1), fault=BROKEN),
        error(404, "not_found"),
        ok({"wid": "w2", "topics": {}}),
    )

    assert watched(face, script).got == ["jobs 1", "jobs gone"]


# ---------------------------------------------------------------------- beginning and end


def test_with_subscribes_at_once() -> None:
    """Entering a watch fixes where it begins; leaving it lets the connection go, and ends it."""
    stream = Stream(records(10, 12))
    script = Streams(session(jobs=9), stream)

    with Client(URL, transport=httpx.MockTransport(script)) as client:
        with client.watch("jobs", tail=True) as watch:
            assert script.lines == ["POST /v0/watch"]
            assert next(watch).topic == "jobs"
        assert stream.pieces.closed == 1
        assert list(watch) == []


def test_async_with_subscribes_at_once() -> None:
    """Likewise when awaited."""
    stream = Stream(records(10, 12))
    script = Streams(session(jobs=9), stream)

    async def run() -> None:
        async with (
            AsyncClient(URL, transport=httpx.MockTransport(script)) as client,
            client.watch("jobs", tail=True) as watch,
        ):
            assert script.lines == ["POST /v0/watch"]
            assert (await anext(watch)).topic == "jobs"
        assert stream.pieces.closed == 1
        assert [item async for item in watch] == []

    asyncio.run(run())


def test_an_error_can_be_outlived() -> None:
    """After an error the next item goes on where the watch was."""
    script = Streams(
        session(jobs=0),
        Stream(records(1, 1), fault(409)),
        Stream(records(2, 2), fault=KeyboardInterrupt()),
        Stream(records(3, 3)),
    )

    with Client(URL, transport=httpx.MockTransport(script)) as client:
        watch = client.watch("jobs")
        assert next(watch).item.seq == 1  # type: ignore[union-attr]
        with pytest.raises(Conflict):
            next(watch)
        assert next(watch).item.seq == 2  # type: ignore[union-attr]
        with pytest.raises(KeyboardInterrupt):
            next(watch)
        assert next(watch).item.seq == 3  # type: ignore[union-attr]
        watch.close()

    assert [known for _, known in script.resumes] == [None, composite(jobs=1), composite(jobs=2)]


def test_a_wait_that_is_cancelled_costs_no_item() -> None:
    """A program may wait for an item for a while, and again later."""
    waiting = asyncio.Event()

    class Endless(Pieces):
        async def __aiter__(self) -> Any:
            yield records(1, 1)
            waiting.set()
            await asyncio.Event().wait()

    endless = Endless([], None)
    script = Streams(session(jobs=0))
    answers = [
        lambda: httpx.Response(200, headers=EVENT_STREAM, stream=endless),
        lambda: Stream(records(2, 2), gone()).response,
    ]

    def handle(request: httpx.Request) -> httpx.Response:
        return script(request) if request.method == "POST" else answers.pop(0)()

    async def run() -> list[Any]:
        async with AsyncClient(URL, transport=httpx.MockTransport(handle)) as client:
            watch = client.watch("jobs")
            first = await anext(watch)
            wait = asyncio.ensure_future(anext(watch))
            await waiting.wait()
            wait.cancel()
            with pytest.raises(asyncio.CancelledError):
                await wait
            assert endless.closed == 1
            return [first, *[item async for item in watch]]

    items = asyncio.run(run())

    assert [getattr(item.item, "seq", None) for item in items] == [1, 2, None]
    assert isinstance(items[-1].item, TopicGone)
    assert not isinstance(items[0].item, Tombstone)


def test_a_watch_is_closed_while_another_task_waits() -> None:
    """As a web application does that gives up a wait when its reader disconnects: the wait that is cancelled
    lets the connection go."""
    waiting = asyncio.Event()

    class Endless(Pieces):
        async def __aiter__(self) -> Any:
            yield records(1, 1)
            waiting.set()
            await asyncio.Event().wait()

    endless = Endless([], None)
    script = Streams(session(jobs=0))

    def handle(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return script(request)
        return httpx.Response(200, headers=EVENT_STREAM, stream=endless)

    async def run() -> None:
        async with AsyncClient(URL, transport=httpx.MockTransport(handle)) as client:
            async with client.watch("jobs") as watch:
                assert (await anext(watch)).topic == "jobs"
                wait = asyncio.ensure_future(anext(watch))
                await waiting.wait()
                wait.cancel()
            with pytest.raises(asyncio.CancelledError):
                await wait
            assert endless.closed == 1
            assert [item async for item in watch] == []

    asyncio.run(run())


def test_a_watch_that_another_task_closed_ends_at_the_next_heartbeat() -> None:
    """A wait that nobody cancels ends, and takes no item that the program would not see."""
    waiting, beat = asyncio.Event(), asyncio.Event()

    class Beating(Pieces):
        async def __aiter__(self) -> Any:
            yield records(1, 1)
            waiting.set()
            await beat.wait()
            yield b": hb 1\n\n"
            yield records(2, 2)

    beating = Beating([], None)
    script = Streams(session(jobs=0))

    def handle(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return script(request)
        return httpx.Response(200, headers=EVENT_STREAM, stream=beating)

    async def run() -> None:
        async with AsyncClient(URL, transport=httpx.MockTransport(handle)) as client:
            watch = client.watch("jobs")
            assert (await anext(watch)).topic == "jobs"
            cursor = watch.cursor
            wait = asyncio.ensure_future(anext(watch))
            await waiting.wait()
            await watch.aclose()
            beat.set()
            with pytest.raises(StopAsyncIteration):
                await wait
            assert (beating.closed, watch.cursor) == (1, cursor)

    asyncio.run(run())


def test_a_watch_is_closed_by_another_thread() -> None:
    """The thread that waits for an item goes on, and has no more."""
    watches: list[Any] = []

    class Beating(Pieces):
        def __iter__(self) -> Any:
            yield records(1, 1)
            other = threading.Thread(target=watches[0].close)
            other.start()
            other.join()
            yield b": hb 1\n\n"

    beating = Beating([], None)
    script = Streams(session(jobs=0))

    def handle(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return script(request)
        return httpx.Response(200, headers=EVENT_STREAM, stream=beating)

    with Client(URL, transport=httpx.MockTransport(handle)) as client:
        watches.append(client.watch("jobs"))
        assert [watched.topic for watched in watches[0]] == ["jobs"]
    assert beating.closed == 1


def test_a_watch_that_is_closed_comes_back_to_no_server() -> None:
    """Closed while it waits to reconnect, it sends nothing more."""
    watches: list[Any] = []
    script = Streams(session(jobs=0), Stream(records(1, 1)))

    with Client(
        URL, transport=httpx.MockTransport(script), sleep=lambda _s: watches[0].close()
    ) as client:
        watches.append(client.watch("jobs"))
        assert [watched.topic for watched in watches[0]] == ["jobs"]
    assert [line for line in script.lines if line.startswith("POST")] == ["POST /v0/watch"]


def test_throttled_to_the_end(face: Any) -> None:
    """A server with too many sessions is asked again until patience ends. (§7.6)"""
    script = Streams(*[error(429, "throttled", retry_after="1")] * 4)

    with pytest.raises(Throttled):
        face(script, retry=Retry(for_s=2)).do(Follow("jobs"))

    assert script.pauses_s == [1.0, 1.0]
