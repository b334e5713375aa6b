"""The shell: one write a turn, one sync for many, what is visible after a failure, start and
stop."""

import asyncio
import errno
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from protocol.harness import text_of

from server.maintained import keep_up
from topics.protocol.driver import maintenance
from topics.protocol.driver.reply import Reply
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.queues import parse_claim
from topics.protocol.faces.http.records import parse_diff
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.codec import Frames, decode_all
from topics.protocol.model.commands import Command, DeleteTopic, GetTopic
from topics.protocol.model.errors import Corrupt, ErrorCode, Rejection, WriteFailed
from topics.protocol.model.events import Checkpoint, Event, Image, RunRef
from topics.protocol.model.limits import Limits
from topics.protocol.model.outcomes import Outcome, Page
from topics.protocol.model.ports import Recovery, RecoverySink, SealEntry
from topics.protocol.state.hot_run import HotRun
from topics.protocol.state.state import State
from topics.server.runtime import sync_process
from topics.server.runtime.clock import Clock
from topics.server.runtime.runtime import Runtime
from topics.server.runtime.sync_process import SyncProcess
from topics.server.runtime.sync_program import answer_of
from topics.server.service.shell import PHASES, Phase
from topics.store.files import OsFiles
from topics.store.layout import FAILED_NAME
from topics.store.memory import MemoryStore
from topics.store.store import DiskStore

from .test_sync_process import deaf

LIMITS = Limits()


class WatchedStore(MemoryStore):
    """A store in memory whose writes are kept, and whose syncs and writes a test may stop."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[list[Event]] = []
        self.syncs = 0
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.fails: set[str] = set()
        self.closed_with: Image | None = None
        self._synced = 0

    def close(self, image: Image | None) -> None:
        self.closed_with = image
        super().close(image)

    @property
    def synced_lsn(self) -> int:
        return self._synced

    def recover(self, sink: RecoverySink) -> Recovery:
        if "recover" in self.fails:
            raise Corrupt("0000000001.wal", 512, "a batch does not verify")
        return super().recover(sink)

    def write(self, frames: Frames) -> int:
        if "write" in self.fails:
            raise WriteFailed("0000000001.wal", "Input/output error")
        body = memoryview(b"".join(frames.parts))
        self.writes.append(list(decode_all(body, frames.count)))
        return super().write(frames)

    def flip(self) -> int:
        if "flip" in self.fails:
            raise WriteFailed("0000000001.seg", "Input/output error")
        return super().flip()

    def sync(self) -> int:
        written_lsn = self.written_lsn
        self.may_sync.wait(100)
        if "sync" in self.fails:
            raise WriteFailed("0000000001.wal", "Input/output error")
        self.syncs += 1
        self._synced = written_lsn
        return self._synced


Story = Callable[[Runtime, WatchedStore], Coroutine[Any, Any, None]]


def play(story: Story, store: WatchedStore | None = None) -> None:
    """Run a story on a started runtime, and stop it."""
    store = store or WatchedStore()

    async def main() -> None:
        runtime = Runtime(LIMITS, store, flush_ms=1, clock=Clock())
        await runtime.start()
        async with asyncio.timeout(100):
            while runtime.phase is Phase.STARTING:
                await asyncio.sleep(0)
            await story(runtime, store)
            store.may_sync.set()
            if runtime.phase is not Phase.STOPPED:
                await runtime.stop()

    asyncio.run(main())


def append(topic: str, *datas: object, **more: object) -> Command:
    import json

    body = json.dumps({"records": [{"data": d} for d in datas], **more}).encode()
    return parse_append(topic, body, LIMITS, return_seqs=True, header_key=None)


def diff(topic: str, **asked: object) -> Command:
    import json

    return parse_diff(topic, json.dumps(asked).encode(), LIMITS)


def put(topic: str, **config: object) -> Command:
    return parse_put(topic, orjson.dumps(config))


def claim(topic: str, **asked: object) -> Command:
    return parse_claim(topic, orjson.dumps({"node": "w", **asked}), LIMITS)


async def told(runtime: Runtime, command: Command) -> Reply:
    """The response to a command, whenever it comes."""
    later: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    now = runtime.submit(command, later.set_result)
    return now if isinstance(now, Reply) else await later


def test_large_bodies_are_decoded_one_at_a_time() -> None:
    """Each of them takes memory; the loop continues meanwhile. (§2)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        may_end = [threading.Event() for _ in range(3)]
        begun: list[int] = []

        def decode(which: int) -> int:
            begun.append(which)
            may_end[which].wait(100)
            return which

        readings = [runtime.decode_in_thread(partial(decode, which)) for which in range(3)]
        await told(runtime, append("jobs", 0))
        for which, reading in enumerate(readings):
            assert len(begun) <= which + 1
            may_end[which].set()
            assert await reading == which
        assert begun == [0, 1, 2]

    play(story)


def test_a_start_with_an_earlier_clock_goes_on_from_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The wall clock was set back an hour while the server was down: time continues from the log,
    and a lease does not last an hour longer. (§10.2)"""
    logged_ms = 10**12

    class Logged(WatchedStore):
        def recover(self, sink: RecoverySink) -> Recovery:
            assert isinstance(sink, State)
            sink.now_ms = logged_ms
            return super().recover(sink)

    async def main() -> None:
        clock = Clock(lambda: logged_ms - 3_600_000, lambda: 7)
        runtime = Runtime(LIMITS, Logged(), flush_ms=1, clock=clock)
        await runtime.start()
        async with asyncio.timeout(100):
            while runtime.phase is Phase.STARTING:
                await asyncio.sleep(0)
        assert runtime.now_ms == runtime.engine.state.now_ms == logged_ms
        await runtime.stop()

    asyncio.run(main())

    assert "3600000 ms behind" in caplog.text


def test_a_turn_that_wrote_is_told() -> None:
    """Once for all its commands; a read that changes nothing is no turn. (§8.6)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        turns: list[int] = []
        runtime.after_turn = lambda: turns.append(len(store.writes))
        before = len(store.writes)
        await asyncio.gather(*(told(runtime, append("jobs", n)) for n in range(3)))
        assert turns == [before + 1]

        await told(runtime, diff("jobs"))
        assert turns == [before + 1]

    play(story)


def test_all_commands_of_one_turn_are_one_write() -> None:
    """Group commit: all commands of one turn of the loop are one write. (§0.10)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, append("jobs", 0))
        before = len(store.writes)

        await asyncio.gather(*(told(runtime, append("jobs", i)) for i in range(20)))

        assert len(store.writes) == before + 1
        assert len(store.writes[-1]) == 20

    play(story)


def test_a_disk_write_is_told_without_a_sync() -> None:
    """`disk` is acknowledged by the write alone. (§0.10)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, append("jobs", 0))
        store.may_sync.clear()

        answer = await told(runtime, append("jobs", 1))

        assert isinstance(answer.result, Outcome)

    play(story)


def test_fsync_writes_wait_for_one_sync_together() -> None:
    """`fsync` is acknowledged by a sync, shared by all writes that came meanwhile. (§0.10)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, append("safe", 0, config={"durability": "fsync"}))
        store.may_sync.clear()
        first = asyncio.ensure_future(told(runtime, append("safe", 1)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        rest = [asyncio.ensure_future(told(runtime, append("safe", i))) for i in range(50)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not any(task.done() for task in (first, *rest))
        before = store.syncs

        store.may_sync.set()
        await asyncio.gather(first, *rest)

        assert store.syncs - before <= 2

    play(story)


def test_an_unsynced_fsync_record_is_not_shown() -> None:
    """A reader never gets a record of an `fsync` topic that a power loss could still take.
    (§0.10)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, append("safe", 0, config={"durability": "fsync"}))
        store.may_sync.clear()
        pending = asyncio.ensure_future(told(runtime, append("safe", 1)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert runtime.engine.state.topics["safe"].head_seq == 2
        assert runtime.engine.state.topics["safe"].published_seq == 1

        store.may_sync.set()
        await pending

        assert runtime.engine.state.topics["safe"].published_seq == 2

    play(story)


def test_a_parked_read_wakes_with_the_write() -> None:
    """A long poll is answered by the record that it waits for. (§3)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, append("jobs", 0))
        waiting = asyncio.ensure_future(told(runtime, diff("jobs", from_seq=1, wait_ms=30_000)))
        await asyncio.sleep(0)
        assert not waiting.done()

        await told(runtime, append("jobs", 1))
        answer = await waiting

        assert isinstance(answer.result, Page)
        assert answer.result.scanned == 1

    play(story)


def test_no_timer_touches_a_store_that_is_closed() -> None:
    """The flush timer may fire while another thread makes the last checkpoint: it then does
    nothing. (§8.2)"""

    class Closing(WatchedStore):
        runtime: Runtime
        idles: int | None = None

        def idle(self) -> None:
            if self.idles is not None:
                self.idles += 1

        def seal(self, entries: Sequence[SealEntry]) -> list[RunRef]:
            self.idles = 0
            self.runtime.driver.commit.ring()
            return super().seal(entries)

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        assert isinstance(store, Closing)
        store.runtime = runtime
        await told(runtime, append("jobs", 1))
        await runtime.stop()

    store = Closing()
    play(story, store)

    assert store.closed_with is not None
    assert store.idles == 0


def test_what_was_read_for_a_dead_letter_is_written_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job whose text had to be read from the disk reaches the dead-letter topic without another
    request, and wakes a read that waits there. (§10.6)"""
    monkeypatch.setattr(maintenance, "ROUND_EVERY_MS", 1_000_000)

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, put("q", type="queue", max_deliveries=1, dead_letter="d"))
        await told(runtime, put("d"))
        await told(runtime, append("q", 1))
        await told(runtime, claim("q", lease_ms=100))
        monkeypatch.setattr(HotRun, "read", lambda run, spans: None)
        waiting = asyncio.ensure_future(told(runtime, diff("d", from_seq=0, wait_ms=30_000)))
        looking = asyncio.ensure_future(told(runtime, claim("q", wait_ms=30_000)))

        answer = await waiting

        assert isinstance(answer.result, Outcome)
        assert runtime.engine.state.topics["d"].count == 1
        assert runtime.engine.state.topics["q"].count == 0
        await told(runtime, append("q", 2))
        await looking

    play(story)


def test_a_parked_read_hears_that_its_topic_went() -> None:
    """Deleting a topic answers its long polls with 404. (§1.4)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, append("jobs", 0))
        waiting = asyncio.ensure_future(told(runtime, diff("jobs", from_seq=1, wait_ms=30_000)))
        await asyncio.sleep(0)

        await told(runtime, DeleteTopic("jobs"))
        answer = await waiting

        assert isinstance(answer.result, Rejection)
        assert answer.result.code is ErrorCode.TOPIC_NOT_FOUND

    play(story)


def test_a_cancelled_poll_leaves_nothing_behind() -> None:
    """A client that disconnects is no longer registered as waiting."""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, append("jobs", 0))
        ticket = runtime.submit(diff("jobs", from_seq=1, wait_ms=30_000), lambda _: None)
        assert not isinstance(ticket, Reply)

        ticket.cancel()

        assert not runtime.driver.parked
        assert not runtime.engine.reads.parked

    play(story)


def test_draining_answers_those_who_wait() -> None:
    """A stop answers waiting reads. (§8.2)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, append("jobs", 0))
        waiting = asyncio.ensure_future(told(runtime, diff("jobs", from_seq=1, wait_ms=30_000)))
        await asyncio.sleep(0)

        runtime.drain()
        answer = await waiting

        assert isinstance(answer.result, Outcome)
        assert runtime.phase is Phase.DRAINING

    play(story)


@pytest.mark.parametrize("what", ["write", "sync"])
def test_after_a_failure_nothing_is_written_and_reads_go_on(what: str) -> None:
    """A failed write or sync leaves a read-only log; the outcome of its writes is unknown.
    (§0.6)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, append("safe", 0, config={"durability": "fsync"}))
        store.fails.add(what)

        answer = await told(runtime, append("safe", 1))

        assert isinstance(answer.result, Rejection)
        assert answer.result.code is ErrorCode.INTERNAL
        assert answer.result.detail is not None
        assert answer.result.detail["outcome"] == "unknown"
        store.fails.clear()
        writes = len(store.writes)
        with pytest.raises(Rejection) as refused:
            runtime.submit(append("safe", 2), lambda _: None)
        assert refused.value.code is ErrorCode.NOT_READY
        assert len(store.writes) == writes
        page = await told(runtime, diff("safe"))
        assert isinstance(page.result, Page)
        assert page.result.scanned == 1
        assert not runtime.process().ready
        assert runtime.process().read_only

    play(story)


def test_what_compaction_did_is_told_of_the_process() -> None:
    """For metrics, which know no maintenance. (§8.3)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        compaction = runtime.driver.maintenance.schedule.key_compaction
        compaction.passes, compaction.records_deleted = 2, 7
        process = runtime.process()
        assert (process.compaction_passes, process.compaction_deleted) == (2, 7)

    play(story)


def test_a_failure_during_maintenance_leaves_a_read_only_log() -> None:
    """A flag that cannot be written is a failed write like any other. (§0.6)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, append("jobs", 0))
        store.fails.add("flip")

        runtime.driver.maintenance.soon()
        runtime.nudge()
        while not runtime.engine.read_only:
            await asyncio.sleep(0)

        with pytest.raises(Rejection) as refused:
            runtime.submit(append("jobs", 1), lambda _: None)
        assert refused.value.detail == {"reason": "read_only"}

    play(story)


def test_a_refused_replay_is_reported_and_serves_nothing() -> None:
    """On proven corruption the runtime reports it and serves nothing. (§8.2)"""
    store = WatchedStore()
    store.fails.add("recover")

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        failure = await runtime.wait_failed()

        assert isinstance(failure, Corrupt)
        assert runtime.phase is Phase.FAILED

    play(story, store)


def test_a_clean_stop_leaves_a_checkpoint_of_everything() -> None:
    """All records are sealed, and the store is closed with a checkpoint that names them. (§8.2)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, append("jobs", 0))
        await told(runtime, append("jobs", 1))

        await runtime.stop()

        assert store.closed_with is not None
        body = b"".join(store.closed_with.pieces())
        (topic,) = msgspec.msgpack.decode(body, type=Checkpoint).topics
        assert (topic.name, topic.head_seq, topic.count) == ("jobs", 2, 2)
        assert [(run.first_seq, run.last_seq) for run in topic.runs] == [(1, 2)]
        assert runtime.phase is Phase.STOPPED

    play(story)


def test_a_refused_command_in_a_busy_turn_harms_nobody() -> None:
    """A refusal does not affect the other commands of its turn. (§0.5)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        good = asyncio.ensure_future(told(runtime, append("jobs", 1)))
        with pytest.raises(Rejection):
            runtime.submit(GetTopic("absent"), lambda _: None)
        answer = await good

        assert isinstance(answer.result, Outcome)

    play(story)


@pytest.mark.parametrize("source", Phase)
@pytest.mark.parametrize("target", Phase)
def test_every_cell_of_the_phase_table(source: Phase, target: Phase) -> None:
    """The server's phases change as the table says, and no other way."""
    runtime = Runtime(LIMITS, MemoryStore(), clock=Clock())
    runtime.phase = source

    if target in PHASES[source]:
        runtime._move(target)
        assert runtime.phase is target
    else:
        with pytest.raises(AssertionError):
            runtime._move(target)


class SmallDisk(WatchedStore):
    """A store in memory whose log has limited space."""

    free = 1 << 30

    def room(self, *, reserve: bool) -> int:
        return 1 << 30 if reserve else self.free


def test_a_full_disk_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """Logged once, however many writes are refused; and not again while space comes and goes.
    (§11)"""
    store = SmallDisk()

    async def refused(runtime: Runtime) -> None:
        with pytest.raises(Rejection) as refusal:
            await told(runtime, append("a", 1))
        assert (refusal.value.detail or {})["limit"] == "disk"

    async def story(runtime: Runtime, _: WatchedStore) -> None:
        await told(runtime, append("a", 1))
        store.free = 10
        for _round in range(3):
            await refused(runtime)
            await keep_up(runtime)
        assert lines() == ["the disk is full: writes are refused"]
        store.free = 8000
        await told(runtime, append("a", 2))
        await keep_up(runtime)
        store.free = 10
        await refused(runtime)
        assert lines() == ["the disk is full: writes are refused"]

        store.free = 1 << 20
        for _round in range(3):
            await keep_up(runtime)
        assert lines()[1:] == ["there is space on the disk again: writes go on"]

        store.free = 10
        await refused(runtime)
        assert lines()[2:] == ["the disk is full: writes are refused"]

    def lines() -> list[str]:
        told = [r.getMessage().partition(" from now on")[0] for r in caplog.records]
        return [line for line in told if "disk" in line]

    caplog.set_level("INFO", "topics")
    play(story, store)


def test_turns_end_when_their_host_says() -> None:
    """Commands that were submitted by then are one write; none waits for another pass of the loop.
    (§0.10)"""

    async def story(runtime: Runtime, store: WatchedStore) -> None:
        await told(runtime, append("jobs", 0))
        before = len(store.writes)
        asked: list[Callable[[], None]] = []
        runtime.end_turns_by(asked.append)
        heard: list[Reply] = []
        for n in range(3):
            runtime.submit(append("jobs", n), heard.append)
        assert (len(asked), heard) == (1, [])

        asked.pop()()

        assert len(heard) == 3
        assert len(store.writes) == before + 1
        runtime.end_turns_by(asyncio.get_running_loop().call_soon)

    play(story)


# ---------------------------------------------------------------------- the process that syncs


def on_disk(
    path: Path,
    story: Callable[[Runtime], Coroutine[Any, Any, None]],
    then: str | None = None,
    **options: Any,
) -> None:
    """Run a story on a runtime over a directory, whose process for syncs is there; with `then` that is
    what the process does when it is asked."""

    async def main() -> None:
        runtime = Runtime(LIMITS, DiskStore(OsFiles(path)), **options)
        if then is not None:
            runtime._sync_process = SyncProcess(deaf(then))
        await runtime.start()
        async with asyncio.timeout(100):
            await runtime.wait_ready()
            await told(runtime, put("t", durability="fsync"))
            while not runtime._sync_process.want():
                await asyncio.sleep(0)
            await story(runtime)
            await runtime.stop()

    asyncio.run(main())


def data_of(path: Path) -> list[object]:
    """The records that the next process finds."""
    found: list[object] = []

    async def story(runtime: Runtime) -> None:
        reply = await told(runtime, diff("t", from_seq=0, limit=10_000))
        assert isinstance(reply.result, Outcome)
        page = orjson.loads(text_of(reply.result))
        found.extend(record["data"] for record in page["records"])

    on_disk(path, story)
    return found


def test_no_thread_takes_part_in_a_sync(tmp_path: Path) -> None:
    """But in the first ones, and where something is to be done after a sync: a thread would need the
    interpreter twice for each."""

    async def story(runtime: Runtime) -> None:
        await told(runtime, append("t", "looks after what is due"))
        by_thread: list[int] = []
        sync = runtime.store.sync
        runtime.store.sync = lambda: by_thread.append(1) or sync()  # type: ignore[method-assign,func-returns-value]
        for number in range(50):
            reply = await told(runtime, append("t", number))
            assert isinstance(reply.result, Outcome)
            assert runtime.store.synced_lsn == runtime.store.written_lsn
        assert len(by_thread) < 25
        assert runtime.store.stats.fsyncs_total > 50

    on_disk(tmp_path, story)
    assert len(data_of(tmp_path)) == 51


def test_what_is_acknowledged_while_the_process_dies_again_and_again_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread syncs what the process was asked for, and everything until another one is there. (§1.3)"""
    monkeypatch.setattr(sync_process, "AGAIN_S", (0.0,))
    acknowledged: list[object] = []

    async def story(runtime: Runtime) -> None:
        for number in range(400):
            if number % 7 == 0 and (pid := runtime._sync_process.pid) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            reply = await told(runtime, append("t", number))
            assert isinstance(reply.result, Outcome)
            acknowledged.append(number)

    on_disk(tmp_path, story)

    assert data_of(tmp_path) == acknowledged


@pytest.mark.parametrize(
    ("then", "why"),
    [
        (
            f"os.eventfd_write(answered, {answer_of(errno.EIO, 0)}); select.select([], [], [])",
            "Input/output error",
        ),
        ("select.select([], [], [])", "did not answer within 300 ms"),
    ],
    ids=["an error", "a hang"],
)
def test_a_process_that_reports_an_error_or_nothing_leaves_a_read_only_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, then: str, why: str
) -> None:
    """As a sync of a thread that fails, or that the watchdog gives up: the outcome is unknown, and nothing
    is tried again. (§0.6)"""

    async def story(runtime: Runtime) -> None:
        reply = await told(runtime, append("t", 1))
        while isinstance(reply.result, Outcome):  # a thread had something to do
            reply = await told(runtime, append("t", 1))
        assert isinstance(reply.result, Rejection)
        assert reply.result.code is ErrorCode.INTERNAL
        assert runtime.engine.read_only
        assert isinstance((await told(runtime, diff("t", from_seq=0))).result, Outcome)
        while not (tmp_path / FAILED_NAME).exists():
            await asyncio.sleep(0)

    on_disk(tmp_path, story, then=then, sync_timeout_ms=300)
    assert "the log is read-only from now on" in caplog.text
    assert why in caplog.text
