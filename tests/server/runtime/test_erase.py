"""`"erase": true`: the answer comes when the bytes are gone from segments and log. (§5)"""

import asyncio
import errno
import json
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from protocol.harness import text_of

from server.maintained import keep_up
from server.runtime.test_runtime import LIMITS, append, diff, told
from topics.protocol.driver import maintenance
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.queues import parse_ack, parse_claim, parse_extend, parse_nack
from topics.protocol.faces.http.records import parse_delete
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.commands import Command, DeleteTopic
from topics.protocol.model.outcomes import Outcome
from topics.server.runtime.runtime import Runtime
from topics.server.service.shell import Phase
from topics.store.files import OsFiles
from topics.store.store import DiskStore


def play(
    data_dir: Path,
    story: Callable[[Runtime], Coroutine[Any, Any, None]],
    files: OsFiles | None = None,
) -> None:
    async def main() -> None:
        runtime = Runtime(LIMITS, DiskStore(files or OsFiles(data_dir)), flush_ms=1)
        await runtime.start()
        async with asyncio.timeout(100):
            while runtime.phase is Phase.STARTING:
                await asyncio.sleep(0)
            await story(runtime)
            await runtime.stop()

    asyncio.run(main())


def tagged(secret: str, *kept: str, topic: str = "jobs") -> Command:
    records = [{"data": secret, "tag": "x"}, *({"data": data} for data in kept)]
    raw = json.dumps({"records": records}).encode()
    return parse_append(topic, raw, LIMITS, return_seqs=True, header_key=None)


def delete(topic: str = "jobs", **asked: object) -> Command:
    return parse_delete(topic, json.dumps(asked).encode())


def holds(data_dir: Path, secret: str) -> bool:
    """Whether a file has it; where upkeep renames or unlinks a file meanwhile, all are read again."""
    while True:
        with suppress(FileNotFoundError):
            return any(secret.encode() in path.read_bytes() for path in data_dir.iterdir())


def segment_bytes(data_dir: Path) -> int:
    return sum(path.stat().st_size for path in data_dir.glob("*.seg"))


async def deletion(runtime: Runtime, command: Command) -> dict[str, Any]:
    """The response of a delete that was applied."""
    answer = await told(runtime, command)
    assert isinstance(answer.result, Outcome)
    return json.loads(text_of(answer.result))  # type: ignore[no-any-return]


async def tidied(runtime: Runtime) -> None:
    """A round of maintenance, and the sync after which files are unlinked."""
    await keep_up(runtime, checkpoint=True)
    assert await runtime.synced()


async def texts(runtime: Runtime, topic: str) -> str:
    """All records that a reader of a topic gets."""
    answer = await told(runtime, diff(topic, from_seq=0))
    assert isinstance(answer.result, Outcome)
    return text_of(answer.result).decode()


def test_erased_bytes_are_nowhere_when_the_answer_comes(tmp_path: Path) -> None:
    """From unsealed records: out of the log and both of its generations."""

    async def story(runtime: Runtime) -> None:
        await told(runtime, tagged("a secret", "kept"))
        assert holds(tmp_path, "a secret")

        answer = await told(runtime, delete(match="x", erase=True))

        assert isinstance(answer.result, Outcome)
        assert not holds(tmp_path, "a secret")
        assert holds(tmp_path, "kept")

    play(tmp_path, story)


def test_sealed_bytes_are_erased_too(tmp_path: Path) -> None:
    """From a segment: it is rewritten, and the old file is unlinked."""

    async def story(runtime: Runtime) -> None:
        await told(runtime, tagged("a secret", "kept"))

    async def next_story(runtime: Runtime) -> None:
        assert holds(tmp_path, "a secret")

        await told(runtime, delete(match="x", erase=True))

        assert not holds(tmp_path, "a secret")

    play(tmp_path, story)
    play(tmp_path, next_story)


def test_what_was_deleted_before_is_erased_as_well(tmp_path: Path) -> None:
    """An erasure that finds nothing live still cleans up after earlier deletes."""

    async def story(runtime: Runtime) -> None:
        await told(runtime, tagged("a secret"))
        await told(runtime, delete(match="x"))
        assert holds(tmp_path, "a secret")

        await told(runtime, delete(match="x", erase=True))

        assert not holds(tmp_path, "a secret")
        await told(runtime, append("jobs", 1))

    play(tmp_path, story)


def test_a_segment_shared_with_others_is_erased(tmp_path: Path) -> None:
    """Its live records, of every topic, move to a new file; the old one is gone at the response."""

    async def story(runtime: Runtime) -> None:
        await told(runtime, tagged("a secret"))
        await told(runtime, tagged("of another", topic="other"))

    async def next_story(runtime: Runtime) -> None:
        assert len(list(tmp_path.glob("*.seg"))) == 1

        answer = await deletion(runtime, delete(match="x", erase=True))

        assert answer["deleted"] == 1
        assert not holds(tmp_path, "a secret")
        assert "of another" in await texts(runtime, "other")

    async def last_story(runtime: Runtime) -> None:
        assert not holds(tmp_path, "a secret")
        assert "of another" in await texts(runtime, "other")

    play(tmp_path, story)
    play(tmp_path, next_story)
    play(tmp_path, last_story)


def test_a_run_of_nothing_but_deleted_records_is_erased(tmp_path: Path) -> None:
    """Its file is unlinked before the response, also without a later write."""

    async def story(runtime: Runtime) -> None:
        await told(runtime, tagged("a secret"))

    async def next_story(runtime: Runtime) -> None:
        await deletion(runtime, delete(match="x", erase=True))

        assert list(tmp_path.glob("*.seg")) == []

    play(tmp_path, story)
    play(tmp_path, next_story)


def test_what_was_deleted_and_let_go_of_before_is_erased(tmp_path: Path) -> None:
    """Its run is dropped, but not its file, in which other topics have live records. Also over a
    restart."""

    async def story(runtime: Runtime) -> None:
        await told(runtime, tagged("a secret"))
        await told(runtime, tagged("of another " + "x" * 1000, topic="other"))

    async def next_story(runtime: Runtime) -> None:
        await deletion(runtime, delete(match="x"))
        await tidied(runtime)
        assert runtime.engine.state.topics["jobs"].runs[:] == []
        assert holds(tmp_path, "a secret")

    async def last_story(runtime: Runtime) -> None:
        assert holds(tmp_path, "a secret")

        answer = await deletion(runtime, delete(match="x", erase=True))

        assert answer["deleted"] == 0
        assert not holds(tmp_path, "a secret")
        assert "of another" in await texts(runtime, "other")

    play(tmp_path, story)
    play(tmp_path, next_story)
    play(tmp_path, last_story)


def test_a_file_that_cannot_be_unlinked_holds_up_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The erasure is retried until no file holds the bytes."""
    monkeypatch.setattr(maintenance, "RETRY_MS", 0)

    async def story(runtime: Runtime) -> None:
        await told(runtime, tagged("a secret", "kept"))

    class Sticky(OsFiles):
        refused = 0

        def unlink(self, name: str) -> None:
            if name.endswith(".seg") and self.refused < 2:
                self.refused += 1
                raise OSError(errno.EIO, "not now")
            super().unlink(name)

    files = Sticky(tmp_path)

    async def next_story(runtime: Runtime) -> None:
        await deletion(runtime, delete(match="x", erase=True))

        assert files.refused == 2
        assert not holds(tmp_path, "a secret")

    play(tmp_path, story)
    play(tmp_path, next_story, files)


def test_a_segment_is_given_back_when_little_of_it_lives(tmp_path: Path) -> None:
    """Dead space of a shared file is freed: of a topic that was emptied, and of one that was
    deleted."""

    async def story(runtime: Runtime) -> None:
        for topic in ("jobs", "gone"):
            await told(runtime, tagged("x" * 100_000, topic=topic))
        await told(runtime, tagged("of another", topic="other"))

    async def next_story(runtime: Runtime) -> None:
        assert segment_bytes(tmp_path) > 200_000

        await told(runtime, delete(match="x"))
        await told(runtime, DeleteTopic("gone", if_empty=False))
        await tidied(runtime)

        assert segment_bytes(tmp_path) < 20_000
        assert "of another" in await texts(runtime, "other")

    play(tmp_path, story)
    play(tmp_path, next_story)


def test_dead_space_is_found_after_a_restart(tmp_path: Path) -> None:
    """Records deleted just before the stop, with no maintenance since."""

    async def story(runtime: Runtime) -> None:
        await told(runtime, tagged("x" * 100_000, "kept"))

    async def next_story(runtime: Runtime) -> None:
        await told(runtime, delete(match="x"))

    async def last_story(runtime: Runtime) -> None:
        assert segment_bytes(tmp_path) > 100_000

        await tidied(runtime)

        assert segment_bytes(tmp_path) < 20_000
        assert "kept" in await texts(runtime, "jobs")

    play(tmp_path, story)
    play(tmp_path, next_story)
    play(tmp_path, last_story)


SECRETS = [
    f"{where} secret"
    for where in ("data", "tag", "group", "worker", "reason", "progress", "result")
]


async def all_done(runtime: Runtime) -> None:
    """A queue in which a job is kept, and one has ended with a secret in all that was said of it."""
    raw = {"type": "queue", "keep_done": 10}
    await told(runtime, parse_put("q", json.dumps(raw).encode()))
    job = {"data": "data secret", "tag": "tag secret", "group": "group secret"}
    raw = {
        "records": [
            job,
            {"data": "kept", "tag": "kept tag", "group": "kept group", "delay_ms": 10**9},
        ]
    }
    body = json.dumps(raw).encode()
    await told(runtime, parse_append("q", body, LIMITS, return_seqs=True, header_key=None))
    for _ in range(2):
        await told(runtime, parse_claim("q", b'{"node": "worker secret"}', LIMITS))
        held = {"node": "worker secret", "seqs": [1]}
        progress = {**held, "lease_ms": 9000, "progress": "progress secret"}
        await told(runtime, parse_extend("q", json.dumps(progress).encode(), LIMITS))
        await told(
            runtime,
            parse_nack("q", json.dumps({**held, "reason": "reason secret"}).encode(), LIMITS),
        )
    await told(runtime, parse_claim("q", b'{"node": "worker secret"}', LIMITS))
    await told(
        runtime, parse_ack("q", json.dumps({**held, "result": "result secret"}).encode(), LIMITS)
    )


def held_secrets(data_dir: Path) -> list[str]:
    return [secret for secret in SECRETS if holds(data_dir, secret)]


@pytest.mark.parametrize("asked", [{"match": "tag secret"}, {"before_seq": 2}], ids=str)
@pytest.mark.parametrize("sealed", [False, True])
def test_all_that_was_said_of_a_job_is_erased(
    tmp_path: Path, asked: dict[str, object], sealed: bool
) -> None:
    """Also what is kept of its end; no file has it, nor what gave it a group. Other jobs stay. (§5, §10.9)"""

    async def erasing(runtime: Runtime) -> None:
        assert held_secrets(tmp_path) == SECRETS
        await deletion(runtime, delete("q", erase=True, **asked))
        assert held_secrets(tmp_path) == []
        assert all(holds(tmp_path, kept) for kept in ("kept", "kept tag", "kept group"))

    async def story(runtime: Runtime) -> None:
        await all_done(runtime)
        if not sealed:
            await erasing(runtime)

    play(tmp_path, story)
    play(tmp_path, erasing if sealed else _nothing)


async def _nothing(runtime: Runtime) -> None:
    """A start and a stop."""


def test_a_job_that_waits_is_erased_with_what_was_said_of_it(tmp_path: Path) -> None:
    """Its reasons and progress are in no log and in no checkpoint any more. (§5, §10.5)"""

    async def story(runtime: Runtime) -> None:
        await told(runtime, parse_put("q", b'{"type": "queue"}'))
        await told(runtime, tagged("data secret", "kept", topic="q"))
        await told(runtime, parse_claim("q", b'{"node": "worker secret"}', LIMITS))
        nack = {"node": "worker secret", "seqs": [1], "reason": "reason secret"}
        await told(runtime, parse_nack("q", json.dumps(nack).encode(), LIMITS))
        await tidied(runtime)
        assert holds(tmp_path, "reason secret")

        await deletion(runtime, delete("q", match="x", erase=True))

        assert held_secrets(tmp_path) == []

    play(tmp_path, story)


def test_what_no_queue_keeps_any_more_is_erased_with_it(tmp_path: Path) -> None:
    """Results beyond `keep_done` are deleted records as others are. (§5, §10.9)"""

    async def story(runtime: Runtime) -> None:
        await all_done(runtime)

    async def next_story(runtime: Runtime) -> None:
        await told(runtime, parse_put("q", b'{"type": "queue", "keep_done": 1}'))
        await told(runtime, parse_claim("q", b'{"node": "w"}', LIMITS))
        await told(runtime, tagged("another", topic="q"))
        await told(runtime, parse_claim("q", b'{"node": "w"}', LIMITS))
        await told(runtime, parse_ack("q", b'{"node": "w", "seqs": [3], "result": 1}', LIMITS))
        assert holds(tmp_path, "result secret")

        await deletion(runtime, delete("q", match="nobody", erase=True))

        assert held_secrets(tmp_path) == []

    play(tmp_path, story)
    play(tmp_path, next_story)


def test_what_a_deleted_topic_left_is_erased_with_the_next_of_its_name(tmp_path: Path) -> None:
    """Its bytes lie in a file that others share, until somebody asks for an erasure. (§5)"""

    async def story(runtime: Runtime) -> None:
        await told(runtime, tagged("a secret"))
        await told(runtime, tagged("of another " + "x" * 1000, topic="other"))

    async def next_story(runtime: Runtime) -> None:
        await told(runtime, DeleteTopic("jobs", if_empty=False))
        await told(runtime, tagged("made anew"))
        await tidied(runtime)
        assert holds(tmp_path, "a secret")

        await deletion(runtime, delete(match="y", erase=True))

        assert not holds(tmp_path, "a secret")
        assert "of another" in await texts(runtime, "other")
        assert "made anew" in await texts(runtime, "jobs")

    play(tmp_path, story)
    play(tmp_path, next_story)
