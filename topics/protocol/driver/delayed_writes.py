"""Delayed writes: appends that wait before they are decided, first come, first served (§0.6).

An append waits while the throttle says so, while more is planned than one write should carry, while
the log has no room for it and the disk has space for some, or while memory has none and sealing is
about to make some.  Before all that it gives way where
the load is too high for its priority.  This module owns their queues and the pressure that paces the
throttle; it does not know how a command is decided or answered.

Invariants: a write is let in no earlier than its turn and no later than `WAIT_MS_MAX` after it came,
or it is refused (`LOADER_WAIT_MS_MAX` where it asked for no backpressure); once it stands in line none
overtakes it, but for a write that never had to wait; what waits is bounded in number and bytes.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final

import msgspec

from topics.protocol.decide.topics import effective_priority
from topics.protocol.driver import load
from topics.protocol.driver.group_commit import GroupCommit
from topics.protocol.driver.load import QUEUED_BYTES_MAX, QUEUED_MAX, Load
from topics.protocol.driver.maintenance import MaintenanceDriver
from topics.protocol.driver.reply import Deliver, Reply, Ticket
from topics.protocol.driver.throttle import SOFT, WAIT_MS_MAX, Throttle, overloaded
from topics.protocol.engine import Engine
from topics.protocol.model.commands import Append, AppendBatch, Command, Write
from topics.protocol.model.errors import Rejection
from topics.protocol.model.limits import Limits
from topics.protocol.model.ports import Store

UNIT_BYTES_MAX: Final = 8 << 20
"""Bytes planned for the log at which appends wait until a write is through: what is decided together
is one write, and every command in it waits for all of it."""
LOADER_WAIT_MS_MAX: Final = 30_000
"""What a write with `disable_backpressure` may have to wait for those before it."""
RETRY_MS: Final = 10
"""A write that log or memory had no room for is decided again after this, as long as it may wait."""


Decide = Callable[[Command, Deliver, float], Reply | Ticket]
"""Decides a command that waited so many milliseconds."""


class _DelayedWrite(msgspec.Struct, eq=False):
    """An append, or another command that waits for room in the log, which is not decided yet; `ticket`
    once it was decided and waits on; `need_bytes` where an append waits for room in the log."""

    command: Command
    deliver: Deliver
    since_ms: int
    at_ms: float
    need_bytes: int = 0
    ticket: Ticket | None = None
    is_cancelled: bool = False

    def __post_init__(self) -> None:
        # What waits holds its text once: a draft would be as much again beside the body.
        if type(self.command) is Append and self.command.draft is not None:
            self.command = msgspec.structs.replace(self.command, draft=None)

    @property
    def size_bytes(self) -> int:
        return self.command.size_bytes if isinstance(self.command, Append | AppendBatch) else 0


class DelayedWrites:
    """The queue before one driver's decisions.

    Args:
        decide: Decides one; raises Rejection.
        answer: Delivers a reply.
        steady_ms: The monotonic clock.

    Attributes:
        load: What makes writes give way.
        waiting: The number of writes that are not decided yet.
    """

    def __init__(
        self,
        limits: Limits,
        engine: Engine,
        store: Store,
        commit: GroupCommit,
        throttle: Throttle,
        maintenance: MaintenanceDriver,
        *,
        decide: Decide,
        answer: Callable[[Deliver, Reply], None],
        steady_ms: Callable[[], int],
    ) -> None:
        self._limits = limits
        self._engine = engine
        self._store = store
        self._commit = commit
        self._throttle = throttle
        self._maintenance = maintenance
        self._decide = decide
        self._answer = answer
        self._steady_ms = steady_ms
        self.load = Load()
        self._giving_way: list[tuple[float, int, _DelayedWrite]] = []
        """Writes that wait for their priority's sake, by the time at which they come."""
        self._order = count()
        self._queue: deque[_DelayedWrite] = deque()
        self.waiting = self._waiting_bytes = 0
        self.is_open = False
        """Whether a write may wait for room in memory; at the end of the driver none may."""

    def pressure(self) -> float:
        """How full the fuller of the log and the memory for records to be sealed is; 1.0 at its
        bound."""
        log_part = self._store.log_bytes / self._maintenance.schedule.log_bound()
        memory_part = self._engine.state.memory.logged_bytes / self._limits.max_hot_bytes
        return memory_part if memory_part > log_part else log_part

    @property
    def level(self) -> float:
        """The load now; 1.0 at the bound of lag or queue."""
        return self.load.level(self._steady_ms(), self.waiting, self._waiting_bytes)

    @property
    def lag_ms(self) -> float:
        """The mean lag now."""
        self.load.level(self._steady_ms(), 0, 0)
        return self.load.lag_ms

    def _is_unit_full(self) -> bool:
        return self._engine.unit.planned_bytes() >= UNIT_BYTES_MAX

    # ------------------------------------------------------------------ what comes

    def submit(self, command: Write, deliver: Deliver) -> Reply | Ticket:
        """Decide a write now, or in its turn.  Raises Rejection."""
        if self.waiting or self.load.lag_ms >= 1.0:
            waiting = self._give_way(command, deliver)
            if waiting is not None:
                return waiting
        pressure = self.pressure()
        is_free = not self._queue and not self._is_unit_full()
        if pressure >= SOFT or not is_free:
            delayed = self._throttled(command, deliver, pressure, is_free=is_free)
            if delayed is not None:
                return self._put(delayed)
        try:
            return self._decide(command, deliver, 0.0)
        except Rejection as refusal:
            if not self._may_find_room(command, refusal):
                raise
            need_bytes = refusal.need_bytes
            if need_bytes and self._has_room(need_bytes):
                return self._decide(command, deliver, 0.0)  # a host that syncs at once made it
            now_ms = self._steady_ms()
            return self._put(_DelayedWrite(command, deliver, now_ms, now_ms + RETRY_MS, need_bytes))

    def _give_way(self, command: Write, deliver: Deliver) -> Ticket | None:
        """Have a write wait for those of higher priority; None where it need not.  Raises Rejection
        where it would wait too long (429, §0.6)."""
        now_ms, queued_bytes = self._steady_ms(), self._waiting_bytes
        level = self.load.level(now_ms, self.waiting, queued_bytes)
        if level <= load.RUNG_LOWEST:
            return None
        topic, state = self._engine.state.topics.get(command.topic), self._engine.state
        priority = 0 if topic is None else effective_priority(topic, state.now_ms)
        wait_ms = load.wait_ms(level, priority)
        is_full = self.waiting >= QUEUED_MAX or queued_bytes >= QUEUED_BYTES_MAX
        if command.disable_backpressure and not is_full:
            wait_ms = min(wait_ms, WAIT_MS_MAX)
        if wait_ms > WAIT_MS_MAX:
            raise overloaded(wait_ms, "the server")
        if wait_ms < 1:
            return None
        delayed = _DelayedWrite(command, deliver, now_ms, now_ms + wait_ms)
        heappush(self._giving_way, (delayed.at_ms, next(self._order), delayed))
        return self._counted(delayed)

    def _throttled(
        self, command: Write, deliver: Deliver, pressure: float, *, is_free: bool
    ) -> _DelayedWrite | None:
        """The write with its time; None where it need not wait.  Raises Rejection where it would
        wait too long (429, §0.6).

        Args:
            is_free: None waits before it.
        """
        now_ms = self._steady_ms()
        self._require_patience(command, now_ms, pressure, 0)
        wait_ms = self._throttle.wait_ms(command.size_bytes, now_ms, pressure)
        if wait_ms < 1 and is_free:
            return None
        return _DelayedWrite(command, deliver, now_ms, now_ms + wait_ms)

    def _require_patience(
        self, command: Write, now_ms: int, pressure: float, waited_ms: float
    ) -> None:
        """Refuse a write that would wait too long for room, with what it waited before."""
        if command.disable_backpressure:
            wait_ms, most_ms = self._throttle.line_ms(now_ms), LOADER_WAIT_MS_MAX
        else:
            wait_ms, most_ms = self._throttle.foresee_ms(now_ms, pressure), WAIT_MS_MAX
        if wait_ms + waited_ms > most_ms:
            self._maintenance.press()
            raise overloaded(wait_ms, "the log")

    def _put(self, delayed: _DelayedWrite) -> Ticket:
        self._queue.append(delayed)
        return self._counted(delayed)

    def _counted(self, delayed: _DelayedWrite) -> Ticket:
        self.waiting += 1
        self._waiting_bytes += delayed.size_bytes

        def cancel() -> None:
            if delayed.ticket is not None:
                delayed.ticket.cancel()
            elif delayed in self._queue:
                self._queue.remove(delayed)
                self._uncount(delayed)
            else:
                delayed.is_cancelled = True  # it may give way still

        return Ticket(cancel)

    def _uncount(self, delayed: _DelayedWrite) -> None:
        self.waiting -= 1
        self._waiting_bytes -= delayed.size_bytes

    def wait_for_room(
        self, command: Command, deliver: Deliver, refusal: Rejection
    ) -> Reply | Ticket:
        """Have a command that is no append wait for the room in the log for want of which it was
        refused; raises the refusal where there will be none."""
        if not refusal.need_bytes or not self._may_find_room(command, refusal):
            raise refusal
        now_ms = self._steady_ms()
        return self._put(_DelayedWrite(command, deliver, now_ms, now_ms + RETRY_MS))

    def _may_find_room(self, command: Command, refusal: Rejection) -> bool:
        """Whether the log had no room for a command, and the disk has space for some; or memory had none
        for a write, and sealing will make some."""
        if not self.is_open:
            return False
        if refusal.need_bytes:
            return self._asks_room(refusal.need_bytes)
        detail = refusal.detail or {}
        if not isinstance(command, Append | AppendBatch) or detail.get("limit") != "max_hot_bytes":
            return False
        topic = self._engine.state.topics.get(command.topic)
        is_logged = topic is None or topic.durability.is_logged
        return is_logged and self._engine.state.memory.logged_bytes > 0

    def _has_room(self, need_bytes: int) -> bool:
        """Whether the log takes so much beside what is not written yet."""
        return self._store.room(reserve=False) - self._engine.unit.framed_bytes() >= need_bytes

    def _asks_room(self, need_bytes: int) -> bool:
        """Have room made for so much beside that; False where there is none."""
        return self._commit.ask_room(need_bytes + self._engine.unit.framed_bytes())

    # ------------------------------------------------------------------ what is let in

    def move(self) -> None:
        """Let in the writes whose time has come, as long as one write of the log can take them."""
        now_ms = self._steady_ms()
        while self._giving_way and self._giving_way[0][0] <= now_ms:
            self._line_up(heappop(self._giving_way)[2], now_ms)
        while self._queue and self._queue[0].at_ms <= now_ms:
            if self._is_unit_full() and self._commit.failure is None:
                return  # the write that is under way moves the queue on
            if not self._let_in(self._queue.popleft()):
                return

    def _line_up(self, delayed: _DelayedWrite, now_ms: int) -> None:
        """A write has given way: it stands in line now, behind those that wait for room."""
        if delayed.is_cancelled:
            self._uncount(delayed)
            return
        command, pressure = delayed.command, self.pressure()
        assert isinstance(command, Append | AppendBatch)
        try:
            # By what it was to wait: a loop that lags rings late, which is not the write's fault.
            waited_ms = delayed.at_ms - delayed.since_ms
            self._require_patience(command, now_ms, pressure, waited_ms)
        except Rejection as refusal:
            self._uncount(delayed)
            self._answer(delayed.deliver, Reply(refusal))
            return
        delayed.at_ms = now_ms + self._throttle.wait_ms(delayed.size_bytes, now_ms, pressure)
        self._queue.append(delayed)

    def let_all_in(self) -> None:
        """Decide every write that waits, without any further wait."""
        self.is_open = False
        while self._giving_way:
            delayed = heappop(self._giving_way)[2]
            if delayed.is_cancelled:
                self._uncount(delayed)
            else:
                self._queue.append(delayed)
        while self._queue:
            self._let_in(self._queue.popleft())

    def _let_in(self, delayed: _DelayedWrite) -> bool:
        """Decide a write; False where it went back to the head of the queue."""
        now_ms = self._steady_ms()
        may_wait = self.is_open and now_ms + RETRY_MS < delayed.since_ms + WAIT_MS_MAX
        need_bytes = delayed.need_bytes
        if may_wait and need_bytes and not self._has_room(need_bytes):
            # Not decided again: that would render a large batch each time.
            self._put_back(delayed, now_ms)
            if self._asks_room(need_bytes):
                return False
            self._queue.popleft()
        self._uncount(delayed)
        try:
            waited_ms = float(now_ms - delayed.since_ms)
            found = self._decide(delayed.command, delayed.deliver, waited_ms)
        except Rejection as refusal:
            if may_wait:
                self._put_back(delayed, now_ms)
                if self._may_find_room(delayed.command, refusal):
                    if isinstance(delayed.command, Append | AppendBatch):
                        delayed.need_bytes = refusal.need_bytes
                    self._counted(delayed)
                    return False
                self._queue.popleft()
            found = Reply(refusal)
        except Exception as error:
            found = Reply(error)  # a bug, or no memory: it concerns this write alone
        if isinstance(found, Reply):
            self._answer(delayed.deliver, found)
        else:
            delayed.ticket = found
        return True

    def _put_back(self, delayed: _DelayedWrite, now_ms: int) -> None:
        """A write waits on at the head of the queue.  It stands there before room is asked for: a host
        that syncs at once moves the queue meanwhile, and none may pass it."""
        delayed.at_ms = now_ms + RETRY_MS
        self._queue.appendleft(delayed)

    def alarm_ms(self) -> int | None:
        """When `move` has something to do; None where the end of a write calls it."""
        times = [self._giving_way[0][0]] if self._giving_way else []
        if self._queue and not self._is_unit_full():
            times.append(self._queue[0].at_ms)
        return int(min(times)) + 1 if times else None
