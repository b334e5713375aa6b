"""Large answers over a real store: what they are made of, and what may happen before they are sent."""

import asyncio
import gzip
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from server.http.test_damage import rot
from server.runtime.test_erase import delete, holds, play, tidied
from server.runtime.test_runtime import LIMITS, claim, put, told
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.queues import parse_ack
from topics.protocol.model.outcomes import Acked, Granted, Outcome
from topics.protocol.model.ports import Span
from topics.protocol.model.records import Buffer
from topics.protocol.state.hot_run import HotRun
from topics.server.http.exchange import TopicsExchange
from topics.server.http.interface import Answer, Head, Pending, Streaming
from topics.server.runtime.runtime import Runtime
from topics.server.service import texts as payload
from topics.store.runs import SealedRun

JSON = (b"content-type", b"application/json")
MIB = 1 << 20


async def fill(runtime: Runtime, topic: str = "jobs", n: int = 300, size: int = 8000) -> None:
    """Records with their number and `size` letters each; of every ten, the first has a tag."""
    records = [
        {"data": f"{i} " + "x" * size, **({"tag": "x"} if not i % 10 else {})} for i in range(n)
    ]
    body = json.dumps({"records": records}).encode()
    await told(runtime, parse_append(topic, body, LIMITS, return_seqs=False, header_key=None))


async def asked(
    runtime: Runtime, path: str, body: dict[str, Any], *headers: tuple[bytes, bytes]
) -> Answer:
    """The answer to a POST, before a byte of it is sent."""
    admitted = TopicsExchange(runtime).begin(Head("POST", path.encode(), b"", (JSON, *headers)))
    assert not isinstance(admitted, Answer)
    made: Answer | Pending | Streaming = admitted.finish([json.dumps(body).encode()])
    if isinstance(made, Answer):
        return made
    assert not isinstance(made, Streaming)
    later: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    made.then(later.set_result)
    return await later


async def page(runtime: Runtime, *headers: tuple[bytes, bytes], **more: object) -> Answer:
    asked_for = {"from_seq": 0, "limit": 1000, "max_batch_bytes": 8 * MIB, **more}
    return await asked(runtime, "/v0/topics/jobs/diff", asked_for, *headers)


def document(answer: Answer) -> dict[str, Any]:
    raw = b"".join(answer.body)
    zipped = (b"content-encoding", b"gzip") in answer.headers
    assert (b"content-length", b"%d" % len(raw)) in answer.headers
    made: dict[str, Any] = json.loads(gzip.decompress(raw) if zipped else raw)
    return made


@pytest.mark.parametrize("is_sealed", [False, True])
def test_an_erasure_takes_nothing_from_a_page_and_waits_for_none(
    tmp_path: Path, is_sealed: bool
) -> None:
    """The page was decided before: it owns its bytes, and keeps no file open.  When the erasure is
    answered, no file holds them, although the page is not yet sent. (§5)"""

    async def story(runtime: Runtime) -> None:
        await fill(runtime)
        if is_sealed:
            await tidied(runtime)
        [run] = runtime.engine.state.topics["jobs"].runs
        assert isinstance(run, HotRun) is not is_sealed
        del run
        answer = await page(runtime)
        assert holds(tmp_path, "290 xxx")

        gone = await told(runtime, delete(before_seq=301, erase=True))

        assert isinstance(gone.result, Outcome)
        assert not holds(tmp_path, "290 xxx")
        assert not any("(deleted)" in name for name in open_files(tmp_path))
        records = document(answer)["records"]
        assert [each["data"][:4].split()[0] for each in records] == [str(i) for i in range(300)]
        assert all(len(each["data"]) > 8000 for each in records)

    play(tmp_path, story)


def open_files(data_dir: Path) -> list[str]:
    """What this process has open of a directory, as the kernel names it."""
    links = [each.readlink() for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return [str(link) for link in links if str(link).startswith(str(data_dir))]


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("more", [{}, {"include_tags": True}, {"match": "x"}])
def test_a_page_is_the_same_from_memory_and_from_a_file(
    tmp_path: Path, is_sealed: bool, more: dict[str, object]
) -> None:
    """Large or small, with tags or without, all records or some, compressed or not. (§3)"""

    async def story(runtime: Runtime) -> None:
        await fill(runtime)
        if is_sealed:
            await tidied(runtime)
        plain = document(await page(runtime, **more))["records"]
        zipped = document(await page(runtime, (b"accept-encoding", b"gzip"), **more))["records"]
        few = document(await page(runtime, limit=5, **more))["records"]

        assert plain == zipped
        assert few == plain[:5]
        expected = range(0, 300, 10 if "match" in more else 1)
        assert [int(each["data"].split()[0]) for each in plain] == list(expected)
        assert ("$tag" in plain[0]) is ("include_tags" in more)

    play(tmp_path, story)


def test_damage_behind_much_that_is_sound_is_a_refusal(tmp_path: Path) -> None:
    """A page is read and verified before its head is sent: it is refused with a status, and never
    cut short. (§0.5)"""

    async def first(runtime: Runtime) -> None:
        await fill(runtime)
        await tidied(runtime)

    async def second(runtime: Runtime) -> None:
        answer = await page(runtime)
        assert answer.status == 500
        assert document(answer)["error"]["detail"]["reason"] == "corrupt"

    play(tmp_path, first)
    rot(tmp_path, b"290 xxx")
    play(tmp_path, second)


def test_a_claim_whose_answer_is_not_sent_gives_its_leases_back(tmp_path: Path) -> None:
    """The worker never saw the jobs: others get them at once, and it was no delivery. (§10.2)"""

    async def story(runtime: Runtime) -> None:
        await told(runtime, put("jobs", type="queue", lease_ms=60_000))
        await fill(runtime, n=30)
        answer = await asked(runtime, "/v0/topics/jobs/claim", {"node": "a", "max": 20})
        claimed = document(answer)["claimed"]
        assert len(claimed) == 20
        assert answer.unsent is not None

        answer.unsent()
        await asyncio.sleep(0)

        again = await told(runtime, claim("jobs", max=30))
        assert isinstance(again.result, Granted)
        assert again.result.jobs is not None
        assert list(again.result.jobs.grant.seqs) == list(range(1, 31))
        assert set(again.result.jobs.grant.deliveries) == {1}
        late = parse_ack("jobs", b'{"node":"a","seqs":[1]}', LIMITS)
        acked = await told(runtime, late)
        assert isinstance(acked.result, Acked)
        assert (acked.result.changed, list(acked.result.skipped)) == (0, [1])

    play(tmp_path, story)


def test_a_page_takes_nothing_back(tmp_path: Path) -> None:
    """Only an answer that grants something has anything to be taken back."""

    async def story(runtime: Runtime) -> None:
        await fill(runtime)
        assert (await page(runtime)).unsent is None
        await told(runtime, put("q", type="queue"))
        empty = await asked(runtime, "/v0/topics/q/claim", {"node": "a"})
        assert empty.unsent is None

    play(tmp_path, story)


def test_an_append_meanwhile_is_not_in_a_page_that_a_thread_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run grows into other memory while the thread cuts what was there before. (§3)"""
    going, made = [], payload.time.sleep

    async def story(runtime: Runtime) -> None:
        await fill(runtime, size=4000)
        loop = asyncio.get_running_loop()

        def grow(seconds: float) -> None:
            """Between two steps of the thread, the event loop appends."""
            if len(going) < 5:
                going.append(1)
                more = fill(runtime, n=2000 * len(going), size=1)
                asyncio.run_coroutine_threadsafe(more, loop).result()
            made(seconds)

        monkeypatch.setattr(payload.time, "sleep", grow)
        records = document(await page(runtime, include_tags=True))["records"]

        assert len(going) == 5
        assert [int(each["data"].split()[0]) for each in records] == list(range(300))

    play(tmp_path, story)


def test_a_small_read_does_not_wait_behind_large_ones(tmp_path: Path) -> None:
    """Threads that make pages of megabytes are not those that a small read needs. (§3)"""

    async def story(runtime: Runtime) -> None:
        await fill(runtime)
        await tidied(runtime)
        may_go, going = threading.Event(), []

        def stuck() -> None:
            going.append(1)
            may_go.wait(60)

        held = [runtime.page_in_thread(stuck) for _ in range(50)]
        runtime.store._segments._files.nowait = False  # type: ignore[attr-defined]
        small = await page(runtime, limit=5)
        large = asyncio.ensure_future(page(runtime))
        while len(going) < 2:
            await asyncio.sleep(0.001)

        assert len(document(small)["records"]) == 5
        assert not large.done()
        assert len(going) == 2
        may_go.set()
        assert len(document(await large)["records"]) == 300
        await asyncio.gather(*held)

    play(tmp_path, story)


def test_a_page_for_a_client_that_is_gone_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for a thread; others that wait behind it get it. (§3)"""
    reads: list[int] = []
    read_blocking = SealedRun.read_blocking

    def read(run: SealedRun, spans: Sequence[Span]) -> list[Buffer]:
        if threading.current_thread().name.startswith("topics-page"):
            reads.append(1)
        return read_blocking(run, spans)

    async def story(runtime: Runtime) -> None:
        await fill(runtime)
        await tidied(runtime)
        monkeypatch.setattr(SealedRun, "read_blocking", read)
        may_go = threading.Event()
        held = [runtime.page_in_thread(lambda: may_go.wait(60)) for _ in range(2)]
        gone = asyncio.ensure_future(page(runtime))
        await asyncio.sleep(0)
        admitted = TopicsExchange(runtime).begin(
            Head("POST", b"/v0/topics/jobs/diff", b"", (JSON,))
        )
        assert not isinstance(admitted, Answer)
        waits = admitted.finish([b'{"limit":1000,"max_batch_bytes":8388608}'])
        assert not isinstance(waits, Answer | Streaming)
        delivered: list[Answer] = []
        waits.then(delivered.append)
        waits.cancel()
        for _ in range(3):
            await asyncio.sleep(0)  # asyncio tells the pool on its next pass
        may_go.set()
        await asyncio.gather(*held)
        await gone
        once = len(reads)
        await page(runtime)

        assert len(reads) == 2 * once
        assert delivered == []

    play(tmp_path, story)
