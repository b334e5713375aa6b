"""Group commit: what is written when, what is synced when, and which answer waits for either.

All events of one turn go to the log in one write.  While it is on its way the next turn begins, and
what is decided meanwhile is the next write.  Whatever is written while a sync runs waits for the next
sync, together (group commit, as in DeWitt et al. 1984).  This module decides; its host performs:
`LogHost.perform` is asked for at most one step of the log's writer (`Write`, `Rotate`, `Mark`) and
one `Sync` at a time, and reports back.

Invariants:
- an answer is delivered no earlier than its gate allows, and every answer exactly once;
- whatever fails between applying an event and knowing that it is written makes the log read-only,
  with an answer to every command that waits (§0.5), and nothing is retried: after a failed write or
  sync the page cache shows bytes that the disk may not have (Rebello et al., "Can Applications
  Recover from fsync Failures?", 2020).
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

import msgspec

from topics.protocol.driver.acceptance import PendingTurns
from topics.protocol.driver.loop_time import LoopTime, tick_ms
from topics.protocol.driver.reply import Deliver, PendingAnswer, Reply
from topics.protocol.engine import Engine
from topics.protocol.model.codec import Frames
from topics.protocol.model.errors import ErrorCode, Rejection, WriteFailed
from topics.protocol.model.outcomes import SYNCED, Outcome
from topics.protocol.model.ports import Store

INLINE_BYTES: Final = 64 << 10
"""A write up to this size is made on the event loop, in some 20 µs; a hop to a thread and back takes
40 µs."""


# ---------------------------------------------------------------------- what the host is asked


class Write(msgspec.Struct, frozen=True):
    """`Store.write` these frames; then `GroupCommit.wrote` or `failed`.  Where it `may_wait` for a
    disk, on a thread."""

    frames: Frames
    may_wait: bool


class Rotate(msgspec.Struct, frozen=True):
    """`Store.rotate`, on a thread; then `GroupCommit.rotated` or `refused`, or `failed`."""

    fresh: bool
    stay: bool


class Mark(msgspec.Struct, frozen=True):
    """`Store.idle`: leave a mark that vouches for what is synced; then `marked` or `failed`."""


class Sync(msgspec.Struct, frozen=True):
    """`Store.sync`, on a thread, or what `Store.begin_sync` says; then `GroupCommit.synced` or `failed`."""


class LeaveMark(msgspec.Struct, frozen=True):
    """`Store.leave_failure_mark`, on a thread, since the disk may hang.  Nothing is reported."""


LogStep: TypeAlias = Write | Rotate | Mark | Sync | LeaveMark


class WriterState(StrEnum):
    """What the writer of the log is doing: one step at a time, because their order is the log's."""

    FREE = "free"
    WRITING = "writing"
    ROTATING = "rotating"
    MARKING = "marking"
    FAILED = "failed"


# Paths of requests read these: Python 3.11 finds a member of an Enum through its metaclass, slowly.
FREE: Final = WriterState.FREE
WRITING: Final = WriterState.WRITING


WRITER_TRANSITIONS: Final[dict[WriterState, frozenset[WriterState]]] = {
    WriterState.FREE: frozenset(
        {WriterState.WRITING, WriterState.ROTATING, WriterState.MARKING, WriterState.FAILED}
    ),
    WriterState.WRITING: frozenset({WriterState.FREE, WriterState.FAILED}),
    WriterState.ROTATING: frozenset({WriterState.FREE, WriterState.FAILED}),
    WriterState.MARKING: frozenset({WriterState.FREE, WriterState.FAILED}),
    WriterState.FAILED: frozenset(),
}


class LogHost(Protocol):
    """What group commit asks of its host."""

    @property
    def steady_ms(self) -> int:
        """A monotonic clock, milliseconds."""

    def perform(self, step: LogStep, /) -> None:
        """Begin a step; its report may come before this returns, or later."""

    def turn_soon(self) -> None:
        """Call `end_turn` once the commands that are here now were submitted."""


class CommitListener(Protocol):
    """What the driver does when the log has moved."""

    def on_published(self) -> None:
        """Readers see more than before; no answer was delivered yet."""

    def on_answered(self) -> None:
        """Every answer was delivered that waited for no more than this."""

    def work_soon(self) -> None:
        """A step of the log is over that was no write: work goes on that no command asks for."""

    def erase(self, waiter: PendingAnswer) -> None:
        """The delete is in the log; its answer waits until the bytes are gone, too."""

    def on_failed(self, error: Exception) -> None:
        """The log is read-only now, and every command that waited for it was answered."""

    def on_broken_answer(self, error: Exception) -> None:
        """`deliver` of one answer raised; the other answers are delivered."""


class GroupCommit:
    """The engine's events into its store.

    Args:
        flush_ms: How long a `disk` write may stay unsynced.
        sync_timeout_ms: A step of the log that takes longer counts as failed; 0: never.  Time in which
            the host did not run does not count.
        turns: Where a turn goes before it is written here; None: nowhere.

    Attributes:
        writer: What the writer of the log is doing.
        failure: Why the log is read-only; None while it is not.
        peak: The most answers that ever waited for one sync.
        is_turn_due: The host will call `end_turn`.
        is_over: Nothing is written any more, but by the task that ends maintenance.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        host: LogHost,
        listener: CommitListener,
        *,
        flush_ms: int,
        sync_timeout_ms: int = 0,
        turns: PendingTurns | None = None,
    ) -> None:
        self.writer = FREE
        self.failure: Exception | None = None
        self.peak = 0
        self.is_over = False
        self._engine = engine
        self._store = store
        self._host = host
        self._listener = listener
        self._flush_ms = flush_ms
        self._timeout_ms = sync_timeout_ms
        self._loop_time = LoopTime(tick_ms(sync_timeout_ms))
        self._unit: list[PendingAnswer] = []
        self._on_its_way: list[PendingAnswer] = []
        self._writer_since_ms = 0
        """By the loop's time, as `_sync_since_ms`."""
        self.is_turn_due = False
        self._when_written: deque[Callable[[WriteFailed | None], None]] = deque()
        self._when_rotated: Callable[[int, Exception | None], None] | None = None
        self._syncing: deque[PendingAnswer] = deque()
        self._synced_lsn = 0
        """As far as syncs were reported; the store's own lsn may be ahead of what is published."""
        self._sync_since_ms: int | None = None
        self._flush_at_ms: int | None = None
        self._turns = turns

    def recovered(self, lsn: int) -> None:
        """The events of recovery are written and synced."""
        self._synced_lsn = lsn
        if self._turns is not None:
            self._turns.recovered(lsn)

    def _move(self, state: WriterState) -> None:
        assert state in WRITER_TRANSITIONS[self.writer], (self.writer, state)
        self.writer = state

    def _begin(self, step: Write | Rotate | Mark) -> None:
        """Have the host begin a step of the writer; its time runs where it is not over at once."""
        self._host.perform(step)
        if self._timeout_ms and self.writer is not FREE:
            self._writer_since_ms = self._loop_time.look(self._host.steady_ms)

    # ------------------------------------------------------------------ one write a turn

    def wait(self, deliver: Deliver, outcome: Outcome, throttle_ms: float = 0.0) -> None:
        """Deliver an outcome of this turn when its gate opens."""
        self._unit.append(PendingAnswer(deliver, outcome, 0, 0.0, throttle_ms))
        if not self.is_turn_due:
            self.turn_soon()

    @property
    def is_busy(self) -> bool:
        """Whether a step of the writer is under way: no turn ends before its own end."""
        return self.writer is not FREE

    @property
    def is_awaited(self) -> bool:
        """Whether a command waits for the next write."""
        return bool(self._unit)

    def turn_soon(self) -> None:
        """Have this turn ended, once the commands that are here now were submitted."""
        if not self.is_turn_due and (
            self.writer is FREE if self._turns is None else self._turns.may_end
        ):
            self.is_turn_due = True
            self._host.turn_soon()

    def end_turn(self) -> None:
        """Write what was decided; where a step of the writer is under way, once that has ended."""
        self.is_turn_due = False
        if self._turns is not None and self._turns.take():
            return
        if self.writer is not FREE:
            return
        self._on_its_way, self._unit = self._unit, []
        try:
            frames = self._engine.take_frames()
            size_bytes = frames.size_bytes
            may_wait = size_bytes > INLINE_BYTES or not self._store.fits(size_bytes)
        except Exception as error:
            self.fail(error)
            return
        self._write(frames, may_wait)

    def _write(self, frames: Frames, may_wait: bool) -> None:
        self._move(WRITING)
        if frames.count:
            self._begin(Write(frames, may_wait))
        else:
            self._finish(self._store.written_lsn, 0.0, wrote=False)

    def wrote(self, lsn: int, took_ms: float) -> None:
        """The write returned."""
        if self.writer is WRITING:
            self._finish(lsn, took_ms, wrote=True)

    def _finish(self, lsn: int, took_ms: float, *, wrote: bool) -> None:
        waiters, self._on_its_way = self._on_its_way, []
        try:
            durable_lsn = self._written(lsn)
            self._listener.on_published()
        except Exception as error:
            self._on_its_way = waiters
            self.fail(error)
            return
        self._move(FREE)
        open_now: list[PendingAnswer] = []
        for waiter in waiters:
            waiter.lsn, waiter.write_ms = lsn, took_ms
            waits = waiter.outcome.gate is SYNCED and lsn > durable_lsn
            (self._syncing if waits else open_now).append(waiter)
        if self._syncing:
            self.peak = max(self.peak, len(self._syncing))
            self.want_sync()
        elif wrote and self._flush_at_ms is None:
            self._sync_later()
        # A client that is answered may send its next command at once, which may end the next turn.
        for waiter in open_now:
            self._open(waiter, 0.0)
        self._go_on()
        self._listener.on_answered()

    def _written(self, lsn: int) -> int:
        """The events of the turn on its way are in the log; up to which write no answer waits for a
        sync."""
        self._engine.on_written(lsn)
        return self._synced_lsn if self._turns is None else self._turns.written(lsn)

    def _go_on(self) -> None:
        """The writer is free: begin the next turn, or call what waits for all to be written."""
        if self._turns is not None:
            self._turns.freed()
        if self.writer is FREE:
            if self._unit or self._engine.unit.has_events:
                self.turn_soon()
            else:
                while self._when_written and self.is_written:
                    self._when_written.popleft()(None)
        if self._turns is not None:
            self._turns.went_on()

    def _open(self, waiter: PendingAnswer, sync_ms: float) -> None:
        if not waiter.outcome.erases:
            self.answer(waiter, waiter.reply(sync_ms))
        else:
            self._listener.erase(waiter)

    def answer(self, waiter: PendingAnswer, reply: Reply) -> None:
        """Deliver an answer; an error of its receiver concerns no other answer."""
        try:
            waiter.deliver(reply)
        except Exception as error:
            self._listener.on_broken_answer(error)

    @property
    def is_written(self) -> bool:
        """Whether every applied event is in the log, and nothing is on its way to it."""
        return (
            self.writer is FREE
            and not self.has_turn
            and (self._turns is None or self._turns.is_still)
        )

    @property
    def has_turn(self) -> bool:
        """Whether something was decided, or waits for a turn, that has not ended yet."""
        return bool(self._unit) or self._engine.unit.has_events

    @property
    def is_to_be_still(self) -> bool:
        """Whether somebody waits for a moment in which `is_written` holds."""
        return bool(self._when_written)

    def when_written(self, call: Callable[[WriteFailed | None], None]) -> None:
        """Call with None in a moment in which `is_written` holds, or with why it never will."""
        if self.failure is not None:
            call(read_only())
        elif self.is_written and not self._when_written:
            call(None)
        else:
            self._when_written.append(call)
            if self.writer is FREE:
                self.end_turn()

    @property
    def depth(self) -> int:
        """Answers that wait for the log."""
        depth = len(self._syncing) + len(self._unit) + len(self._on_its_way)
        return depth if self._turns is None else depth + self._turns.depth

    # ------------------------------------------------------------------ other steps of the log

    def rotate(
        self,
        call: Callable[[int, Exception | None], None],
        *,
        fresh: bool = False,
        stay: bool = False,
    ) -> None:
        """Have the log begin a new file (`Store.rotate`), in a moment in which `is_written`; `call`
        gets the boundary, or why there is none."""
        assert self.is_written
        self._when_rotated = call
        self._move(WriterState.ROTATING)
        self._begin(Rotate(fresh, stay))

    def rotated(self, boundary: int) -> None:
        """The log goes on behind this boundary."""
        self._rotation_ended(boundary, None)

    def refused(self, error: Exception) -> None:
        """There was no space for another file; nothing has changed."""
        self._rotation_ended(0, error)

    def _rotation_ended(self, boundary: int, error: Exception | None) -> None:
        if self.writer is not WriterState.ROTATING:
            return
        call, self._when_rotated = self._when_rotated, None
        assert call is not None
        self._move(FREE)
        call(boundary, error)
        self._step_ended()

    def marked(self) -> None:
        """The mark is written."""
        if self.writer is WriterState.MARKING:
            self._move(FREE)
            self._step_ended()

    def _step_ended(self) -> None:
        """A turn that was to end during the step may have had answers and nothing to write: no turn
        follows that would deliver them."""
        self._go_on()
        self._listener.on_answered()
        self._listener.work_soon()

    # ------------------------------------------------------------------ for turns that others accept

    def take_turn(self) -> tuple[Frames, list[PendingAnswer]] | None:
        """What was decided, and who waits for it; None where the log has failed over it."""
        waiters, self._unit = self._unit, []
        try:
            return self._engine.take_frames(), waiters
        except Exception as error:
            self._unit = waiters
            self.fail(error)
            return None

    def write_accepted(self, frames: Frames, waiters: list[PendingAnswer]) -> None:
        """Write what others have accepted; the writer is free."""
        self._on_its_way = waiters
        size_bytes = frames.size_bytes
        self._write(frames, size_bytes > INLINE_BYTES or not self._store.fits(size_bytes))

    def refuse_turn(self, why: Rejection) -> None:
        """Answer whoever waits for the turn, which is not ended any more."""
        waiters, self._unit = self._unit, []
        for waiter in waiters:
            self.answer(waiter, Reply(why))

    def abandon(
        self, why: Rejection, accepted: Sequence[tuple[Frames, list[PendingAnswer]]]
    ) -> None:
        """The engine is dropped: nothing more is shown.  What is accepted is written all the same, because
        the store is where another engine goes on from."""
        self.failure = why
        on_its_way, self._on_its_way = self._on_its_way, []
        self.writer = WriterState.FAILED
        for frames, waiters in accepted:
            self._host.perform(Write(frames, may_wait=True))  # behind the one on its way
            on_its_way += waiters
        self._engine.on_failed()
        for waiter in on_its_way:
            # Accepted, and on its way to the disk of this node: true, wherever it is written.
            self.answer(waiter, waiter.reply())
        self._end_calls()
        for waiter in self._syncing:
            self.answer(waiter, Reply(why))
        self._syncing.clear()

    # ------------------------------------------------------------------ failure

    def failed(self, error: BaseException) -> None:
        """A step of the log failed."""
        self.fail(error if isinstance(error, Exception) else WriteFailed("log", repr(error)))

    def fail(self, error: Exception, waiters: Sequence[PendingAnswer] = ()) -> None:
        """The log is read-only from now on: nothing of this turn is shown, and every command that
        waits is answered that its outcome is unknown (§0.5); those too that wait for `waiters`."""
        if self.failure is not None:
            return
        self._on_its_way += waiters
        if self._turns is not None:
            self._on_its_way += self._turns.failing()
        self.failure = error
        self._move(WriterState.FAILED)
        self._store.fail(error)
        self._host.perform(LeaveMark())
        self._engine.on_failed(lacks_space=self._store.lacks_space)
        waiters = [*self._syncing, *self._on_its_way, *self._unit]
        self._syncing.clear()
        self._on_its_way, self._unit = [], []
        for waiter in waiters:
            self.answer(waiter, Reply(unknown()))
        self._end_calls()
        self._listener.on_failed(error)

    def _end_calls(self) -> None:
        """Nothing is written or rotated any more: say so to whoever waits for it."""
        calls, self._when_written = self._when_written, deque()
        for call in calls:
            call(read_only())
        rotated, self._when_rotated = self._when_rotated, None
        if rotated is not None:
            rotated(0, read_only())
        self._sync_since_ms = self._flush_at_ms = None

    # ------------------------------------------------------------------ syncs

    @property
    def synced_lsn(self) -> int:
        """Up to which write the log is durable, as far as syncs were reported."""
        return self._synced_lsn

    @property
    def is_synced(self) -> bool:
        """Whether all that is written is durable, and the sync was reported."""
        return self._synced_lsn >= self._store.written_lsn

    def want_sync(self) -> None:
        if self._sync_since_ms is None and self.failure is None:
            self._sync_since_ms = self._loop_time.look(self._host.steady_ms)
            self._flush_at_ms = None
            self._host.perform(Sync())

    def ask_room(self, need_bytes: int) -> bool:
        """Have the store make room for so many bytes with the next sync; False where there is none."""
        if not self._store.ask_room(need_bytes):
            return False
        self.want_sync()
        return True

    def when_synced(self, call: Callable[[WriteFailed | None], None]) -> None:
        """Call with None when all that is written by now is durable, or with why it never will be."""
        if self.failure is not None or self.is_synced:
            call(None if self.failure is None else read_only())
            return

        def deliver(reply: Reply) -> None:
            call(None if isinstance(reply.result, Outcome) else read_only())

        self._syncing.append(PendingAnswer(deliver, Outcome(), self._store.written_lsn))
        self.want_sync()

    def synced(self, lsn: int, took_ms: float) -> None:
        """The log is durable up to `lsn`."""
        if self._turns is not None:
            self._turns.synced(lsn)
        if self.failure is not None:
            return
        self._sync_since_ms = None
        self._synced_lsn = lsn
        try:
            self._engine.on_synced(lsn)
            self._listener.on_published()
        except Exception as error:
            self.fail(error)
            return
        open_now = []
        while self._syncing and self._syncing[0].lsn <= lsn:
            open_now.append(self._syncing.popleft())
        if self._syncing:
            self.want_sync()
        else:
            self._sync_later()
        for waiter in open_now:
            self._open(waiter, took_ms)
        self._listener.on_answered()

    def _sync_later(self) -> None:
        if self._flush_at_ms is None and self._sync_since_ms is None:
            self._flush_at_ms = self._host.steady_ms + self._flush_ms

    # ------------------------------------------------------------------ time

    def alarm_ms(self) -> int | None:
        """When `ring` is wanted, by the steady clock; None: not before something happens."""
        at_ms = self._flush_at_ms
        if self._timeout_ms and self.failure is None and self._is_waiting:
            next_ms = self._loop_time.next_ms
            at_ms = next_ms if at_ms is None else min(at_ms, next_ms)
        return at_ms

    @property
    def _is_waiting(self) -> bool:
        """Whether a step of the log is under way."""
        return self._sync_since_ms is not None or self.writer is not FREE

    def ring(self) -> None:
        """Time went by: sync what is unsynced for too long, and fail where a disk hangs."""
        now_ms = self._host.steady_ms
        if self.failure is not None:
            return
        if self._timeout_ms and self._is_waiting and self._hangs(now_ms):
            self.fail(WriteFailed("log", f"the disk did not answer within {self._timeout_ms} ms"))
            return
        if self._flush_at_ms is None or now_ms < self._flush_at_ms:
            return
        self._flush_at_ms = None
        if self.is_over:
            return
        if not self.is_synced:
            self.want_sync()
        elif self.is_written and self._sync_since_ms is None:
            self._move(WriterState.MARKING)
            self._begin(Mark())

    def _hangs(self, now_ms: int) -> bool:
        """Whether a step takes too long; right after a time in which the host did not run, its report
        may be there and has yet to be heard."""
        since_ms = self._loop_time.look(now_ms) - self._timeout_ms
        if self._loop_time.was_still:
            return False
        return (self._sync_since_ms is not None and self._sync_since_ms <= since_ms) or (
            self.writer is not FREE and self._writer_since_ms <= since_ms
        )


def read_only() -> WriteFailed:
    return WriteFailed("log", "read-only")


def unknown() -> Rejection:
    """500 for a command that waited for a log that failed (§0.5)."""
    return Rejection(
        ErrorCode.INTERNAL,
        "the log failed before this was durable; whether it will be found again is unknown",
        {"reason": "write_failed", "outcome": "unknown"},
    )
