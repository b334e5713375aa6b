"""Damage is contained: everything else is still sealed, checkpointed and served."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from server.maintained import keep_up
from server.runtime.test_erase import delete, play
from server.runtime.test_runtime import LIMITS, append, diff, put, told
from topics.protocol.decide.dead_letters import DAMAGED_REST_MS
from topics.protocol.http import bodies
from topics.protocol.http.answers import pieces_of
from topics.protocol.http.statuses import STATUSES
from topics.protocol.model.commands import Claim, Command, DeleteTopic, ListTopics
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.outcomes import Outcome
from topics.server.exchange.awaited import Awaited, AwaitedSocket
from topics.server.exchange.exchange import TopicsExchange
from topics.server.exchange.interface import Answer, Head, Streaming
from topics.server.exchange.payload import payload
from topics.server.exchange.socket_feed import SocketFeed
from topics.server.exchange.watch_feed import WatchFeed
from topics.server.exchange.work_feed import WorkFeed
from topics.server.runtime.runtime import Runtime
from topics.store.layout import RUN_DTYPE, SEGMENT_HEADER
from topics.store.segment import TABLE_OFFSET


def rot(data_dir: Path, text: bytes) -> None:
    """Flip a bit of the first stored copy of a text in a segment."""
    for path in data_dir.glob("*.seg"):
        raw = bytearray(path.read_bytes())
        if (at := raw.find(text)) >= 0:
            raw[at] ^= 1
            path.write_bytes(raw)
            return
    raise AssertionError("no segment holds it")


LARGE = 20_000
"""Bytes of a record of which ten are not sealed together with small ones behind them."""


def rot_columns(data_dir: Path, topic_id: int) -> None:
    """Flip a bit among the columns of the first run of a topic in a segment."""
    for path in sorted(data_dir.glob("*.seg")):
        raw = bytearray(path.read_bytes())
        runs = SEGMENT_HEADER.unpack(raw[: SEGMENT_HEADER.size])[3]
        table = np.frombuffer(raw, RUN_DTYPE, runs, TABLE_OFFSET)
        for row in table[table["topic_id"] == topic_id][:1]:
            raw[int(row["section_offset"]) + 20] ^= 4
            del table, row
            path.write_bytes(raw)
            return
    raise AssertionError("no segment holds it")


def configured(topic: str, **config: object) -> Command:
    return bodies.parse_put(topic, orjson.dumps(config))


def texts(outcome: Outcome) -> bytes:
    found = payload(pieces_of(outcome), blocking=True)
    assert isinstance(found, list)
    return b"".join(bytes(text) for text in found)


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
        for asked in ({"from_seq": 0}, {"from_seq": 5, "match": "x*"}, {"from_ts": 1}):
            assert await refused(runtime, diff("jobs", **asked)) == (500, DAMAGE)
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
        await told(runtime, bodies.parse_watch(asked, LIMITS, wid="w", lenient=False))
        feed = Awaited(WatchFeed(runtime, "w", None))
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
        feed = AwaitedSocket(SocketFeed(runtime))
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
        assert isinstance(payload(pieces_of(sound.result), blocking=True), list)
        assert isinstance(payload(pieces_of(rotten.result), blocking=True), Rejection)

    play(tmp_path, first)
    rot(tmp_path, b"1111111111")
    play(tmp_path, second)
    play(tmp_path, first)


async def asked(runtime: Runtime, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Status and document of a POST, whenever it is answered."""
    headers = [(b"content-type", b"application/json")]
    admitted = TopicsExchange(runtime).begin(Head("POST", path.encode(), b"", headers))
    assert not isinstance(admitted, Answer)
    answer = admitted.finish([json.dumps(body).encode()])
    if not isinstance(answer, Answer):
        assert not isinstance(answer, Streaming)
        later: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        answer.then(later.set_result)
        answer = await later
    return answer.status, json.loads(b"".join(answer.body))


JOBS = "/v0/topics/jobs"
BLOCK = 16 << 10
"""What lies this far from either end of a text shares its block with no other."""


async def queue(runtime: Runtime, n: int, **config: object) -> None:
    """Jobs 1 to n, with their number nine times in the middle of their texts."""
    await told(runtime, put("jobs", type="queue", lease_ms=60_000, **config))
    records = [{"data": "x" * BLOCK + f"{i}" * 9 + "x" * BLOCK} for i in range(1, n + 1)]
    body = json.dumps({"records": records}).encode()
    await told(
        runtime, bodies.parse_append("jobs", body, LIMITS, return_seqs=False, header_key=None)
    )


def counters(runtime: Runtime) -> tuple[int, int, int]:
    """Ready, in flight, delayed."""
    topic = runtime.engine.state.topics["jobs"]
    queue = runtime.engine.state.queues[topic.topic_id]
    away = queue.in_flight + queue.delayed
    return topic.shown()[0] - away, queue.in_flight, queue.delayed


def shown_damaged(runtime: Runtime) -> int:
    """`damaged` in the topic's state; 0 if it is left out."""
    topic = runtime.engine.state.topics["jobs"]
    return runtime.engine.state.queues[topic.topic_id].damaged


def given(answer: dict[str, Any]) -> list[tuple[int, int]]:
    """(seq, deliveries) of the jobs of a response."""
    assert answer["count"] == len(answer["claimed"])
    return [(job["$seq"], job["deliveries"]) for job in answer["claimed"]]


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("jitter_ms", [0, 1])
def test_a_claim_passes_over_a_damaged_job(
    tmp_path: Path, durable: bool, jitter_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It gets the others, alone or in a claim window; the damaged one is delayed, counted as
    damaged, and logged once, with its file and offset. (§10.2, §10.7)"""

    async def first(runtime: Runtime) -> None:
        await queue(runtime, 5, leases_durable=durable, claim_jitter_ms=jitter_ms)

    async def second(runtime: Runtime) -> None:
        status, answer = await asked(runtime, f"{JOBS}/claim", {"node": "w", "max": 4})

        assert (status, given(answer)) == (200, [(1, 1), (2, 1), (4, 1)])
        assert answer["ready"] == 1
        assert counters(runtime) == (1, 3, 1)
        assert shown_damaged(runtime) == 1

        status, answer = await asked(runtime, f"{JOBS}/claim", {"node": "w", "max": 4})
        assert (status, given(answer), answer["ready"]) == (200, [(5, 1)], 0)
        status, answer = await asked(runtime, f"{JOBS}/claim", {"node": "w"})
        assert (status, answer["count"], answer["ready"]) == (200, 0, 0)

        # What an operator does about it, once it is the oldest.
        await asked(runtime, f"{JOBS}/ack", {"node": "w", "seqs": [1, 2]})
        assert runtime.engine.state.topics["jobs"].earliest_seq == 3
        status, answer = await asked(runtime, f"{JOBS}/delete", {"before_seq": 4})
        assert (status, answer["deleted"]) == (200, 1)
        assert counters(runtime) == (0, 2, 0)
        assert shown_damaged(runtime) == 0

    async def third(runtime: Runtime) -> None:
        assert counters(runtime) == (0, 2, 0)

    play(tmp_path, first)
    rot(tmp_path, b"3" * 9)
    play(tmp_path, second)
    play(tmp_path, third)
    [told_once] = [r.getMessage() for r in caplog.records if "cannot be read" in r.getMessage()]
    assert told_once.startswith('job 3 of queue "jobs" cannot be read: ')
    assert ".seg: corrupt at byte " in told_once


def test_a_claim_for_one_goes_on_behind_many_that_are_damaged(tmp_path: Path) -> None:
    """It gets the first job that can be read, in one request; the other jobs that it looked at stay
    available, and count as not delivered. (§10.2)"""

    async def first(runtime: Runtime) -> None:
        await queue(runtime, 40)

    async def second(runtime: Runtime) -> None:
        status, answer = await asked(runtime, f"{JOBS}/claim", {"node": "w"})

        assert (status, given(answer), answer["ready"]) == (200, [(31, 1)], 9)
        assert counters(runtime) == (9, 1, 30)
        status, answer = await asked(runtime, f"{JOBS}/claim", {"node": "w", "max": 40})
        assert given(answer) == [(seq, 1) for seq in range(32, 41)]

    play(tmp_path, first)
    for seq in range(1, 31):
        rot(tmp_path, f"{seq}".encode() * 9)
    play(tmp_path, second)


def test_a_whole_damaged_run_is_passed_over(tmp_path: Path) -> None:
    """Damaged columns hide all jobs of their run; the jobs after it are delivered. (§10.2)"""

    async def first(runtime: Runtime) -> None:
        await queue(runtime, 20)
        await keep_up(runtime, checkpoint=True)
        await told(runtime, append("jobs", "sound"))

    async def second(runtime: Runtime) -> None:
        status, answer = await asked(runtime, f"{JOBS}/claim", {"node": "w"})
        assert (status, given(answer)) == (200, [(21, 1)])
        assert counters(runtime) == (0, 1, 20)

    play(tmp_path, first)
    rot_columns(tmp_path, 1)
    play(tmp_path, second)


def test_a_claim_that_waits_goes_on_waiting_behind_damage(tmp_path: Path) -> None:
    """A claim that finds only damaged jobs keeps waiting, and is answered when there is another
    job. (§10.2)"""

    async def first(runtime: Runtime) -> None:
        await queue(runtime, 2)

    async def second(runtime: Runtime) -> None:
        claim = {"node": "w", "wait_ms": 20_000}
        waiting = asyncio.ensure_future(asked(runtime, f"{JOBS}/claim", claim))
        while counters(runtime) != (0, 0, 2):
            await asyncio.sleep(0)
        await told(runtime, append("jobs", "sound"))
        status, answer = await waiting
        assert (status, given(answer)) == (200, [(3, 1)])

    play(tmp_path, first)
    rot(tmp_path, b"1" * 9)
    rot(tmp_path, b"2" * 9)
    play(tmp_path, second)


@pytest.mark.parametrize("again", ["after a while", "after a restart"])
def test_a_job_that_can_be_read_again_is_delivered(tmp_path: Path, again: str) -> None:
    """A file was restored from a backup, or the disk's trouble passed; the failed reads count as no
    delivery. (§10.2)"""

    async def first(runtime: Runtime) -> None:
        await queue(runtime, 1, leases_durable=True)

    async def second(runtime: Runtime) -> None:
        _, answer = await asked(runtime, f"{JOBS}/claim", {"node": "w"})
        assert answer["count"] == 0
        rot(tmp_path, b"0" + b"1" * 8)  # the same bit: it is as it was
        if again == "after a while":
            runtime.clock.not_before(runtime.now_ms + DAMAGED_REST_MS)
            await third(runtime)

    async def third(runtime: Runtime) -> None:
        status, answer = await asked(runtime, f"{JOBS}/claim", {"node": "w"})
        assert (status, given(answer)) == (200, [(1, 1)])
        assert (counters(runtime), shown_damaged(runtime)) == ((0, 1, 0), 0)

    play(tmp_path, first)
    rot(tmp_path, b"1" * 9)
    play(tmp_path, second)
    if again == "after a restart":
        play(tmp_path, third)


def test_a_stream_goes_on_beside_a_damaged_job(tmp_path: Path) -> None:
    """The other jobs are pushed, and the damaged one takes no place of `max`. (§10.8)"""

    async def first(runtime: Runtime) -> None:
        await queue(runtime, 5)

    async def second(runtime: Runtime) -> None:
        feed = Awaited(WorkFeed(runtime, Claim("jobs", "w", 1, None, 0)))
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
