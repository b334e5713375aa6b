"""Claims that meet damage: passed over, set aside, tried again."""

import asyncio
from pathlib import Path

import pytest

from server.damaged import (
    JOBS,
    asked,
    counters,
    given,
    queue,
    rot,
    rot_columns,
    shown_damaged,
)
from server.maintained import keep_up
from server.runtime.test_erase import play
from server.runtime.test_runtime import append, told
from topics.protocol.decide.dead_letters import DAMAGED_REST_MS
from topics.server.runtime.runtime import Runtime


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
