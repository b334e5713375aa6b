"""Streams of another process, taken as those of an engine that is here; both ends on one loop."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
import pytest

from topics.protocol.driver.client_states import ClientState
from topics.protocol.driver.streams import (
    CaughtUpFrame,
    DeletedFrame,
    RecordFrame,
    StreamEnd,
    Streams,
    TombstoneFrame,
)
from topics.protocol.faces.http.queues import parse_claim
from topics.protocol.faces.http.watch import parse_watch
from topics.protocol.model.commands import Begin, Claim, DeleteTopic, View
from topics.protocol.model.errors import Corrupt, ErrorCode, Rejection
from topics.protocol.model.limits import Limits as EngineLimits
from topics.protocol.state.hot_run import HotRun
from topics.server.links import remote_streams
from topics.server.links.messages import WINDOW_BYTES
from topics.server.links.remote_streams import RemoteJobs, RemoteSession, RemoteSocket
from topics.server.service.frames import FrameText, Unreadable
from topics.server.service.shell import Phase

from .joined import LIMITS, Joined, appended, put, rest, until

VIEW = View(100, 1 << 20)


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


async def opened(ask: Callable[[Callable[[Any], None]], object]) -> Any:
    """What is opened, or why it is not."""
    found: list[Any] = []
    ask(found.append)
    await until(lambda: found)
    return found[0]


def watch(joined: Joined, *topics: str, **fields: Any) -> None:
    """A new session of that name."""
    asks = {"topics": {name: {"from_seq": 0} for name in topics}, **fields}
    joined.do(parse_watch(orjson.dumps(asks), LIMITS, wid="w", lenient=False))


async def session(joined: Joined, wid: str = "w", rewind: str | None = None) -> Any:
    link, slot = joined.link, joined.slot()
    return await opened(lambda told: remote_streams.open_session(link, wid, rewind, slot, told))


async def socket(joined: Joined) -> RemoteSocket:
    link, slot = joined.link, joined.slot()
    found = await opened(lambda told: remote_streams.open_socket(link, slot, told))
    assert isinstance(found, RemoteSocket)
    return found


async def next_of(stream: Any) -> Any:
    """The next frame, and its text."""
    found: list[Any] = []

    def look() -> None:
        if not found and (one := stream.next_frame(0)) is not None:
            found.append(one)

    stream.wake_by(look)
    look()
    await until(lambda: found)
    return found[0]


def test_a_session_is_pulled_frame_by_frame() -> None:
    """With where it stands behind each. (§7.3-§7.5)"""

    async def story() -> None:
        joined = Joined()
        joined.do(put("t", cap_records=2, discard="old"))
        joined.do(appended("t", b"1", b"2", b"3"))
        watch(joined, "t", heartbeat_ms=7000)
        stream = await session(joined)
        assert isinstance(stream, RemoteSession)
        assert (stream.heartbeat_ms, stream.is_shared) == (7000, False)
        before = stream.id
        lost = await next_of(stream)
        assert isinstance(lost.frame, TombstoneFrame)
        assert lost.frame.stone[:2] == (1, 1)
        records = await next_of(stream)
        assert isinstance(records.frame, RecordFrame)
        assert b"".join(records.texts).count(b'"data"') == 2
        assert stream.id != before
        assert isinstance((await next_of(stream)).frame, CaughtUpFrame)
        assert stream.is_drained
        joined.do(DeleteTopic("t"))
        assert isinstance((await next_of(stream)).frame, DeletedFrame)
        stream.close(0)
        await until(lambda: not joined.desk.open_requests)
        assert not list(joined.shell.engine.watches.streams)

    run(story)


def test_a_session_that_is_not_there_is_refused() -> None:
    """And whether it could be opened is asked without opening it. (§7.6)"""

    async def story() -> None:
        joined = Joined()
        joined.do(put("t"))
        watch(joined, "t")
        refused = await session(joined, "nobody")
        assert isinstance(refused, Rejection)
        assert refused.code is ErrorCode.NOT_FOUND
        link, slot = joined.link, joined.slot()
        for wid, is_there in (("w", True), ("nobody", False)):
            found = await opened(
                lambda told, wid=wid: remote_streams.require_session(link, wid, slot, told)
            )
            assert (found is None) is is_there
        await until(lambda: not joined.desk.open_requests)
        assert not list(joined.shell.engine.watches.streams)

    run(story)


def test_a_client_that_does_not_read_keeps_a_cursor() -> None:
    """No more than a window is on its way; what is sent then is what there is by then."""

    async def story() -> None:
        joined = Joined()
        joined.do(put("t"))
        watch(joined, "t", limit=1)
        stream = await session(joined)
        for _ in range(30):
            joined.do(appended("t", b'"' + b"x" * 60_000 + b'"'))
            await rest()
        assert joined.back.sent_bytes < 3 * WINDOW_BYTES
        seqs = [0]
        while seqs[-1] < 30:
            found = await next_of(stream)
            if isinstance(found.frame, RecordFrame):
                assert found.frame.from_seq == seqs[-1]
                seqs.append(found.frame.to_seq)
        assert seqs == list(range(31))

    run(story)


@pytest.mark.parametrize("why", ["taken over", "a stop", "the link"])
def test_a_stream_ends_with_its_reason(why: str) -> None:
    """Which its client is told in the words of its own process. (§7.6, §12)"""

    async def story() -> None:
        joined = Joined()
        joined.do(put("t"))
        watch(joined, "t")
        stream = await session(joined)
        assert isinstance((await next_of(stream)).frame, CaughtUpFrame)
        woken: list[bool] = []
        stream.wake_by(lambda: woken.append(True))
        match why:
            case "taken over":
                Streams(joined.shell.engine).session("w", None, lambda: None, joined.shell.now_ms)
            case "a stop":
                joined.shell.phase = Phase.DRAINING
                Streams(joined.shell.engine).wake_all()
            case _:
                joined.link.broke(lambda _: Rejection(ErrorCode.NOT_LEADER, "gone"))
        await until(lambda: stream.ended_by is not None)
        assert woken
        wanted = StreamEnd.TAKEN_OVER if why == "taken over" else StreamEnd.MOVED
        assert stream.ended_by is wanted
        assert not stream.is_drained

    run(story)


def test_a_topic_that_cannot_be_read_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the refusal that names the damage. (§7.6)"""

    async def story() -> None:
        joined = Joined()
        for name in ("a", "b"):
            joined.do(appended(name, b"1"))
        watch(joined, "a", "b")
        views, damaged = HotRun.views, [True]

        def read(run: HotRun, spans: Any) -> Any:
            if damaged:
                damaged.clear()
                raise Corrupt("a.seg", 7, "a block does not verify")
            return views(run, spans)

        monkeypatch.setattr(HotRun, "views", read)
        stream = await session(joined)
        first, second = await next_of(stream), await next_of(stream)
        assert isinstance(first, Unreadable)
        assert first.refusal.detail == {"reason": "corrupt", "first_seq": 1, "last_seq": 1}
        assert isinstance(second, FrameText)
        assert second.frame.topic != first.topic
        stream.unreadable(second.frame)  # type: ignore[arg-type]

    run(story)


def test_a_socket_is_given_orders() -> None:
    """Each has its reply, in their order; what is refused adds nothing. (§7.7)"""

    async def story() -> None:
        joined = Joined()
        joined.do(appended("t", b"1"))
        stream = await socket(joined)
        told: list[Any] = []
        stream.wake_by(lambda: stream.next_frame(0) and None)  # a reply may stand behind a frame
        stream.subscribe({"t": Begin()}, VIEW, 0, told.append)
        stream.subscribe({"none": Begin()}, VIEW, 0, told.append)
        stream.unsubscribe("t", told.append)
        stream.unsubscribe("t", told.append)
        await until(lambda: len(told) == 4)
        assert told[0]["t"].head_seq == 1
        assert told[1].code is ErrorCode.TOPIC_NOT_FOUND
        assert told[2:] == [True, False]

    run(story)


def test_a_socket_hears_what_it_subscribed() -> None:
    """And goes on where another half of it stood. (§7.7)"""

    async def story() -> None:
        joined = Joined()
        joined.do(appended("t", b"1", b"2"))
        half = Streams(joined.shell.engine).socket(lambda: None)
        half.add({"t": Begin(from_seq=1)}, VIEW, joined.shell.now_ms)
        [(_, standing)] = half.standings()
        half.close()
        stream = await socket(joined)
        stream.adopt(standing)
        found = await next_of(stream)
        assert (found.frame.from_seq, found.frame.to_seq) == (1, 2)
        assert stream.ended_by is None
        stream.close()
        await until(lambda: not joined.desk.open_requests)
        assert not list(joined.shell.engine.watches.streams)

    run(story)


def test_where_a_stream_stands_is_known_at_both_ends() -> None:
    """The asking end knows a session's last id and its number; the other end all. (§8.9)"""

    async def story() -> None:
        joined = Joined()
        joined.do(put("a"))
        joined.do(put("q", type="queue"))
        joined.do(appended("a", b"1", b"2"))
        watch(joined, "a")
        stream, talk = await session(joined), await socket(joined)
        assert stream.state() == ClientState(there={"a": 0}, asked=stream.state().asked)
        await next_of(stream)
        assert stream.state().there == {"a": 2}
        assert joined.desk.state_of(stream.state().asked) == ClientState({"a": 2})
        assert joined.desk.state_of(talk.number) == ClientState({})

        link, slot, asked = joined.link, joined.slot(), Claim("q", "w", 4, None, 0)
        work = await opened(lambda told: remote_streams.open_jobs(link, asked, slot, told))
        assert work.state().there == {"q": None}
        assert joined.desk.state_of(work.state().asked) == ClientState({"q": None}, in_flight=0)
        assert joined.desk.state_of(99) is None

    run(story)


def test_connections_are_counted_where_the_engine_is() -> None:
    """One too many is refused; a client that leaves before it is open leaves nothing. (§11)"""

    async def story() -> None:
        joined = Joined(engine_limits=EngineLimits(max_sse_connections=1))
        link = joined.link
        first = remote_streams.open_socket(link, joined.slot(), lambda _: None)
        first.cancel()
        await rest()
        kept = await socket(joined)
        refused = await opened(lambda told: remote_streams.open_socket(link, joined.slot(), told))
        assert isinstance(refused, Rejection)
        assert refused.code is ErrorCode.THROTTLED
        kept.close()
        await until(lambda: not joined.desk.open_requests)
        await socket(joined)

    run(story)


def test_jobs_come_as_they_are_leased() -> None:
    """With their leases; a worker that is gone gives them back. (§10.8)"""

    async def story() -> None:
        joined = Joined()
        joined.do(put("q", type="queue"))
        link, slot = joined.link, joined.slot()
        asked = Claim("q", "w", 4, None, 0)
        jobs = await opened(lambda told: remote_streams.open_jobs(link, asked, slot, told))
        assert isinstance(jobs, RemoteJobs)
        assert jobs.is_drained
        joined.do(appended("q", b"1", b"2"))
        found: list[Any] = []
        jobs.wake_by(lambda: found.extend(jobs.take()))
        await until(lambda: jobs.take() or found)
        while len(found) < 1:
            found += jobs.take()
            await asyncio.sleep(0)
        assert b'"lease_id":"lease_' in found[0][1]
        jobs.close()
        await until(lambda: not joined.desk.open_requests)
        again = joined.do(parse_claim("q", b'{"node":"v","max":9}', LIMITS))
        assert len(again.jobs.grant.seqs) == 2

    run(story)


def test_a_push_stream_ends_with_its_queue() -> None:
    """With the reason; and no queue is a refusal. (§10.8)"""

    async def story() -> None:
        joined = Joined()
        joined.do(put("q", type="queue"))
        link, slot = joined.link, joined.slot()
        asked = Claim("q", "w", 4, None, 0)
        jobs = await opened(lambda told: remote_streams.open_jobs(link, asked, slot, told))
        jobs.wake_by(lambda: None)
        joined.do(DeleteTopic("q"))
        await until(lambda: jobs.ended_by is not None)
        assert isinstance(jobs.ended_by, Rejection)
        for name, is_there in (("q", False), ("none", False)):
            found = await opened(
                lambda told, name=name: remote_streams.require_queue(link, name, slot, told)
            )
            assert (found is None) is is_there

    run(story)
