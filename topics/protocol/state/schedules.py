"""Schedules: what each appends, which tick is next, and what became of those before.

A tick becomes true with the record that it appends, in one entry of the log; so a schedule is at the same tick after any
crash, and on every node.  Which time a tick has was resolved before it was logged: this module computes none.

`due` and `blocked` are known to this process only: when a schedule is to be looked at, which is its next tick unless its
topic refused that, and why it did.
"""

from dataclasses import dataclass
from typing import Final

from topics.protocol.model.events import Fired, ScheduleConfigured, ScheduleImage
from topics.protocol.model.schedules import SCHEDULE_BYTES, Run, ScheduleConfig
from topics.protocol.state.blocked import Blocked
from topics.protocol.state.expiry import DueTimes
from topics.protocol.state.sorted_names import SortedNames

FIRST_ID: Final = 1


@dataclass(slots=True, eq=False)
class Schedule:
    """One schedule.

    Attributes:
        made_ms: When it was made: `every_ms` counts from then.
        next_ms: The tick that comes next; None: there is none, or it is paused.
        fired_total: Ticks and runs that happened; one whose unique job was there already appended nothing.
        missed_total: Ticks that did not happen.
        run: The last record.
    """

    schedule_id: int
    name: str
    config: ScheduleConfig
    paused: bool
    made_ms: int
    next_ms: int | None
    fired_total: int = 0
    missed_total: int = 0
    run: Run | None = None

    @property
    def names(self) -> tuple[str, str]:
        """Its own and its topic's: who may not touch each may not know of it (§0.2)."""
        return self.name, self.config.topic

    def image(self) -> ScheduleImage:
        return ScheduleImage(
            self.schedule_id,
            self.name,
            self.config,
            self.paused,
            self.made_ms,
            self.next_ms,
            self.fired_total,
            self.missed_total,
            self.run,
        )


class Schedules:
    """All schedules, by name and by id.  Mutated only by `apply`, but for `due` and `blocked`.

    Attributes:
        size_bytes: About what they take in memory.
        fired, missed: Records appended, and ticks that did not happen, since the start; a replay does not count.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, Schedule] = {}
        self.by_id: dict[int, Schedule] = {}
        self.due = DueTimes[int]()
        self.blocked: dict[int, Blocked] = {}
        self.next_id = FIRST_ID
        self.size_bytes = 0
        self.fired = self.missed = 0
        self._names = SortedNames()

    def __len__(self) -> int:
        return len(self.by_id)

    @property
    def names(self) -> list[str]:
        """All, ascending."""
        return self._names.in_order()

    # ------------------------------------------------------------------ changes

    def configure(self, event: ScheduleConfigured) -> None:
        """A new schedule, or another config of one, or ticks that passed."""
        schedule = self.by_id.get(event.schedule_id)
        if schedule is None:
            assert event.config is not None
            schedule = Schedule(
                event.schedule_id, event.name, event.config, event.paused, event.now_ms, None
            )
            self._add(schedule)
        elif event.config is not None:
            self.size_bytes += event.config.record.size_bytes - schedule.config.record.size_bytes
            schedule.config = event.config
        schedule.paused = event.paused
        self._missed(schedule, event.missed)
        if event.run is not None:
            self._ran(schedule, event.run)
        self._go_on(schedule, event.next_ms)

    def fire(self, cause: Fired, run: Run) -> None:
        """A record of a schedule was appended."""
        schedule = self.by_id[cause.schedule_id]
        self._missed(schedule, cause.missed)
        self._ran(schedule, run)
        if cause.ends:
            self.remove(schedule)
        else:
            self._go_on(schedule, cause.next_ms)

    def restore(self, image: ScheduleImage) -> None:
        schedule = Schedule(
            image.schedule_id,
            image.name,
            image.config,
            image.paused,
            image.made_ms,
            image.next_ms,
            image.fired_total,
            image.missed_total,
            image.run,
        )
        self._add(schedule)
        self._go_on(schedule, image.next_ms)

    def _add(self, schedule: Schedule) -> None:
        self.by_name[schedule.name] = self.by_id[schedule.schedule_id] = schedule
        self._names.add(schedule.name)
        self.size_bytes += SCHEDULE_BYTES + schedule.config.record.size_bytes
        self.next_id = max(self.next_id, schedule.schedule_id + 1)

    def remove(self, schedule: Schedule) -> None:
        del self.by_name[schedule.name], self.by_id[schedule.schedule_id]
        self._names.remove(schedule.name)
        self.size_bytes -= SCHEDULE_BYTES + schedule.config.record.size_bytes
        self.due.forget(schedule.schedule_id)
        self.blocked.pop(schedule.schedule_id, None)

    def _missed(self, schedule: Schedule, ticks: int) -> None:
        schedule.missed_total += ticks
        self.missed += ticks

    def _ran(self, schedule: Schedule, run: Run) -> None:
        schedule.run = run
        schedule.fired_total += 1
        self.fired += 1

    def _go_on(self, schedule: Schedule, next_ms: int | None) -> None:
        """The schedule is looked at when its next tick is; what refused it before may not any more."""
        schedule.next_ms = next_ms
        self.blocked.pop(schedule.schedule_id, None)
        self.look(schedule)

    # ------------------------------------------------------------------ of this process

    def look(self, schedule: Schedule) -> None:
        """Look at a schedule at its next tick."""
        if schedule.next_ms is None:
            self.due.forget(schedule.schedule_id)
        else:
            self.due.set(schedule.schedule_id, schedule.next_ms)
        self.due.tidy()

    def block(self, schedule: Schedule, code: str, message: str, now_ms: int) -> None:
        """Its topic refused the record: tried again after a pause."""
        last = self.blocked.get(schedule.schedule_id)
        blocked = Blocked.after(last, code, message, now_ms)
        self.blocked[schedule.schedule_id] = blocked
        self.due.set(schedule.schedule_id, blocked.retry_at_ms)
