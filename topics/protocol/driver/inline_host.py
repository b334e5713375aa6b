"""A host without threads: each step is done at once, on the caller's thread.

Owns a clock that is a number, moved by its user.  The engine in memory for tests and the benchmarks
run on it as it is; a simulation overrides `perform` so that steps take time and may fail.
"""

from collections.abc import Callable
from typing import Any

from topics.protocol.commit.unit_of_work import StateUnknown
from topics.protocol.driver.acceptance import Acceptance
from topics.protocol.driver.driver import Driver, Read, Step
from topics.protocol.driver.group_commit import LeaveMark, Mark, Rotate, Sync, Write
from topics.protocol.driver.maintenance import Call
from topics.protocol.model.errors import Corrupt
from topics.protocol.model.limits import Limits
from topics.protocol.model.ports import LogFollowers, Store


class InlineHost:
    """Implements `driver.Host`.

    Args:
        store: Not yet recovered.
        now_ms: What the clock says first, milliseconds since the epoch.

    Attributes:
        lines: The driver's lines for the operator: (level, line).
    """

    def __init__(
        self,
        limits: Limits,
        store: Store,
        now_ms: int,
        *,
        flush_ms: int = 200,
        sync_timeout_ms: int = 0,
        acceptance: Acceptance | None = None,
        followers: LogFollowers | None = None,
    ) -> None:
        self.store = store
        self.now_ms = now_ms
        self.driver = Driver(
            limits,
            store,
            self,
            flush_ms=flush_ms,
            sync_timeout_ms=sync_timeout_ms,
            acceptance=acceptance,
            followers=followers,
        )
        self.lines: list[tuple[str, str]] = []
        self._is_turn_due = False
        self._is_work_due = False
        self._steps: dict[type, Callable[[Any], None]] = {
            Write: self.write_log,
            Sync: self.sync_log,
            Rotate: self.rotate_log,
            Mark: self.mark_log,
            LeaveMark: self.leave_mark,
            Call: self.call,
            Read: self.read,
        }

    # ------------------------------------------------------------------ time

    @property
    def steady_ms(self) -> int:
        return self.now_ms

    def not_before(self, seen_ms: int) -> None:
        self.now_ms = max(self.now_ms, seen_ms)

    def advance(self, ms: int) -> None:
        """Move the clock, and do what is due by then."""
        assert ms >= 0
        self.now_ms += ms
        self.ring()

    def ring(self) -> None:
        """Do what is due by now."""
        self.settle()
        while (at_ms := self.driver.alarm_ms()) is not None and at_ms <= self.now_ms:
            self.driver.ring()
            self.settle()

    # ------------------------------------------------------------------ turns

    def turn_soon(self) -> None:
        self._is_turn_due = True

    def work_soon(self) -> None:
        self._is_work_due = True

    def settle(self) -> None:
        """End turns and do the work that follows, until none is left."""
        while self._is_turn_due or self._is_work_due:
            if self._is_turn_due:
                self._is_turn_due = False
                self.driver.end_turn()
            else:
                self._is_work_due = False
                self.driver.work_off()

    # ------------------------------------------------------------------ steps

    def perform(self, step: Step, /) -> None:
        self._steps[type(step)](step)

    def write_log(self, step: Write) -> None:
        try:
            lsn = self.store.write(step.frames)
        except Exception as error:
            self.driver.commit.failed(error)
        else:
            self.driver.commit.wrote(lsn, 0.0)

    def sync_log(self, step: Sync) -> None:
        try:
            lsn = self.store.sync()
        except Exception as error:
            self.driver.commit.failed(error)
        else:
            self.driver.commit.synced(lsn, 0.0)

    def rotate_log(self, step: Rotate) -> None:
        try:
            boundary = self.store.rotate(fresh=step.fresh, stay=step.stay)
        except Exception as error:
            if isinstance(error, OSError) and not self.store.read_only:
                self.driver.commit.refused(error)
            else:
                self.driver.commit.failed(error)
        else:
            self.driver.commit.rotated(boundary)

    def mark_log(self, step: Mark) -> None:
        try:
            self.store.idle()
        except Exception as error:
            self.driver.commit.failed(error)
        else:
            self.driver.commit.marked()

    def leave_mark(self, step: LeaveMark) -> None:
        if trouble := self.store.leave_failure_mark():
            self.log("critical", trouble)

    def call(self, step: Call) -> None:
        try:
            value = step.call()
        except Exception as error:
            step.done(None, error)
        else:
            step.done(value, None)

    def read(self, step: Read) -> None:
        self.driver.fetched(step.fetch, step.fetch.read())

    # ------------------------------------------------------------------ reports to the operator

    def log(self, level: str, what: str) -> None:
        self.lines.append((level, what))

    def on_damage(self, damage: Corrupt) -> None:
        self.log("error", str(damage))

    def on_broken_answer(self, error: Exception) -> None:
        """The caller is on this thread, and gets the error."""
        raise error

    def on_failed(self, error: Exception) -> None:
        self.log("critical", str(error))

    def on_broken(self, error: StateUnknown) -> None:
        return
