"""Group commit: who is answered when, and what a failure of any kind means (§0.5, §0.10)."""

import errno
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from topics.protocol.commit.unit_of_work import StateUnknown
from topics.protocol.driver.driver import Step
from topics.protocol.driver.group_commit import (
    INLINE_BYTES,
    WRITER_TRANSITIONS,
    LeaveMark,
    Mark,
    Rotate,
    Sync,
    Write,
    WriterState,
    read_only,
)
from topics.protocol.driver.inline_host import InlineHost
from topics.protocol.driver.reply import Reply, Ticket
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.records import parse_diff
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.commands import Append, Command
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import Limits
from topics.protocol.model.outcomes import Outcome
from topics.store.memory import MemoryStore

START_MS = 1_750_000_000_000
LIMITS = Limits()


class Slow(InlineHost):
    """A host that does what a test tells it to: steps wait in `steps`, of the kinds in `holds`.

    Attributes:
        spoilt: What the next step of a kind raises instead.
    """

    def __init__(self, store: MemoryStore | None = None, **given: Any) -> None:
        self.steps: list[Step] = []
        self.holds: set[type] = set()
        self.spoilt: dict[type, BaseException] = {}
        self.marks_left = 0
        super().__init__(LIMITS, store or MemoryStore(), START_MS, **given)
        self.driver.recover()
        self.driver.start()
        self.driver.maintenance.calm()
        self.heard: list[str] = []

    def perform(self, step: Step, /) -> None:
        if isinstance(step, LeaveMark):
            self.marks_left += 1
        if type(step) in self.holds:
            self.steps.append(step)
        else:
            self.do(step)

    def do(self, step: Step) -> None:
        """Perform a step, or let it fail."""
        error = self.spoilt.pop(type(step), None)
        if error is not None:
            self.driver.commit.failed(error)
        else:
            super().perform(step)

    def next(self) -> Step:
        """Perform the step that waits longest."""
        step = self.steps.pop(0)
        self.do(step)
        return step

    def ask(self, command: Command, name: str = "") -> Reply | Ticket:
        """Decide a command; `heard` gets the name when it is answered."""
        return self.driver.submit(command, self._hear(name))

    def _hear(self, name: str) -> Callable[[Reply], None]:
        def hear(reply: Reply) -> None:
            self.heard.append(f"{name}: {_short(reply)}")

        return hear


def _short(reply: Reply) -> str:
    result = reply.result
    if isinstance(result, Rejection):
        return f"{STATUSES[result.code]} {(result.detail or {}).get('reason', result.code.code)}"
    return "done" if isinstance(result, Outcome) else repr(result)


def append(name: str, *datas: object, **config: object) -> Append:
    fields: dict[str, object] = {"records": [{"data": data} for data in datas]}
    if config:
        fields["config"] = config
    return parse_append(name, orjson.dumps(fields), LIMITS, return_seqs=True, header_key=None)


def diff(name: str, from_seq: int = 0, **fields: object) -> Command:
    return parse_diff(name, orjson.dumps({"from_seq": from_seq, **fields}), LIMITS)


@pytest.fixture
def host() -> Slow:
    """Two topics, one of each class that waits for something, with a record each."""
    host = Slow()
    host.ask(append("disk", 0), "make disk")
    host.ask(append("fsync", 0, durability="fsync"), "make fsync")
    host.settle()
    host.heard.clear()
    return host


# ---------------------------------------------------------------------- turns and gates


def test_a_turn_is_one_write_and_each_class_has_its_gate(host: Slow) -> None:
    """`disk` is answered by the write, `fsync` by the sync that covers it. (§0.10)"""
    host.holds = {Write, Sync}
    host.ask(append("disk", 1), "disk")
    host.ask(append("fsync", 1), "fsync")
    host.settle()
    assert [type(step) for step in host.steps] == [Write]
    assert host.heard == []

    assert host.driver.commit.depth == 2

    host.next()
    assert host.heard == ["disk: done"]
    assert host.driver.commit.depth == 1

    host.next()
    assert host.heard == ["disk: done", "fsync: done"]
    assert host.driver.commit.depth == 0


def test_the_next_turn_begins_while_a_write_is_on_its_way(host: Slow) -> None:
    """What is decided meanwhile is neither shown nor answered with it, and is the next write."""
    host.holds = {Write}
    host.ask(append("disk", 1), "first")
    host.settle()
    host.ask(append("disk", 2), "second")
    host.ask(append("disk", 3), "third")
    host.settle()
    assert len(host.steps) == 1

    host.next()
    assert host.heard == ["first: done"]
    assert host.driver.engine.state.topics["disk"].published_seq == 2

    host.settle()
    host.next()
    assert host.heard == ["first: done", "second: done", "third: done"]
    assert host.driver.engine.state.topics["disk"].published_seq == 4


def test_what_follows_an_unsynced_write_of_its_topic_waits_for_it(host: Slow) -> None:
    """Records are shown in order: a class that was weakened meanwhile shows nothing past those that
    wait for a sync, also where these are only on their way to the log. (§0.10)"""
    host.holds = {Write, Sync}
    host.ask(append("fsync", 1), "fsync")
    host.settle()
    put = parse_put("fsync", b'{"durability": "disk"}')
    host.ask(put, "put")
    host.ask(append("fsync", 2), "weaker")
    host.settle()

    host.next()  # the first write
    host.settle()
    assert type(host.steps.pop(0)) is Sync
    host.next()  # the second write, before the sync of the first is done
    assert host.driver.engine.state.topics["fsync"].published_seq == 1


def test_a_large_write_is_made_where_it_may_wait(host: Slow) -> None:
    """The loop writes small batches only: the page cache may have to wait for the disk."""
    host.holds = {Write}
    host.ask(append("disk", "x"), "small")
    host.settle()
    host.next()
    host.ask(append("disk", "x" * INLINE_BYTES), "large")
    host.settle()

    (large,) = host.steps
    assert isinstance(large, Write)
    assert large.may_wait


def test_a_write_that_needs_another_file_is_made_where_it_may_wait(host: Slow) -> None:
    """To begin a file may wait for the sync of the one before."""
    host.store.fits = lambda size_bytes: False  # type: ignore[method-assign]
    host.holds = {Write}
    host.ask(append("disk", 1), "disk")
    host.settle()

    (write,) = host.steps
    assert isinstance(write, Write)
    assert write.may_wait


def test_nothing_is_written_between_a_boundary_and_what_was_true_before(host: Slow) -> None:
    """A checkpoint's image is of what the log holds before its boundary: while the log rotates,
    commands are decided and wait. (§8.2)"""
    host.holds = {Rotate, Write}
    boundaries: list[int] = []
    host.driver.commit.rotate(lambda boundary, error: boundaries.append(boundary))
    host.ask(append("disk", 1), "disk")
    host.settle()
    assert [type(step) for step in host.steps] == [Rotate]

    host.next()
    host.settle()
    assert [type(step) for step in host.steps] == [Write]
    assert boundaries == [0]


def test_who_waits_until_all_is_written_goes_on_in_that_moment(host: Slow) -> None:
    """Nothing that is true is missing in the log then. (§8.2)"""
    host.holds = {Write}
    host.ask(append("disk", 1), "disk")
    host.settle()
    host.ask(append("disk", 2), "disk")
    seen: list[bool] = []
    host.driver.commit.when_written(lambda error: seen.append(host.driver.commit.is_written))
    host.next()
    assert seen == []

    host.settle()
    host.next()
    assert seen == [True]


def test_one_broken_answer_harms_nobody_else(host: Slow) -> None:
    """A bug of whoever wanted it: the others of its turn are answered."""
    broken: list[Exception] = []
    host.on_broken_answer = broken.append  # type: ignore[method-assign]

    def breaks(reply: Reply) -> None:
        raise ValueError("a bug")

    host.driver.submit(append("disk", 1), breaks)
    host.ask(append("disk", 2), "second")
    host.settle()

    assert host.heard == ["second: done"]
    assert [str(error) for error in broken] == ["a bug"]


# ---------------------------------------------------------------------- syncs and marks


def test_whatever_is_written_while_a_sync_runs_waits_for_the_next(host: Slow) -> None:
    """One sync for all that came meanwhile. (§0.10)"""
    host.holds = {Sync}
    host.ask(append("fsync", 1), "first")
    host.settle()
    for name in ("second", "third"):
        host.ask(append("fsync", 2), name)
        host.settle()
    (sync,) = host.steps

    host.driver.commit.synced(host.store.written_lsn - 2, 0.0)
    host.steps.remove(sync)
    assert host.heard == ["first: done"]
    assert len(host.steps) == 1
    host.next()
    assert host.heard == ["first: done", "second: done", "third: done"]


def test_a_disk_tail_is_synced_by_the_clock_and_vouched_for_when_idle(host: Slow) -> None:
    """`TOPICS_FLUSH_MS` bounds what a power loss takes; then a mark says that nothing is missing."""
    host.holds = {Sync, Mark}
    host.ask(append("disk", 1), "disk")
    host.ring()
    assert host.steps == []

    host.advance(ms=200)
    assert type(host.next()) is Sync
    host.advance(ms=200)
    assert type(host.next()) is Mark


# ---------------------------------------------------------------------- failures


FAILURES = [
    OSError(errno.EIO, "Input/output error"),
    MemoryError(),
    ValueError("a bug of ours"),
    KeyboardInterrupt(),
]


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("step", [Write, Sync])
def test_any_failure_on_the_way_to_the_disk_makes_the_log_read_only(
    host: Slow, step: type, error: BaseException
) -> None:
    """Whatever it is: everybody who waits is answered that nobody knows, nothing is written again,
    nothing of it is shown, and the next start is left a mark. (§0.5, §0.6)"""
    host.spoilt[step] = error
    host.holds = {Sync}
    host.ask(append("fsync", 1), "first")
    host.ask(append("disk", 1), "second")
    host.settle()
    if step is Sync:
        host.ask(append("fsync", 2), "third")
    while host.steps:
        host.next()
    host.settle()

    unknown = "500 write_failed"
    told = dict(line.split(": ") for line in host.heard)
    if step is Write:
        assert told == {"first": unknown, "second": unknown}
    else:
        assert told == {"first": unknown, "second": "done", "third": unknown}
    assert host.driver.engine.state.topics["fsync"].published_seq == 1
    assert (host.marks_left, host.store.read_only) == (1, True)
    with pytest.raises(Rejection) as refused:
        host.ask(append("disk", 9))
    assert refused.value.code is ErrorCode.NOT_READY
    assert isinstance(host.ask(diff("disk")), Reply)


def test_a_retry_of_a_failed_write_is_not_answered_from_memory(host: Slow) -> None:
    """A key that only memory knows is no proof that the record is kept. (§0.8)"""
    host.spoilt[Write] = MemoryError()
    body = orjson.dumps({"records": [{"data": 1}], "idempotency_key": "k"})
    command = parse_append("fsync", body, LIMITS, return_seqs=True, header_key=None)
    host.ask(command, "first")
    host.settle()

    again = host.ask(command, "again")

    assert isinstance(again, Reply)
    assert _short(again) == "500 write_failed"
    assert host.heard == ["first: 500 write_failed"]


def test_a_publication_that_fails_makes_the_log_read_only(
    host: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is shown and what was answered would differ from then on."""

    def broken(lsn: int) -> None:
        raise MemoryError

    monkeypatch.setattr(host.driver.engine, "on_written", broken)
    host.ask(append("disk", 1), "disk")
    host.settle()

    assert host.heard == ["disk: 500 write_failed"]
    assert host.driver.commit.writer is WriterState.FAILED


@pytest.mark.parametrize("kind", [Sync, Write, Rotate])
def test_a_disk_that_hangs_is_given_up(kind: type) -> None:
    """A step that takes longer than `TOPICS_SYNC_TIMEOUT_MS` counts as failed: its clients get an
    answer, and what it says later is not heard. (§0.6)"""
    host = Slow(sync_timeout_ms=30_000)
    host.ask(append("fsync", 0, durability="fsync"), "make")
    host.settle()
    host.holds = {kind}
    if kind is Rotate:
        host.driver.commit.rotate(lambda boundary, error: host.heard.append(repr(error)))
    host.ask(append("fsync", 1), "fsync")
    host.settle()
    _wait(host, ms=29_000)
    assert host.driver.commit.failure is None

    _wait(host, ms=2_000)
    assert "30000 ms" in str(host.driver.commit.failure)
    assert "fsync: 500 write_failed" in host.heard
    before = list(host.heard)
    while host.steps:
        host.next()
    assert host.heard == before


def _wait(host: Slow, ms: int) -> None:
    """Time in which the host's loop runs, and rings whenever it is asked to."""
    until_ms = host.now_ms + ms
    while host.now_ms < until_ms:
        at_ms = host.driver.alarm_ms()
        host.advance(max(min(until_ms, at_ms or until_ms) - host.now_ms, 0))


@pytest.mark.parametrize("kind", [Sync, Write, Rotate])
def test_a_process_that_was_stopped_does_not_take_its_disk_for_dead(kind: type) -> None:
    """SIGSTOP, `docker pause`, a suspended machine: the disk may have answered, and nobody could hear
    it.  However long and often, the log goes on. (§0.6)"""
    host = Slow(sync_timeout_ms=30_000)
    host.ask(append("fsync", 0, durability="fsync"), "make")
    host.settle()
    host.holds = {kind}
    if kind is Rotate:
        host.driver.commit.rotate(lambda boundary, error: host.heard.append(repr(error)))
    host.ask(append("fsync", 1), "fsync")
    host.settle()
    for _ in range(5):
        host.advance(ms=3_600_000)

    host.holds = set()
    while host.steps:
        host.next()
    host.settle()

    assert host.driver.commit.failure is None
    assert "fsync: done" in host.heard


def test_a_report_that_is_there_wins_over_the_alarm() -> None:
    """A disk took nearly as long as it may, and answered while the process was stopped: the loop hears
    the report before it judges; without a report the next look judges."""
    host = Slow(sync_timeout_ms=30_000)
    host.ask(append("fsync", 0, durability="fsync"), "make")
    host.settle()
    host.holds = {Sync}
    host.ask(append("fsync", 1), "fsync")
    host.settle()
    _wait(host, ms=29_900)

    host.advance(ms=3_600_000)
    assert host.driver.commit.failure is None

    host.advance(ms=1_000)
    assert "30000 ms" in str(host.driver.commit.failure)


def test_what_cannot_be_encoded_is_not_true(host: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame is made before its event is applied: no memory for it is nobody's harm but the one's
    who asked."""

    def broken(event: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("topics.protocol.commit.unit_of_work.encode", broken)
        with pytest.raises(MemoryError):
            host.ask(append("disk", 1))
    host.ask(append("disk", 1), "disk")
    host.settle()

    assert host.heard == ["disk: done"]
    assert host.driver.engine.state.topics["disk"].head_seq == 2


def test_an_event_that_is_true_in_part_ends_the_process(
    host: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state is known no more; the log does not hold the event, so that the next start is sound."""
    broken: list[StateUnknown] = []
    monkeypatch.setattr(host, "on_broken", broken.append)
    host.driver.engine.unit._broken = host.on_broken
    monkeypatch.setattr(host.driver.engine.state, "_set_totals", lambda *given: [][1], raising=True)
    host.holds = {Write}

    with pytest.raises(StateUnknown):
        host.ask(append("disk", 1))

    assert len(broken) == 1
    assert host.steps == []


@pytest.mark.parametrize("source", WriterState)
@pytest.mark.parametrize("target", WriterState)
def test_every_cell_of_the_writers_table(source: WriterState, target: WriterState) -> None:
    """The writing end of the log moves as its table says, and no other way."""
    commit = Slow().driver.commit
    commit.writer = source

    if target in WRITER_TRANSITIONS[source]:
        commit._move(target)
        assert commit.writer is target
    else:
        with pytest.raises(AssertionError):
            commit._move(target)


def test_a_turn_is_due_until_it_has_ended(host: Slow) -> None:
    """A host that has been asked for the end of a turn need not look for alarms before it."""
    commit = host.driver.commit
    assert not commit.is_turn_due
    host.ask(append("disk", 1), "disk")
    assert commit.is_turn_due
    host.settle()
    assert not commit.is_turn_due
    assert host.heard == ["disk: done"]


# ---------------------------------------------------------------------- bugs, and want of memory


@pytest.mark.parametrize("call", ["take_frames", "on_synced"])
def test_what_fails_between_a_decision_and_its_answer_ends_writing(
    host: Slow, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The state may be ahead of the log then: the write's outcome is unknown, and no other follows.
    (§0.5)"""

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(host.driver.engine, call, fail)
    host.ask(append("t", 1, durability="fsync"), "write")

    host.settle()

    assert host.heard == ["write: 500 write_failed"]
    assert isinstance(host.driver.commit.failure, MemoryError)
    assert host.marks_left == 1


def test_a_mark_that_ends_after_the_log_failed_changes_nothing(host: Slow) -> None:
    """The log has no turn to go on with. (§0.6)"""
    host.driver.commit.failed(OSError("the disk is gone"))
    writer = host.driver.commit.writer

    host.driver.commit.marked()

    assert host.driver.commit.writer is writer is WriterState.FAILED


def test_who_waits_for_a_write_hears_that_the_log_failed(host: Slow) -> None:
    """Maintenance waits for what is on its way, too; a clock that rings later changes nothing. (§0.6)"""
    host.holds = {Write}
    host.ask(append("t", 1), "write")
    host.driver.end_turn()
    heard: list[Exception | None] = []
    host.driver.commit.when_written(heard.append)
    assert heard == []

    host.driver.commit.failed(OSError("the disk is gone"))

    assert [str(error) for error in heard] == [str(read_only())]
    host.now_ms += 10_000
    host.driver.commit.ring()
    assert host.heard == ["write: 500 write_failed"]
