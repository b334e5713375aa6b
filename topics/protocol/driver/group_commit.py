"""Group commit: what is written when, what is synced when, and whose answer waits for either.

All events of one turn go to the log in one write.  While it is on its way the next turn begins, and
what comes together meanwhile is the next write.  Whatever is written while a sync runs waits for the
next sync, together.  This module decides; its host performs: `Host.perform` is asked for at most one
step of the log (`Write`, `Rotate`, `Mark`) and one `Sync` at a time, and reports back.

Invariants:
- an answer is delivered no earlier than its gate allows, and every waiter is answered once;
- whatever fails between an event's becoming true and the knowledge that it is written makes the log
  read-only, with an answer to everybody who waits (§0.5), and nothing is retried: after a failed
  write or sync the page cache shows bytes that the disk may not have.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, TypeAlias

from topics.protocol.engine import Engine
from topics.protocol.model.codec import Frames
from topics.protocol.model.errors import ErrorCode, Rejection, WriteFailed
from topics.protocol.model.outcomes import Gate, Outcome
from topics.protocol.model.ports import Store

INLINE_BYTES: Final = 64 << 10
"""A write up to this size is made where the loop runs, some 20 µs; a hop to a thread takes 40 µs."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An outcome, or why there is none, with the times it waited (milliseconds) and the lsn of the
    newest write that it says something of."""

    result: Outcome | Exception
    write_ms: float = 0.0
    sync_ms: float = 0.0
    throttle_ms: float = 0.0
    lsn: int = 0


Deliver: TypeAlias = Callable[[Reply], None]


@dataclass(slots=True)
class Waiter:
    """An answer that waits for the log; `lsn` is that of the write that it waits for."""

    deliver: Deliver
    outcome: Outcome
    lsn: int = 0
    write_ms: float = 0.0
    throttle_ms: float = 0.0

    def reply(self, sync_ms: float = 0.0) -> Reply:
        return Reply(self.outcome, self.write_ms, sync_ms, self.throttle_ms, self.lsn)


# ---------------------------------------------------------------------- what the host is asked


@dataclass(frozen=True, slots=True)
class Write:
    """`Store.write` these frames; then `GroupCommit.wrote` or `failed`.  Where it `may_wait` for a
    disk, not on the loop."""

    frames: Frames
    may_wait: bool


@dataclass(frozen=True, slots=True)
class Rotate:
    """`Store.rotate`, not on the loop; then `GroupCommit.rotated` or `refused`, or `failed`."""

    fresh: bool
    stay: bool


@dataclass(frozen=True, slots=True)
class Mark:
    """`Store.idle`: leave a mark that vouches for what is synced; then `marked` or `failed`."""


@dataclass(frozen=True, slots=True)
class Sync:
    """`Store.sync`, not on the loop; then `GroupCommit.synced` or `failed`."""


@dataclass(frozen=True, slots=True)
class LeaveMark:
    """`Store.leave_failure_mark`, not on the loop: the disk may hang.  Nothing is reported."""


LogStep: TypeAlias = Write | Rotate | Mark | Sync | LeaveMark


class Lane(Enum):
    """What the writing end of the log is doing.  One step at a time: their order is the log's."""

    FREE = "free"
    WRITING = "writing"
    ROTATING = "rotating"
    MARKING = "marking"
    FAILED = "failed"


LANES: Final[dict[Lane, frozenset[Lane]]] = {
    Lane.FREE: frozenset({Lane.WRITING, Lane.ROTATING, Lane.MARKING, Lane.FAILED}),
    Lane.WRITING: frozenset({Lane.FREE, Lane.FAILED}),
    Lane.ROTATING: frozenset({Lane.FREE, Lane.FAILED}),
    Lane.MARKING: frozenset({Lane.FREE, Lane.FAILED}),
    Lane.FAILED: frozenset(),
}


class Host(Protocol):
    """Who has the threads, the clock and the log of the process."""

    @property
    def steady_ms(self) -> int:
        """A clock that nobody sets."""

    def perform(self, step: LogStep, /) -> None:
        """Begin a step; its report may come before this returns, or later."""

    def turn_soon(self) -> None:
        """Call `end_turn` once those who are here now have had theirs."""


class Turns(Protocol):
    """Whose turns these are."""

    def on_published(self) -> None:
        """Readers see more than before; nobody was answered yet."""

    def on_answered(self) -> None:
        """Everybody was answered who waited for no more than this."""

    def erase(self, waiter: Waiter) -> None:
        """The delete is in the log; its answer waits until the bytes are gone, too."""

    def on_failed(self, error: Exception) -> None:
        """The log is read-only now, and everybody who waited for it was answered."""

    def on_broken_answer(self, error: Exception) -> None:
        """An answer could not be delivered: a bug of who wanted it, which harms nobody else."""


class GroupCommit:
    """The engine's events into its store.

    Args:
        flush_ms: How long a `disk` write may stay unsynced.
        sync_timeout_ms: A step of the log that takes longer counts as failed; 0: never.

    Attributes:
        lane: What the writing end of the log does.
        failure: Why the log is read-only; None while it is not.
        peak: The most answers that ever waited for one sync.
        is_over: Nothing is written any more, but by the last chore.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        host: Host,
        turns: Turns,
        *,
        flush_ms: int,
        sync_timeout_ms: int = 0,
    ) -> None:
        self.lane = Lane.FREE
        self.failure: Exception | None = None
        self.peak = 0
        self.is_over = False
        self._engine = engine
        self._store = store
        self._host = host
        self._turns = turns
        self._flush_ms = flush_ms
        self._timeout_ms = sync_timeout_ms
        self._unit: list[Waiter] = []
        self._on_its_way: list[Waiter] = []
        self._lane_since_ms = 0
        self._is_turn_due = False
        self._when_written: deque[Callable[[WriteFailed | None], None]] = deque()
        self._when_rotated: Callable[[int, Exception | None], None] | None = None
        self._syncing: deque[Waiter] = deque()
        self._synced_lsn = 0
        """What this has heard of; the store's own runs ahead of what is published."""
        self._sync_since_ms: int | None = None
        self._flush_at_ms: int | None = None

    def recovered(self, lsn: int) -> None:
        """What recovery had to say is written and synced."""
        self._synced_lsn = lsn

    def _move(self, lane: Lane) -> None:
        assert lane in LANES[self.lane], (self.lane, lane)
        self.lane = lane
        self._lane_since_ms = self._host.steady_ms if self._timeout_ms else 0

    # ------------------------------------------------------------------ one write a turn

    def wait(self, deliver: Deliver, outcome: Outcome, throttle_ms: float = 0.0) -> None:
        """Deliver an outcome of this turn when its gate opens."""
        self._unit.append(Waiter(deliver, outcome, throttle_ms=throttle_ms))
        self.turn_soon()

    def turn_soon(self) -> None:
        """This turn is to be ended, once the others have had theirs."""
        if not self._is_turn_due and self.lane is Lane.FREE:
            self._is_turn_due = True
            self._host.turn_soon()

    def end_turn(self) -> None:
        """Write what was decided; or, where a step of the log is under way, as soon as it ends."""
        self._is_turn_due = False
        if self.lane is not Lane.FREE:
            return
        self._on_its_way, self._unit = self._unit, []
        try:
            frames = self._engine.take_frames()
            size_bytes = frames.size_bytes
            may_wait = size_bytes > INLINE_BYTES or not self._store.fits(size_bytes)
        except Exception as error:
            self.fail(error)
            return
        self._move(Lane.WRITING)
        if frames:
            self._host.perform(Write(frames, may_wait))
        else:
            self._finish(self._store.written_lsn, 0.0, wrote=False)

    def wrote(self, lsn: int, took_ms: float) -> None:
        """The write returned."""
        if self.lane is Lane.WRITING:
            self._finish(lsn, took_ms, wrote=True)

    def _finish(self, lsn: int, took_ms: float, *, wrote: bool) -> None:
        waiters, self._on_its_way = self._on_its_way, []
        try:
            self._engine.on_written(lsn)
            self._turns.on_published()
        except Exception as error:
            self._on_its_way = waiters
            self.fail(error)
            return
        self._move(Lane.FREE)
        open_now: list[Waiter] = []
        for waiter in waiters:
            waiter.lsn, waiter.write_ms = lsn, took_ms
            waits = waiter.outcome.gate is Gate.SYNCED and lsn > self._synced_lsn
            (self._syncing if waits else open_now).append(waiter)
        if self._syncing:
            self.peak = max(self.peak, len(self._syncing))
            self.want_sync()
        elif wrote:
            self._sync_later()
        # Who is answered may ask for more at once, and end the next turn.
        for waiter in open_now:
            self._open(waiter, 0.0)
        self._go_on()
        self._turns.on_answered()

    def _go_on(self) -> None:
        """The lane is free: the next turn, or whoever waits for all turns to be written."""
        if self.lane is not Lane.FREE:
            return
        if self._unit or self._engine.has_events:
            self.turn_soon()
            return
        while self._when_written and self.is_written:
            self._when_written.popleft()(None)

    def _open(self, waiter: Waiter, sync_ms: float) -> None:
        if waiter.outcome.erases is None:
            self.answer(waiter, waiter.reply(sync_ms))
        else:
            self._turns.erase(waiter)

    def answer(self, waiter: Waiter, reply: Reply) -> None:
        """Deliver; what that breaks is the waiter's alone."""
        try:
            waiter.deliver(reply)
        except Exception as error:
            self._turns.on_broken_answer(error)

    @property
    def is_written(self) -> bool:
        """Whether all that is true and logged is in the log, and nothing is on its way to it."""
        return self.lane is Lane.FREE and not self._unit and not self._engine.has_events

    def when_written(self, call: Callable[[WriteFailed | None], None]) -> None:
        """Call with None in the very moment in which `is_written` holds, or with why it never will."""
        if self.failure is not None:
            call(read_only())
        elif self.is_written and not self._when_written:
            call(None)
        else:
            self._when_written.append(call)
            if self.lane is Lane.FREE:
                self.end_turn()

    @property
    def depth(self) -> int:
        """Answers that wait for the log."""
        return len(self._syncing) + len(self._unit) + len(self._on_its_way)

    # ------------------------------------------------------------------ other steps of the log

    def rotate(
        self,
        call: Callable[[int, Exception | None], None],
        *,
        fresh: bool = False,
        stay: bool = False,
    ) -> None:
        """Have the log go on at a boundary (`Store.rotate`), in a moment in which `is_written`;
        `call` gets the boundary, or why there is none."""
        assert self.is_written
        self._when_rotated = call
        self._move(Lane.ROTATING)
        self._host.perform(Rotate(fresh, stay))

    def rotated(self, boundary: int) -> None:
        """The log goes on behind this boundary."""
        self._rotation_ended(boundary, None)

    def refused(self, error: Exception) -> None:
        """There was no space for another file; nothing has changed."""
        self._rotation_ended(0, error)

    def _rotation_ended(self, boundary: int, error: Exception | None) -> None:
        if self.lane is not Lane.ROTATING:
            return
        call, self._when_rotated = self._when_rotated, None
        assert call is not None
        self._move(Lane.FREE)
        call(boundary, error)
        self._go_on()

    def marked(self) -> None:
        """The mark is written."""
        if self.lane is Lane.MARKING:
            self._move(Lane.FREE)
            self._go_on()

    # ------------------------------------------------------------------ failure

    def failed(self, error: BaseException) -> None:
        """A step of the log failed, in whatever way."""
        self.fail(error if isinstance(error, Exception) else WriteFailed("log", repr(error)))

    def fail(self, error: Exception) -> None:
        """Nothing of this turn is shown, and nothing will be written again."""
        if self.failure is not None:
            return
        self.failure = error
        self._move(Lane.FAILED)
        self._store.fail(error)
        self._host.perform(LeaveMark())
        self._engine.on_failed()
        waiters = [*self._syncing, *self._on_its_way, *self._unit]
        self._syncing.clear()
        self._on_its_way, self._unit = [], []
        for waiter in waiters:
            self.answer(waiter, Reply(unknown()))
        calls, self._when_written = self._when_written, deque()
        for call in calls:
            call(read_only())
        rotated, self._when_rotated = self._when_rotated, None
        if rotated is not None:
            rotated(0, read_only())
        self._sync_since_ms = self._flush_at_ms = None
        self._turns.on_failed(error)

    # ------------------------------------------------------------------ syncs

    @property
    def is_synced(self) -> bool:
        """Whether all that is written is durable, and this has heard of it."""
        return self._synced_lsn >= self._store.written_lsn

    @property
    def synced_lsn(self) -> int:
        return self._synced_lsn

    def want_sync(self) -> None:
        if self._sync_since_ms is None and self.failure is None:
            self._sync_since_ms = self._host.steady_ms
            self._flush_at_ms = None
            self._host.perform(Sync())

    def when_synced(self, call: Callable[[WriteFailed | None], None]) -> None:
        """Call with None when all that is written by now is durable, or with why it never will be."""
        if self.failure is not None or self.is_synced:
            call(None if self.failure is None else read_only())
            return

        def deliver(reply: Reply) -> None:
            call(None if isinstance(reply.result, Outcome) else read_only())

        self._syncing.append(Waiter(deliver, Outcome(), self._store.written_lsn))
        self.want_sync()

    def synced(self, lsn: int, took_ms: float) -> None:
        """The log is durable up to `lsn`."""
        if self.failure is not None:
            return
        self._sync_since_ms = None
        self._synced_lsn = lsn
        try:
            self._engine.on_synced(lsn)
            self._turns.on_published()
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
        self._turns.on_answered()

    def _sync_later(self) -> None:
        if self._flush_at_ms is None and self._sync_since_ms is None:
            self._flush_at_ms = self._host.steady_ms + self._flush_ms

    # ------------------------------------------------------------------ time

    def alarm_ms(self) -> int | None:
        """When `ring` is wanted, by the steady clock; None: not before something happens."""
        at_ms = self._flush_at_ms
        if self._timeout_ms and self.failure is None:
            if self._sync_since_ms is not None:
                at_ms = _earlier(at_ms, self._sync_since_ms + self._timeout_ms)
            if self.lane is not Lane.FREE:
                at_ms = _earlier(at_ms, self._lane_since_ms + self._timeout_ms)
        return at_ms

    def ring(self) -> None:
        """Time went by: sync what is unsynced for too long, and give up on a disk that hangs."""
        now_ms = self._host.steady_ms
        if self.failure is not None:
            return
        if self._timeout_ms and self._hangs_since(now_ms - self._timeout_ms):
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
            self._move(Lane.MARKING)
            self._host.perform(Mark())

    def _hangs_since(self, since_ms: int) -> bool:
        return (self._sync_since_ms is not None and self._sync_since_ms <= since_ms) or (
            self.lane is not Lane.FREE and self._lane_since_ms <= since_ms
        )


def _earlier(one: int | None, other: int) -> int:
    return other if one is None else min(one, other)


def read_only() -> WriteFailed:
    return WriteFailed("log", "read-only")


def unknown() -> Rejection:
    """500 for who waited for a log that failed (§0.5)."""
    return Rejection(
        ErrorCode.INTERNAL,
        "the log failed before this was durable; whether it will be found again is unknown",
        {"reason": "write_failed", "outcome": "unknown"},
    )
