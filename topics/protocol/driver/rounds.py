"""Maintenance: when a round of upkeep is due, and how one is driven.

What is done in which order is written down in `chores`, as a generator; this runs it.  What a step
waits for is asked of the host (`Call`, on a worker), of group commit (`UntilWritten`, `UntilSynced`,
`Rotation`), or of nobody.  Between two steps it runs in one piece where the engine runs.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from topics.protocol.driver.group_commit import GroupCommit, Reply, Waiter, unknown
from topics.protocol.driver.throttle import Throttle
from topics.protocol.engine import Engine
from topics.protocol.maintenance.schedule import (
    Blocking,
    Chore,
    Chores,
    Rotation,
    Step,
    UntilSynced,
    UntilWritten,
)
from topics.protocol.maintenance.upkeep import Upkeep
from topics.protocol.model.errors import Corrupt, ErrorCode, Rejection, StoreError, WriteFailed
from topics.protocol.model.limits import Limits
from topics.protocol.model.ports import Store

ROUND_EVERY_MS: Final = 10_000
ROUND_SOON_MS: Final = 50
RETRY_MS: Final = 1000
SPACE_BYTES: Final = 64 << 10
"""Room in the log, beyond twice what was too little, at which a full disk counts as full no more:
space that comes and goes by a write is not logged each time."""

Ended = Callable[[Exception | None], None]
"""Called when a chore is over, with why it broke off."""


@dataclass(frozen=True, slots=True)
class Call:
    """Maintenance waits for a disk: make the call where nobody else waits, then call `done` with
    what it returned, or with None and what it raised."""

    call: Callable[[], Any]
    done: Callable[[Any, BaseException | None], None]


class Host(Protocol):
    """Who has the worker, the clocks and the process's log."""

    @property
    def now_ms(self) -> int:
        """The wall clock, milliseconds since the epoch."""

    @property
    def steady_ms(self) -> int:
        """A clock that nobody sets."""

    def perform(self, step: Call, /) -> None: ...

    def log(self, level: str, what: str) -> None:
        """A line for the operator; `level` is "info", "warning" or "error"."""


class Maintenance:
    """Implements `chores.Host`."""

    def __init__(
        self,
        limits: Limits,
        engine: Engine,
        store: Store,
        commit: GroupCommit,
        throttle: Throttle,
        host: Host,
    ) -> None:
        self.upkeep = Upkeep(engine)
        self.chores = Chores(limits, self.upkeep, store, self)
        self._limits = limits
        self._engine = engine
        self._store = store
        self._commit = commit
        self._throttle = throttle
        self._host = host
        self._chore: Chore | None = None
        self._ended: Ended | None = None
        self._is_asking = False
        self._answers: list[tuple[Any, BaseException | None]] = []
        self._next_ms: int | None = None
        self._ended_ms = -ROUND_SOON_MS
        self._trouble = ""
        self._too_little: int | None = None
        """The most room at which a write was refused since the disk was full; None: it is not."""
        self._erasing: list[Waiter] = []
        self._taken: list[Waiter] = []

    # ------------------------------------------------------------------ what makes a round due

    def start(self) -> None:
        """Rounds come from now on."""
        self._next_ms = self._host.steady_ms + ROUND_EVERY_MS

    def calm(self) -> None:
        """No round comes by itself: somebody asks for each (`round`)."""
        self._next_ms = None

    def end(self) -> None:
        """No more rounds; one that is under way is let go of."""
        self._next_ms = None
        if self._chore is not None:
            chore, self._chore = self._chore, None
            chore.close()
            self._over(None)

    def soon(self) -> None:
        """A round is due, at once or a moment after the last one."""
        if self._next_ms is not None:
            soon_ms = max(self._host.steady_ms, self._ended_ms + ROUND_SOON_MS)
            self._next_ms = min(self._next_ms, soon_ms)

    def soon_if_pressed(self) -> None:
        """Where a topic is full, or memory or the log is, or a large delete left memory to free."""
        state = self._engine.state
        if (
            state.full
            or state.unpacked
            or state.hot_weight > state.hot_share
            or self.chores.is_checkpoint_due()
        ):
            self.soon()

    def memory_is_full(self) -> None:
        self.upkeep.press()
        self.soon()

    def disk_is_full(self, room_bytes: int, need_bytes: int = 0) -> None:
        """A write was refused, as there was no more room than this, and it needed more."""
        if self._too_little is None:
            self._host.log(
                "warning",
                "the disk is full: writes are refused from now on; reads and deletes go on, and "
                "writes will when there is space",
            )
        self._too_little = max(self._too_little or 0, room_bytes)
        self.chores.disk_is_full = True
        self.chores.need_bytes = max(self.chores.need_bytes, need_bytes)
        self.soon()

    def _look_for_space(self) -> None:
        if self._too_little is None:
            return
        if self._store.room(reserve=False) >= 2 * self._too_little + SPACE_BYTES:
            self._too_little = None
            self._host.log("info", "there is space on the disk again: writes go on")

    def alarm_ms(self) -> int | None:
        """When `ring` is wanted, by the steady clock."""
        return self._next_ms if self._chore is None else None

    def ring(self) -> None:
        """Begin a round where one is due."""
        if self._next_ms is None or self._chore is not None or self._engine.read_only:
            return
        if self._host.steady_ms >= self._next_ms:
            self.run(self.chores.round(), self._round_ended)

    def round(self, ended: Ended, *, checkpoint: bool = False) -> None:
        """One round now, with a checkpoint whether one is due or not; none may be under way."""

        def over(error: Exception | None) -> None:
            self._round_ended(error)
            ended(error)

        self.run(self.chores.round(checkpoint=checkpoint), over)

    def _round_ended(self, error: Exception | None) -> None:
        if error is None:
            self._trouble = ""
        elif isinstance(error, WriteFailed):
            self._commit.failed(error)
        elif str(error) != self._trouble:  # a full disk says it once, not once a second
            self._trouble = str(error)
            is_known = isinstance(error, OSError | StoreError)
            self._host.log(
                "error" if is_known else "exception",
                f"upkeep goes on trying: {str(error) or repr(error)}",
            )
        self._look_for_space()
        if self._next_ms is None or self._engine.read_only:
            return
        now_ms = self._ended_ms = self._host.steady_ms
        if error is not None:
            self._next_ms = now_ms + RETRY_MS
        elif self._is_more_due():
            self._next_ms = now_ms + ROUND_SOON_MS
        else:
            self._next_ms = now_ms + ROUND_EVERY_MS
            self.soon_if_pressed()

    def _is_more_due(self) -> bool:
        """More has expired than one round takes, or it stopped for something that comes first."""
        return (
            self.chores.has_more
            or bool(self._erasing)
            or self._engine.state.is_due(self._host.now_ms)
        )

    # ------------------------------------------------------------------ driving a chore

    @property
    def is_idle(self) -> bool:
        """Whether no chore is under way."""
        return self._chore is None

    def run(self, chore: Chore, ended: Ended) -> None:
        """Run a chore to its end; `ended` follows, perhaps before this returns."""
        assert self._chore is None
        self._chore, self._ended = chore, ended
        self._go_on(chore, None, None)

    def _go_on(self, chore: Chore, value: Any, error: BaseException | None) -> None:
        """Give a chore what it waited for, until it waits for something that is not here yet."""
        if chore is not self._chore:
            return  # it was let go of meanwhile
        self._answers.append((value, error))
        if self._is_asking:
            return  # it came while it was asked for: the loop below goes on with it
        while self._answers and chore is self._chore:
            value, error = self._answers.pop()
            try:
                step = chore.send(value) if error is None else chore.throw(error)
            except StopIteration:
                self._over(None)
                return
            except Exception as why:
                self._over(why)
                return
            self._is_asking = True
            try:
                self._ask(chore, step)
            except Exception as why:
                self._answers = [(None, why)]
            finally:
                self._is_asking = False

    def _over(self, error: Exception | None) -> None:
        ended, self._ended = self._ended, None
        self._chore = None
        self._answers = []
        if ended is not None:
            ended(error)

    def _ask(self, chore: Chore, step: Step) -> None:
        def done(value: Any, error: BaseException | None) -> None:
            self._go_on(chore, value, error)

        match step:
            case Blocking():
                self._host.perform(Call(step.call, done))
            case Rotation():
                self._commit.rotate(done, fresh=step.fresh, stay=step.stay)
            case UntilSynced():
                self._commit.when_synced(partial(done, None))
            case UntilWritten():
                self._commit.when_written(partial(done, None))

    # ------------------------------------------------------------------ what chores ask

    @property
    def now_ms(self) -> int:
        return self._host.now_ms

    @property
    def steady_ms(self) -> int:
        return self._host.steady_ms

    def drained(self, size_bytes: int, took_ms: float) -> None:
        self._throttle.drained(size_bytes, took_ms)

    def warn(self, what: str) -> None:
        self._host.log("error", what)

    def take_erasures(self) -> Iterable[int]:
        self._taken, self._erasing = self._erasing, []
        return sorted({w.outcome.erases for w in self._taken if w.outcome.erases is not None})

    def erased(self, damage: Corrupt | None) -> None:
        waiters, self._taken = self._taken, []
        for waiter in waiters:
            reply = waiter.reply() if damage is None else Reply(_not_erased(damage))
            self._commit.answer(waiter, reply)

    def erase_later(self) -> None:
        self._erasing = self._taken + self._erasing
        self._taken = []
        self.soon()

    # ------------------------------------------------------------------ who waits for an erasure

    def erase(self, waiter: Waiter) -> None:
        """Answer who deleted when the bytes are gone."""
        self._erasing.append(waiter)
        self.soon()

    def refuse_erasures(self) -> None:
        """The server is stopping; who waits is told that the records are deleted."""
        self._end_erasures(Rejection(ErrorCode.SHUTTING_DOWN, "deleted, but not erased yet"))

    def fail_erasures(self) -> None:
        """The log failed."""
        self._end_erasures(unknown())

    def _end_erasures(self, why: Rejection) -> None:
        waiters, self._erasing = self._taken + self._erasing, []
        self._taken = []
        for waiter in waiters:
            self._commit.answer(waiter, Reply(why))


def _not_erased(damage: Corrupt) -> Rejection:
    return Rejection(
        ErrorCode.INTERNAL,
        f"deleted, but not erased: {damage}",
        {"reason": "corrupt"},
    )
