"""The maintenance driver: when a round of maintenance is due, and how its tasks are driven.

Which step follows which is written down in `maintenance.schedule`, as generators; this runs them.
What a task waits for is asked of the host (`Call`, on a worker) or of group commit (`UntilWritten`,
`UntilSynced`, `Rotation`).  Between two waits a task runs in one piece, where the engine runs.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from topics.protocol.driver.group_commit import GroupCommit, unknown
from topics.protocol.driver.reply import Deliver, PendingAnswer, Reply, Ticket
from topics.protocol.driver.throttle import Throttle
from topics.protocol.engine import Engine
from topics.protocol.maintenance.schedule import Schedule
from topics.protocol.maintenance.steps import (
    Blocking,
    Decision,
    Rotation,
    Task,
    UntilSynced,
    UntilWritten,
    Wait,
)
from topics.protocol.model.commands import Command
from topics.protocol.model.errors import (
    ErrorCode,
    Rejection,
    StoreError,
    WriteFailed,
    is_damage,
    is_unread,
    lacks_space,
)
from topics.protocol.model.limits import Limits
from topics.protocol.model.ports import Store

ROUND_EVERY_MS: Final = 10_000
"""Between two rounds where nothing is due: time may have taken records that no command names."""
ROUND_SOON_MS: Final = 50
"""Between two rounds of which the first left work: commands come first in between."""
RETRY_MS: Final = 1000
"""After a round that failed: a full disk may have space by then."""
ERASE_TRIES: Final = 4
"""How often an erasure is tried, after pauses of one second, two and four, before its delete is answered
that the bytes are still there: within the time that a client waits."""
SPACE_BYTES: Final = 64 << 10
"""Room in the log, beyond twice what was too little, from which on a full disk counts as full no
longer: space that comes and goes with each write is not logged each time."""

Submit = Callable[[Command, Deliver], Reply | Ticket]
"""Has a command decided; its answer, or a ticket where that comes later.  Raises Rejection."""

Ended = Callable[[Exception | None], None]
"""Called when a task is over, with why it broke off; None where it did not."""


class Call(msgspec.Struct, frozen=True):
    """Maintenance waits for a disk: make the call on a worker, then call `done` on the engine's
    thread, with what it returned, or with None and what it raised."""

    call: Callable[[], Any]
    done: Callable[[Any, BaseException | None], None]


class _Erasure(msgspec.Struct, eq=False):
    """A delete that is answered once its bytes are gone.

    Attributes:
        tries: How often that failed.
        at_ms: When it is tried next, by the steady clock.
    """

    waiter: PendingAnswer
    tries: int = 0
    at_ms: int = 0

    @property
    def topic_ids(self) -> tuple[int, ...]:
        return self.waiter.outcome.erases


class MaintenanceHost(Protocol):
    """What the maintenance driver asks of its host."""

    @property
    def now_ms(self) -> int:
        """The wall clock, milliseconds since the epoch."""

    @property
    def steady_ms(self) -> int:
        """A monotonic clock, milliseconds."""

    def perform(self, step: Call, /) -> None: ...

    def log(self, level: str, what: str) -> None:
        """A line for the operator; `level` is "info", "warning" or "error"."""


class MaintenanceDriver:
    """Drives the schedule of one engine, one task at a time.  Implements `schedule.ScheduleHost`.

    Args:
        submit: By whom records are deleted that nobody asked to be.
        decides: Whether that is decided here.
        erase_tries: How often an erasure is tried.
    """

    def __init__(
        self,
        limits: Limits,
        engine: Engine,
        store: Store,
        commit: GroupCommit,
        throttle: Throttle,
        host: MaintenanceHost,
        *,
        submit: Submit,
        decides: Callable[[], bool] = lambda: True,
        erase_tries: int = ERASE_TRIES,
    ) -> None:
        self.schedule = Schedule(limits, engine, store, self)
        self._engine = engine
        self._store = store
        self._commit = commit
        self._throttle = throttle
        self._host = host
        self._submit = submit
        self._decides = decides
        self._task: Task | None = None
        self._ended: Ended | None = None
        self._is_asking = False
        self._answers: list[tuple[Any, BaseException | None]] = []
        self._next_ms: int | None = None
        self._ended_ms = -ROUND_SOON_MS
        self._troubles: set[str] = set()
        self._told: set[str] = set()
        """Why steps of the round under way failed, and of the one before: each is told once."""
        self._too_little: int | None = None
        """The most room at which a write was refused since the disk was full; None: it is not."""
        self._erase_tries = erase_tries
        self._erasing: list[_Erasure] = []
        self._taken: list[_Erasure] = []

    # ------------------------------------------------------------------ what makes a round due

    def start(self) -> None:
        """Begin a round now and then, and whenever one is due."""
        self._next_ms = self._host.steady_ms + ROUND_EVERY_MS

    def calm(self) -> None:
        """Begin no round but those that `round` asks for."""
        self._next_ms = None

    def end(self) -> None:
        """Begin no more rounds, and close the one that is under way."""
        self._next_ms = None
        if self._task is not None:
            task, self._task = self._task, None
            task.close()
            self._over(None)

    def soon(self) -> None:
        """A round is due: at once, or `ROUND_SOON_MS` after the last one."""
        if self._next_ms is not None:
            soon_ms = max(self._host.steady_ms, self._ended_ms + ROUND_SOON_MS)
            self._next_ms = min(self._next_ms, soon_ms)

    def soon_if_pressed(self) -> None:
        """A round is due where a topic, memory or the log is full, or where a large delete left memory
        to free."""
        memory = self._engine.state.memory
        if memory.full or memory.owes() or memory.is_pressed() or self.schedule.is_checkpoint_due():
            self.soon()

    def press(self) -> None:
        """Seal what there is, however little: writers or routers wait for room."""
        self.schedule.sealing.press()
        self.soon()

    def memory_is_full(self) -> None:
        """A write found no room in memory: free what deletes left there, too."""
        self._engine.state.memory.want_room()
        self.press()

    def disk_is_full(self, room_bytes: int, need_bytes: int = 0) -> None:
        """A write was refused for want of room.

        Args:
            room_bytes: The room that there was.
            need_bytes: What the write needed.
        """
        if self._too_little is None:
            self._host.log(
                "warning",
                "the disk is full: writes are refused from now on; reads and deletes go on, and "
                "writes will when there is space",
            )
        self._too_little = max(self._too_little or 0, room_bytes)
        self.schedule.want_room(need_bytes)
        self.soon()

    def _look_for_space(self) -> None:
        if self._too_little is None:
            return
        enough = 2 * self._too_little + SPACE_BYTES
        if self._store.room(reserve=False) >= enough or self._store.ask_room(enough):
            self._too_little = None
            self._host.log("info", "there is space on the disk again: writes go on")

    def alarm_ms(self) -> int | None:
        """When `ring` is wanted, by the steady clock."""
        return self._next_ms if self._task is None else None

    def ring(self) -> None:
        """Begin a round where one is due."""
        if self._next_ms is None or self._task is not None or self._engine.read_only:
            return
        if self._host.steady_ms >= self._next_ms:
            self.run(self.schedule.round(), self._round_ended)

    def round(self, ended: Ended, *, checkpoint: bool = False) -> None:
        """One round now, with a checkpoint whether one is due or not; none may be under way."""

        def over(error: Exception | None) -> None:
            self._round_ended(error)
            ended(error)

        self.run(self.schedule.round(checkpoint=checkpoint), over)

    def _round_ended(self, error: Exception | None) -> None:
        if isinstance(error, WriteFailed):
            self._commit.failed(error)
        elif error is not None:
            self.trouble(error)
        self._told, self._troubles = self._troubles, set()
        self._look_for_space()
        if self._next_ms is None or self._engine.read_only:
            return
        now_ms = self._ended_ms = self._host.steady_ms
        if error is not None:
            self._next_ms = now_ms + RETRY_MS
        elif self._is_more_due():
            self._next_ms = now_ms + ROUND_SOON_MS
        else:
            # Others may free space on a full disk, which nothing tells of.
            every_ms = ROUND_EVERY_MS if self._too_little is None else RETRY_MS
            put_off_ms = self.schedule.rewrite_at_ms or now_ms + every_ms
            self._next_ms = min(now_ms + every_ms, max(put_off_ms, now_ms + ROUND_SOON_MS))
            self.soon_if_pressed()
        if self._erasing:
            erase_ms = min(erasure.at_ms for erasure in self._erasing)
            self._next_ms = min(self._next_ms, max(erase_ms, now_ms + ROUND_SOON_MS))

    def _is_more_due(self) -> bool:
        """Whether the round left work: it had done its part, or more has expired."""
        return self.schedule.has_more or self._engine.state.expiry.is_due(self._host.now_ms)

    # ------------------------------------------------------------------ driving a task

    @property
    def is_idle(self) -> bool:
        """Whether no task is under way."""
        return self._task is None

    def run(self, task: Task, ended: Ended) -> None:
        """Run a task to its end; `ended` follows, perhaps before this returns."""
        assert self._task is None
        self._task, self._ended = task, ended
        self._go_on(task, None, None)

    def _go_on(self, task: Task, value: Any, error: BaseException | None) -> None:
        """Send a task what it waited for, and drive it to its next wait that is not over at once."""
        if task is not self._task:
            return  # it was closed meanwhile
        self._answers.append((value, error))
        if self._is_asking:
            return  # the report came before the call returned: the loop below goes on with it
        while self._answers and task is self._task:
            value, error = self._answers.pop()
            try:
                wait = task.send(value) if error is None else task.throw(error)
            except StopIteration:
                self._over(None)
                return
            except Exception as why:
                self._over(why)
                return
            self._is_asking = True
            try:
                self._ask(task, wait)
            except Exception as why:
                self._answers = [(None, why)]
            finally:
                self._is_asking = False

    def _over(self, error: Exception | None) -> None:
        ended, self._ended = self._ended, None
        self._task = None
        self._answers = []
        assert ended is not None
        ended(error)

    def _ask(self, task: Task, wait: Wait) -> None:
        def done(value: Any, error: BaseException | None) -> None:
            self._go_on(task, value, error)

        def decided(reply: Reply) -> None:
            refused = isinstance(reply.result, Exception)
            done(*((None, reply.result) if refused else (reply.result, None)))

        match wait:
            case Decision():
                if isinstance(found := self._submit(wait.command, decided), Reply):
                    decided(found)
            case Blocking():
                self._host.perform(Call(wait.call, done))
            case Rotation():
                self._commit.rotate(done, fresh=wait.fresh, stay=wait.stay)
            case UntilSynced():
                self._commit.when_synced(partial(done, None))
            case UntilWritten():  # pragma: no branch - a task waits for nothing else
                self._commit.when_written(partial(done, None))

    # ------------------------------------------------------------------ what the schedule asks

    @property
    def now_ms(self) -> int:
        return self._host.now_ms

    @property
    def steady_ms(self) -> int:
        return self._host.steady_ms

    @property
    def decides(self) -> bool:
        return self._decides()

    def drained(self, size_bytes: int, took_ms: float) -> None:
        self._throttle.drained(size_bytes, took_ms)

    def warn(self, what: str) -> None:
        self._host.log("error", what)

    def trouble(self, error: Exception) -> None:
        what = str(error) or repr(error)
        if what not in self._told and what not in self._troubles:
            # A full disk says it once, not once a second.
            line = f"maintenance goes on trying: {what}"
            try:
                raise error
            except (OSError, StoreError):
                self._host.log("error", line)
            except Exception:
                self._host.log("exception", line)
        self._troubles.add(what)

    def take_erasures(self) -> Iterable[int]:
        now_ms = self._host.steady_ms
        self._taken = [each for each in self._erasing if each.at_ms <= now_ms]
        self._erasing = [each for each in self._erasing if each.at_ms > now_ms]
        return sorted({topic_id for each in self._taken for topic_id in each.topic_ids})

    def erased(self, failures: Mapping[int, Exception]) -> bool:
        taken, self._taken = self._taken, []
        again = []
        for each in taken:
            error = next((failures[i] for i in each.topic_ids if i in failures), None)
            if error is None:
                self._commit.answer(each.waiter, each.waiter.reply())
                continue
            each.tries += 1
            if is_damage(error) or each.tries >= self._erase_tries:
                self._host.log("error", f"records are deleted, and could not be erased: {error}")
                self._commit.answer(each.waiter, Reply(_not_erased(error)))
                continue
            each.at_ms = self._host.steady_ms + (RETRY_MS << (each.tries - 1))
            again.append(each)
        self._erasing = again + self._erasing
        return bool(again)

    def erase_later(self) -> None:
        self._erasing = self._taken + self._erasing
        self._taken = []
        self.soon()

    # ------------------------------------------------------------------ deletes that wait for an erasure

    def erase(self, waiter: PendingAnswer) -> None:
        """Answer a delete once the bytes are erased, or once that has failed for good."""
        self._erasing.append(_Erasure(waiter))
        self.soon()

    def refuse_erasures(self) -> None:
        """The server is stopping: the records are deleted, and their bytes may be still there."""
        self._end_erasures(Rejection(ErrorCode.SHUTTING_DOWN, "deleted, but not erased yet"))

    def fail_erasures(self) -> None:
        """The log failed."""
        self._end_erasures(unknown())

    def _end_erasures(self, why: Rejection) -> None:
        erasures, self._erasing = self._taken + self._erasing, []
        self._taken = []
        for each in erasures:
            self._commit.answer(each.waiter, Reply(why))


def _not_erased(error: Exception) -> Rejection:
    """The records are deleted, and their bytes are still there."""
    what = f"deleted, but not erased: {error}"
    if lacks_space(error):
        return Rejection(ErrorCode.THROTTLED, what, {"limit": "disk"}, retry_after_s=5)
    reason = "not_erased"
    if is_unread(error):
        reason = "read_error"
    elif is_damage(error):
        reason = "corrupt"
    return Rejection(ErrorCode.INTERNAL, what, {"reason": reason})
