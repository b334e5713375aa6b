"""Damage stays where it is: what else there is goes on being sealed, checkpointed and served."""

import asyncio
from pathlib import Path

import pytest

from asgi.test_erase import delete, play
from asgi.test_runtime import append, diff, told
from topics.asgi.payload import payload
from topics.asgi.runtime import Runtime
from topics.protocol.effects import Outcome
from topics.protocol.errors import ErrorCode, Rejection


def rot(data_dir: Path, text: bytes) -> None:
    """Flip a bit of the first stored copy of a text in a segment."""
    for path in data_dir.glob("*.seg"):
        raw = bytearray(path.read_bytes())
        if (at := raw.find(text)) >= 0:
            raw[at] ^= 1
            path.write_bytes(raw)
            return
    raise AssertionError("no segment holds it")


def test_a_rotten_neighbour_does_not_keep_the_rest_from_being_sealed(tmp_path: Path) -> None:
    """A merge that meets damage leaves the damaged run alone, and the checkpoint comes about."""

    async def first(runtime: Runtime) -> None:
        await told(runtime, append("jobs", *[1_111_111_111] * 20))

    async def second(runtime: Runtime) -> None:
        await told(runtime, append("jobs", *[2_222_222_222] * 20))
        await told(runtime, append("other", 3))

        while runtime.engine.state.hot:
            await runtime.keeper.keep_up(checkpoint=True)

        runs = runtime.engine.state.topics["jobs"].runs
        assert [(run.first_seq, run.count) for run in runs] == [(1, 20), (21, 20)]
        assert runtime.store.log_bytes < 4096
        sound = await told(runtime, diff("jobs", from_seq=20))
        rotten = await told(runtime, diff("jobs", from_seq=0))
        assert isinstance(sound.result, Outcome)
        assert isinstance(rotten.result, Outcome)
        assert isinstance(payload(sound.result, blocking=True), list)
        assert isinstance(payload(rotten.result, blocking=True), Rejection)

    play(tmp_path, first)
    rot(tmp_path, b"1111111111")
    play(tmp_path, second)
    play(tmp_path, first)


def test_an_erasure_that_meets_damage_says_so(tmp_path: Path) -> None:
    """It must not claim that bytes are gone which it could not rewrite. (§5)"""

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


def test_a_bug_in_upkeep_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told with its trace, and upkeep goes on."""

    async def story(runtime: Runtime) -> None:
        failed = asyncio.Event()

        def broken(now_ms: int) -> None:
            failed.set()
            raise AssertionError("made up")

        with monkeypatch.context() as patched:
            patched.setattr(runtime.keeper.upkeep, "drop_runs", broken)
            runtime.keeper.soon()
            await failed.wait()
        await asyncio.sleep(0)
        assert runtime._living is not None
        assert not runtime._living.done()

    play(tmp_path, story)
    assert "made up" in caplog.text
