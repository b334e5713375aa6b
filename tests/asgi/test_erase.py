"""`"erase": true`: the answer comes when the bytes are gone from segments and log. (§5)"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from asgi.test_runtime import LIMITS, append, told
from topics.asgi.runtime import Phase, Runtime
from topics.protocol import bodies
from topics.protocol.commands import Command
from topics.protocol.effects import Outcome
from topics.store.files import OsFiles
from topics.store.store import DiskStore


def play(data_dir: Path, story: Callable[[Runtime], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        runtime = Runtime(LIMITS, DiskStore(OsFiles(data_dir)), flush_ms=1)
        await runtime.start()
        async with asyncio.timeout(20):
            while runtime.phase is Phase.STARTING:
                await asyncio.sleep(0)
            await story(runtime)
            await runtime.stop()

    asyncio.run(main())


def tagged(secret: str) -> Command:
    body = {"records": [{"data": secret, "tag": "x"}, {"data": "kept"}]}
    raw = json.dumps(body).encode()
    return bodies.parse_append("jobs", raw, LIMITS, return_seqs=True, header_key=None)


def delete(**asked: object) -> Command:
    return bodies.parse_delete("jobs", json.dumps(asked).encode())


def holds(data_dir: Path, secret: str) -> bool:
    return any(secret.encode() in path.read_bytes() for path in data_dir.iterdir())


def test_erased_bytes_are_nowhere_when_the_answer_comes(tmp_path: Path) -> None:
    """From unsealed records: out of the log and both of its generations."""

    async def story(runtime: Runtime) -> None:
        await told(runtime, tagged("a secret"))
        assert holds(tmp_path, "a secret")

        answer = await told(runtime, delete(match="x", erase=True))

        assert isinstance(answer.result, Outcome)
        assert not holds(tmp_path, "a secret")
        assert holds(tmp_path, "kept")

    play(tmp_path, story)


def test_sealed_bytes_are_erased_too(tmp_path: Path) -> None:
    """From a segment: it is written anew, and the old file is unlinked."""

    async def story(runtime: Runtime) -> None:
        await told(runtime, tagged("a secret"))

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
