"""Damage is contained: everything else is still sealed, checkpointed and served."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from server.damaged import (
    JOBS,
    LARGE,
    asked,
    configured,
    counters,
    queue,
    rot,
    rot_columns,
    shown_damaged,
)
from server.http.feeds import socket_feed, watch_feed, work_feed
from server.maintained import keep_up
from server.runtime.test_erase import delete, play
from server.runtime.test_runtime import LIMITS, append, diff, told
from topics.protocol.faces.http.answers import text_of
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.faces.http.watch import parse_watch
from topics.protocol.model.commands import Claim, Command, DeleteTopic, ListTopics
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.outcomes import Outcome, Records
from topics.protocol.model.shown_records import records_of
from topics.server.http.awaited import Awaited, AwaitedSocket
from topics.server.runtime.runtime import Runtime
from topics.server.service.texts import read


def texts(outcome: Outcome) -> bytes:
    found = read(records(outcome), blocking=True)
    assert isinstance(found, list)
    return b"".join(bytes(text) for text in text_of(outcome, found))


def records(outcome: Any) -> Records:
    found = records_of(outcome)
    assert found is not None
    return found


async def refused(runtime: Runtime, command: Command) -> tuple[int, Any]:
    with pytest.raises(Rejection) as refusal:
        await told(runtime, command)
    return STATUSES[refusal.value.code], refusal.value.detail


def state_of(runtime: Runtime, topic: str) -> tuple[int, int, int]:
    found = runtime.engine.state.topics[topic]
    return found.count, found.size_bytes, found.earliest_seq


@pytest.fixture
def rotten(tmp_path: Path) -> Path:
    """A run of ten records in `jobs` with damaged columns, one of twenty after it; and `other`."""

    async def write(runtime: Runtime) -> None:
        await told(runtime, configured("jobs"))
        await told(runtime, append("other", 1, 2, 3))
        await told(runtime, append("jobs", *["x" * LARGE] * 10))
        await keep_up(runtime, checkpoint=True)
        await told(runtime, append("jobs", *range(20)))

    play(tmp_path, write)
    rot_columns(tmp_path, 1)
    return tmp_path


DAMAGE = {"reason": "corrupt", "first_seq": 1, "last_seq": 10}


def test_what_cannot_be_read_is_told_with_its_place(
    rotten: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """500 with the seqs, and the file in the log; records after the damage are served. (§0.5)"""

    async def story(runtime: Runtime) -> None:
        for fields in ({"from_seq": 0}, {"from_seq": 5, "match": "x*"}, {"from_ts": 1}):
            assert await refused(runtime, diff("jobs", **fields)) == (500, DAMAGE)
        assert await refused(runtime, delete(match="x*")) == (500, DAMAGE)
        assert "internal error" not in caplog.text
        assert caplog.text.count("cannot read stored records") == 4
        behind = await told(runtime, diff("jobs", from_seq=10))
        assert isinstance(behind.result, Outcome)
        assert texts(behind.result).count(b'"data"') == 20

    play(rotten, story)


def test_damage_keeps_nothing_else_from_maintenance(rotten: Path) -> None:
    """Its topic can be listed and written to; every topic is sealed and checkpointed. (§1.3)"""

    before = checkpoint_of(rotten)

    async def story(runtime: Runtime) -> None:
        await told(runtime, configured("jobs", ttl_ms=3_600_000))
        await told(runtime, append("jobs", 1))
        await told(runtime, append("other", 4))
        listed = await told(runtime, ListTopics("", 10, "", False))
        assert isinstance(listed.result, Outcome)

        while runtime.engine.state.memory.unsealed:
            await keep_up(runtime, checkpoint=True)

        assert checkpoint_of(rotten) > before
        assert state_of(runtime, "jobs")[0] == 31

    play(rotten, story)


def test_damaged_records_expire_with_those_behind_them(rotten: Path) -> None:
    """Their times are unknown, but not later than that of the next record. (§0.10)"""

    async def story(runtime: Runtime) -> None:
        runtime.clock.not_before(runtime.now_ms + 10_000)
        await told(runtime, configured("jobs", ttl_ms=1000))

        await told(runtime, append("jobs", 7))
        await keep_up(runtime)

        count, size_bytes, earliest = state_of(runtime, "jobs")
        topic = runtime.engine.state.topics["jobs"]
        assert (count, earliest) == (1, 31)
        assert size_bytes == int(topic.runs[-1].columns.size[-1])
        assert [run.first_seq for run in topic.runs] == [31]

    play(rotten, story)
    play(rotten, nothing)


def test_damaged_records_make_room_and_can_be_deleted(rotten: Path) -> None:
    """By a cap, by seq, with the topic; the counters end with those of the sound records. (§5,
    §1.4)"""

    async def story(runtime: Runtime) -> None:
        _, sound, _ = state_of(runtime, "jobs")
        topic = runtime.engine.state.topics["jobs"]
        sound = sum(int(run.columns.size.sum()) for run in topic.runs[1:])
        await told(runtime, configured("jobs", cap_records=26))
        assert state_of(runtime, "jobs")[::2] == (26, 5)
        await told(runtime, delete(before_seq=8))
        assert state_of(runtime, "jobs")[::2] == (23, 8)

        await told(runtime, delete(before_seq=11))

        assert state_of(runtime, "jobs") == (20, sound, 11)
        await keep_up(runtime)
        await keep_up(runtime)
        assert len(topic.runs) == 1
        gone = await told(runtime, DeleteTopic("jobs"))
        assert isinstance(gone.result, Outcome)

    play(rotten, story)
    play(rotten, nothing)


def test_a_stream_loses_the_damaged_topic_alone(rotten: Path) -> None:
    """An `error` frame names it; the other topics of the session continue. (§7.5)"""

    async def story(runtime: Runtime) -> None:
        asked = orjson.dumps({"topics": {"jobs": {}, "other": {}}})
        await told(runtime, parse_watch(asked, LIMITS, wid="w", lenient=False))
        feed = Awaited(watch_feed(runtime, "w"))
        pieces = [await feed.next() for _ in range(4)]

        text = b"".join(piece or b"" for piece in pieces)
        assert b'event: error\ndata: {"code":500' in text
        assert (
            b'"topics":["jobs"],"detail":{"reason":"corrupt","first_seq":1,"last_seq":10}' in text
        )
        assert b'event: record\ndata: {"topic":"other"' in text
        await told(runtime, append("other", 9))
        assert b'"data":9' in (await feed.next() or b"")
        feed.close()

    play(rotten, story)


def test_a_socket_unsubscribes_the_damaged_topic_alone(rotten: Path) -> None:
    """An `error` message names it; the socket stays. (§7.7)"""

    async def story(runtime: Runtime) -> None:
        feed = AwaitedSocket(socket_feed(runtime))
        for topic, begin in (("jobs", '"from_ts":1'), ("jobs", '"from_seq":0'), ("other", "")):
            more = f",{begin}" if begin else ""
            await feed.hear(f'{{"op":"subscribe","topic":"{topic}"{more}}}'.encode())
        messages = [orjson.loads(await feed.next() or "") for _ in range(6)]

        ops = sorted(message["op"] for message in messages)
        assert ops == ["caught_up", "error", "error", "record", "subscribed", "subscribed"]
        damages = [m["detail"] for m in messages if m["op"] == "error"]
        assert damages[0] == DAMAGE
        assert damages[1] == {"topic": "jobs", **DAMAGE}
        feed.close()

    play(rotten, story)


def checkpoint_of(root: Path) -> str:
    return max(path.name for path in root.glob("*.ckpt"))


async def nothing(_: Runtime) -> None:
    """Start, and stop cleanly."""


def test_a_rotten_neighbour_does_not_keep_the_rest_from_being_sealed(tmp_path: Path) -> None:
    """A merge that meets damage leaves the damaged run as it is, and the checkpoint is made."""

    async def first(runtime: Runtime) -> None:
        await told(runtime, append("jobs", *[1_111_111_111] * 20))

    async def second(runtime: Runtime) -> None:
        before = checkpoint_of(tmp_path)
        await told(runtime, append("jobs", *[2_222_222_222] * 20))
        await told(runtime, append("other", 3))

        while runtime.engine.state.memory.unsealed:
            await keep_up(runtime, checkpoint=True)

        runs = runtime.engine.state.topics["jobs"].runs
        assert [(run.first_seq, run.count) for run in runs] == [(1, 20), (21, 20)]
        assert checkpoint_of(tmp_path) > before
        sound = await told(runtime, diff("jobs", from_seq=20))
        rotten = await told(runtime, diff("jobs", from_seq=0))
        assert isinstance(sound.result, Outcome)
        assert isinstance(rotten.result, Outcome)
        assert isinstance(read(records(sound.result), blocking=True), list)
        assert isinstance(read(records(rotten.result), blocking=True), Rejection)

    play(tmp_path, first)
    rot(tmp_path, b"1111111111")
    play(tmp_path, second)
    play(tmp_path, first)


def test_a_stream_goes_on_beside_a_damaged_job(tmp_path: Path) -> None:
    """The other jobs are pushed, and the damaged one takes no place of `max`. (§10.8)"""

    async def first(runtime: Runtime) -> None:
        await queue(runtime, 5)

    async def second(runtime: Runtime) -> None:
        feed = Awaited(work_feed(runtime, Claim("jobs", "w", 1, None, 0)))
        await feed.next()
        for seq in (1, 2, 4, 5):
            frames = await feed.next()
            assert frames is not None
            assert frames.startswith(b"id: %d\nevent: job" % seq)
            assert frames.count(b"event: ") == 1
            await asked(runtime, f"{JOBS}/ack", {"node": "w", "seqs": [seq]})
        assert counters(runtime) == (0, 0, 1)
        feed.close()

    play(tmp_path, first)
    rot(tmp_path, b"3" * 9)
    play(tmp_path, second)


def test_a_damaged_dead_letter_stays_and_the_others_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A claim moves the others; the damaged one is counted, and logged once. (§10.6)"""

    async def first(runtime: Runtime) -> None:
        await queue(runtime, 3, leases_durable=True, max_deliveries=1, dead_letter="d")
        await asked(runtime, f"{JOBS}/claim", {"node": "w", "max": 3})
        await asked(runtime, f"{JOBS}/nack", {"node": "w", "seqs": [1, 2, 3]})

    async def second(runtime: Runtime) -> None:
        for _ in range(2):
            _, answer = await asked(runtime, f"{JOBS}/claim", {"node": "w", "max": 3})
            assert answer["count"] == 0
        while sum(counters(runtime)) > 1:
            await asyncio.sleep(0)
        assert (counters(runtime), shown_damaged(runtime)) == ((0, 0, 1), 1)
        assert runtime.engine.state.topics["d"].count == 2

    play(tmp_path, first)
    rot(tmp_path, b"2" * 9)
    play(tmp_path, second)
    assert caplog.text.count('job 2 of queue "jobs" cannot be read: ') == 1


def test_an_erasure_that_meets_damage_says_so(tmp_path: Path) -> None:
    """It must not report bytes as erased that it could not rewrite. (§5)"""

    async def first(runtime: Runtime) -> None:
        await told(runtime, append("jobs", *[1_111_111_111] * 20))

    async def second(runtime: Runtime) -> None:
        answer = await told(runtime, delete(before_seq=10, erase=True))

        assert isinstance(answer.result, Rejection)
        assert answer.result.code is ErrorCode.INTERNAL
        assert answer.result.detail == {"reason": "corrupt"}

    play(tmp_path, first)
    rot(tmp_path, b"1111111111")
    play(tmp_path, second)


def test_a_bug_in_maintenance_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged with its traceback, and maintenance continues."""

    async def story(runtime: Runtime) -> None:
        failed = asyncio.Event()

        def broken(now_ms: int) -> None:
            failed.set()
            raise AssertionError("made up")

        with monkeypatch.context() as patched:
            patched.setattr(runtime.driver.maintenance.schedule.compaction, "drop_runs", broken)
            runtime.driver.maintenance.soon()
            runtime.nudge()
            await failed.wait()
        await keep_up(runtime)

    play(tmp_path, story)
    assert "made up" in caplog.text
