"""Schedules: made, shown, paused, run and deleted; and their ticks, as each becomes due.

A tick is decided as the append of its record would be, and is one entry of the log with it: the record, and when the next
tick is.  One turn has a bounded number of ticks and walks a bounded number of those that were missed; schedules that
are due take turns.  A record that its topic refuses is tried again after a pause, as a router's copy is.  Between two
ticks a schedule costs nothing: the engine's alarm is that of the tick which comes first.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from topics.protocol.commit.admission import FRAME_BYTES
from topics.protocol.commit.unit_of_work import UnitOfWork, no_such_topic, waits_for_room
from topics.protocol.decide.pages import page_of
from topics.protocol.decide.records import RecordCommands
from topics.protocol.model.access import ANYONE, Caller, outside
from topics.protocol.model.commands import (
    Append,
    DeleteSchedule,
    GetSchedule,
    ListSchedules,
    PauseSchedule,
    PutSchedule,
    ResumeSchedule,
    RunSchedule,
)
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import Corrupt, ErrorCode, Rejection
from topics.protocol.model.events import Fired, ScheduleConfigured, ScheduleDeleted
from topics.protocol.model.job_options import DELAY_MS_MAX
from topics.protocol.model.limits import Limits, throttled
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import (
    Appended,
    Blockage,
    Gate,
    Outcome,
    ScheduleDropped,
    SchedulePaused,
    SchedulePut,
    ScheduleRun,
    ScheduleShown,
    SchedulesListed,
    ScheduleView,
)
from topics.protocol.model.schedules import LATE_MS, SCHEDULE_BYTES, Run, ScheduleConfig
from topics.protocol.state.schedules import Schedule

SCHEDULES_BYTES_MAX: Final = 64 << 20
"""Of the records of all schedules, which are in memory and in every checkpoint."""
TICKS_MAX: Final = 16
TICKS_BYTES_MAX: Final = 256 << 10
"""Ticks of one turn, and bytes of their records; a record that is larger is appended alone."""
LOOKS_MAX: Final = 128
"""Ticks that one turn looks at where they were missed: some three milliseconds of cron."""
TAKEN_MAX: Final = 1000
"""Schedules that one turn finds due; the others follow in the next."""
ROOM_WAIT_MS: Final = 1000
ROOM_RETRY_MS: Final = 10
"""How long a tick waits for room in the log that is being made, before its schedule counts as blocked; and when it
looks again."""
_DEFAULT: Final = TopicConfig()

Named: TypeAlias = (
    PutSchedule | GetSchedule | DeleteSchedule | PauseSchedule | ResumeSchedule | RunSchedule
)
"""What names a schedule."""


class _Turn(msgspec.Struct):
    """What is left of one turn."""

    ticks: int = TICKS_MAX
    size_bytes: int = TICKS_BYTES_MAX
    looks: int = LOOKS_MAX

    @property
    def is_over(self) -> bool:
        return min(self.ticks, self.size_bytes, self.looks) <= 0


class _Walk(msgspec.Struct):
    """How far the ticks of a schedule were looked at that are due: from its next tick `from_ms` on `count` of them,
    the last but one before `tick_ms`."""

    from_ms: int
    tick_ms: int
    count: int = 0


class ScheduleCommands:
    """Schedules of one engine.

    Args:
        records: Appends what a tick appends.
    """

    def __init__(self, limits: Limits, unit: UnitOfWork, records: RecordCommands) -> None:
        self._limits = limits
        self._unit = unit
        self._state = unit.state
        self._schedules = unit.state.schedules
        self._records = records
        self._ready: dict[int, None] = {}
        """Schedules that are due, in the order of their turns."""
        self._walks: dict[int, _Walk] = {}
        self._room_since: dict[int, int] = {}
        """Since when a tick waits for room in the log, by its schedule."""
        self.commands: dict[type, Callable[[Any, Moment], Outcome]] = {
            PutSchedule: self._put,
            GetSchedule: self._get,
            ListSchedules: self._list,
            DeleteSchedule: self._delete,
            PauseSchedule: self._pause,
            ResumeSchedule: self._resume,
            RunSchedule: self._run,
        }

    # ------------------------------------------------------------------ commands

    def _put(self, command: PutSchedule, moment: Moment) -> Outcome:
        """Create, or replace the config; an identical one changes nothing."""
        config, now_ms, old = command.config, moment.now_ms, self._known(command)
        if old is not None and (old.config, old.paused) == (config, command.paused):
            return self._shown_as_put(old, now_ms, command.caller, created=False)
        limit = self._limits.max_schedules
        if old is None and limit and len(self._schedules) >= limit:
            raise throttled("max_schedules", limit)
        made_ms = now_ms if old is None else old.made_ms
        next_ms = self._first_tick(command, old, made_ms, now_ms)
        self._require_memory(config, old)
        self._require_topic(config, command.caller, now_ms)
        self._require_options(config, now_ms)
        log_bytes = FRAME_BYTES + config.record.size_bytes
        self._unit.require_writable(moment, log_bytes)
        schedule_id = self._schedules.next_id if old is None else old.schedule_id
        self._unit.emit(
            ScheduleConfigured(
                now_ms, schedule_id, command.schedule, config, command.paused, next_ms
            ),
            log_bytes=log_bytes,
        )
        self._forget(schedule_id)
        made = self._schedules.by_id[schedule_id]
        return self._shown_as_put(made, now_ms, command.caller, created=old is None)

    def _first_tick(
        self, command: PutSchedule, old: Schedule | None, made_ms: int, now_ms: int
    ) -> int | None:
        """The tick that comes next; a tick that is due is not lost by a change of other fields.

        Raises:
            Rejection: 400 for times that are none, or have no tick any more.
        """
        from topics.protocol.model.timetable import require_times, tick_after

        config = command.config
        if old is not None and old.next_ms is not None and config.has_times_of(old.config):
            return None if command.paused else old.next_ms
        require_times(config)
        next_ms = tick_after(config, made_ms, now_ms)
        if next_ms is None:
            raise _never(config)
        return None if command.paused else next_ms

    def _require_memory(self, config: ScheduleConfig, old: Schedule | None) -> None:
        """Raises Rejection: 429 where all schedules take too much."""
        more = config.record.size_bytes
        more += SCHEDULE_BYTES if old is None else -old.config.record.size_bytes
        if more > 0 and self._schedules.size_bytes + more > SCHEDULES_BYTES_MAX:
            raise throttled("max_schedule_bytes", SCHEDULES_BYTES_MAX)

    def _require_topic(self, config: ScheduleConfig, caller: Caller, now_ms: int) -> None:
        """Raises Rejection: 404 where the topic is not there and is not to be made; 400 where it would close a ring of
        dead letters (135); what else keeps it from being made."""
        if config.topic not in self._state.topics:
            topic_config = config.config or _DEFAULT
            if not topic_config.auto_create:
                raise no_such_topic(config.topic)
            self._unit.admission.require_no_ring(config.topic, topic_config, caller)
            self._unit.admission.creation(config.topic, topic_config, now_ms)

    def _require_options(self, config: ScheduleConfig, now_ms: int) -> None:
        """Raises Rejection: 400 for options of a job that no tick could give: the topic is a log, or is to be made one;
        it waits for longer than any job may, or than its queue keeps one (115, 132)."""
        job, topic = config.record.job, self._state.topics.get(config.topic)
        if job is None:
            return
        queue = config.config or _DEFAULT if topic is None else topic.config
        if queue.type != "queue":
            what = f'topic "{config.topic}" is a log: its records have no options of jobs'
            raise Rejection(ErrorCode.INVALID_REQUEST, f"{what} - at `$.record`")
        if job.not_before - now_ms > DELAY_MS_MAX:
            what = f"`not_before` is {DELAY_MS_MAX} ms from now at most"
            raise Rejection(ErrorCode.INVALID_REQUEST, f"{what} - at `$.record.not_before`")
        if 0 < queue.ttl_ms < job.delay_ms:
            what = f"the job would be gone before: `ttl_ms` is {queue.ttl_ms}"
            raise Rejection(ErrorCode.INVALID_REQUEST, f"{what} - at `$.record.delay_ms`")

    def _known(self, command: Named) -> Schedule | None:
        """The schedule of that name, if there is one; 403 where its topic is not the caller's."""
        schedule = self._schedules.by_name.get(command.schedule)
        if schedule is not None and not command.caller.covers_all(*schedule.names):
            raise outside(schedule.name)
        return schedule

    def _required(self, command: Named) -> Schedule:
        schedule = self._known(command)
        if schedule is None:
            raise Rejection(
                ErrorCode.SCHEDULE_NOT_FOUND,
                f'schedule "{command.schedule}" does not exist',
                {"schedule": command.schedule},
            )
        return schedule

    def _get(self, command: GetSchedule, moment: Moment) -> Outcome:
        view = self._view(self._required(command), moment.now_ms, command.caller)
        return ScheduleShown(view, gate=self._shown_gate())

    def _shown_gate(self) -> Gate:
        """What an answer waits for that tells of ticks, so that their records are there for who reads them then; where
        no sync comes any more, it shows what there is."""
        return Gate.NOW if self._unit.read_only else Gate.SYNCED

    def _list(self, command: ListSchedules, moment: Moment) -> Outcome:
        """By name, of the schedules that the caller may see."""
        by_name, size = self._schedules.by_name, command.page_size
        names = page_of(
            self._schedules.names,
            command.caller,
            command.prefix,
            command.after,
            size + 1,
            lambda name: self._is_listed(by_name[name], command),
        )
        views = [self._view(by_name[name], moment.now_ms, command.caller) for name in names[:size]]
        after = names[size - 1] if len(names) > size else None
        return SchedulesListed(views, after, gate=self._shown_gate())

    @staticmethod
    def _is_listed(schedule: Schedule, command: ListSchedules) -> bool:
        topic = schedule.config.topic
        return command.topic in (None, topic) and command.caller.covers(topic)

    def _view(self, schedule: Schedule, now_ms: int, caller: Caller) -> ScheduleView:
        """Without a name that the caller may not touch: that of a dead-letter topic, or of the topic which had the last
        record (§0.2)."""
        blocked, run = self._schedules.blocked.get(schedule.schedule_id), schedule.run
        return ScheduleView(
            name=schedule.name,
            config=_shown_config(schedule.config, caller),
            paused=schedule.paused,
            made_ms=schedule.made_ms,
            next_ms=schedule.next_ms,
            run=run if run is None or caller.covers(run.topic) else None,
            fired_total=schedule.fired_total,
            missed_total=schedule.missed_total,
            blockage=None
            if blocked is None
            else Blockage(
                blocked.code,
                blocked.message,
                blocked.since_ms,
                max(blocked.retry_at_ms - now_ms, 0),
            ),
        )

    def _shown_as_put(
        self, schedule: Schedule, now_ms: int, caller: Caller, *, created: bool
    ) -> SchedulePut:
        """An identical `PUT` waits too: what it repeats may still be on its way to the disk."""
        view = self._view(schedule, now_ms, caller)
        return SchedulePut(view, created, gate=Gate.SYNCED, is_logged=True)

    def _delete(self, command: DeleteSchedule, moment: Moment) -> Outcome:
        """Idempotent; what was appended stays."""
        schedule = self._known(command)
        if schedule is not None:
            self._unit.require_writable(moment, reserve=True)
            self._unit.emit(ScheduleDeleted(moment.now_ms, schedule.schedule_id))
            self._forget(schedule.schedule_id)
        return ScheduleDropped(
            command.schedule, schedule is not None, gate=Gate.SYNCED, is_logged=True
        )

    def _pause(self, command: PauseSchedule, moment: Moment) -> Outcome:
        """Ticks of a paused schedule do not happen, and are not counted; nor does one that is due."""
        schedule = self._required(command)
        is_changed = not schedule.paused
        if is_changed:
            self._set_paused(schedule, None, moment, paused=True)
        return _paused(schedule, changed=is_changed)

    def _resume(self, command: ResumeSchedule, moment: Moment) -> Outcome:
        """With the first tick from now on.  Raises Rejection: 400 where there is none."""
        from topics.protocol.model.timetable import tick_after

        schedule = self._required(command)
        is_changed = schedule.paused
        if is_changed:
            next_ms = tick_after(schedule.config, schedule.made_ms, moment.now_ms)
            if next_ms is None:
                raise _never(schedule.config)
            self._set_paused(schedule, next_ms, moment, paused=False)
        return _paused(schedule, changed=is_changed)

    def _set_paused(
        self, schedule: Schedule, next_ms: int | None, moment: Moment, *, paused: bool
    ) -> None:
        self._unit.require_writable(moment)
        self._emit(schedule, moment.now_ms, next_ms, paused=paused)
        self._forget(schedule.schedule_id)

    def _run(self, command: RunSchedule, moment: Moment) -> Outcome:
        """A record beside those of the ticks, also while it is paused."""
        schedule = self._required(command)
        # A tick that is due stays so, and one that its topic refused is tried again.
        fired = Fired(schedule.schedule_id, moment.now_ms, schedule.next_ms)
        appended = self._append(schedule, fired, moment, command.caller)
        run = schedule.run
        assert run is not None
        return ScheduleRun(
            schedule.name,
            run,
            gate=appended.gate,
            is_logged=True,
            is_fsync=appended.is_fsync,
        )

    def _emit(
        self,
        schedule: Schedule,
        now_ms: int,
        next_ms: int | None,
        *,
        paused: bool,
        missed: int = 0,
        run: Run | None = None,
    ) -> None:
        """What changes of a schedule beside its config."""
        schedule_id, name = schedule.schedule_id, schedule.name
        self._unit.emit(
            ScheduleConfigured(now_ms, schedule_id, name, None, paused, next_ms, missed, run)
        )

    # ------------------------------------------------------------------ ticks

    def begin(self) -> None:
        """This engine decides from now on: each schedule is looked at when its next tick is."""
        self._ready.clear()
        self._walks.clear()
        self._room_since.clear()
        self._schedules.blocked.clear()
        for schedule in self._schedules.by_id.values():
            self._schedules.look(schedule)
            _load(schedule.config.tz)
        self._schedules.fired = self._schedules.missed = 0

    def is_due(self, now_ms: int) -> bool:
        """Whether `step` may have something to do now."""
        if self._unit.read_only:
            return False
        return bool(self._ready) or self._schedules.due.is_due(now_ms)

    def alarm_ms(self) -> int | None:
        """When `step` has something to do though nothing happens until then."""
        return None if self._unit.read_only else self._schedules.due.next_ms()

    def step(self, moment: Moment) -> None:
        """The ticks that are due, as many as one turn may have."""
        if not self.is_due(moment.now_ms):
            return
        for _ in range(TAKEN_MAX):
            schedule_id = self._schedules.due.take(moment.now_ms)
            if schedule_id is None:
                break
            self._ready[schedule_id] = None
        turn = _Turn()
        while self._ready and not turn.is_over:
            schedule_id = next(iter(self._ready))
            del self._ready[schedule_id]
            schedule = self._schedules.by_id.get(schedule_id)
            if schedule is not None and (schedule.next_ms or moment.now_ms + 1) <= moment.now_ms:
                self._visit(schedule, moment, turn)
        self._unit.evict_for_memory(moment.now_ms)

    def _visit(self, schedule: Schedule, moment: Moment, turn: _Turn) -> None:
        """One tick of a schedule that is due, or a part of the way to it."""
        try:
            self._tick(schedule, moment, turn)
        except Rejection as refusal:
            self._refused(schedule, refusal, moment.now_ms)
        except (Corrupt, OSError) as error:
            # What is stored of the topic cannot be read; a command that names it says so, too.
            unread = Rejection(ErrorCode.INTERNAL, f"stored records could not be read: {error}")
            self._refused(schedule, unread, moment.now_ms)

    def _tick(self, schedule: Schedule, moment: Moment, turn: _Turn) -> None:
        from topics.protocol.model.timetable import tick_after

        config, now_ms = schedule.config, moment.now_ms
        walk = self._walk(schedule, now_ms, turn)
        if walk is None:
            self._ready[schedule.schedule_id] = None
            return
        next_ms = tick_after(config, schedule.made_ms, walk.tick_ms)
        if config.missed == "none" and now_ms - walk.tick_ms > LATE_MS:
            self._unit.require_writable(moment)
            turn.ticks -= 1
            self._emit(schedule, now_ms, next_ms, paused=False, missed=walk.count + 1)
        else:
            turn.ticks -= 1
            turn.size_bytes -= config.record.size_bytes
            is_over = next_ms is None and config.at is not None
            fired = Fired(schedule.schedule_id, walk.tick_ms, next_ms, walk.count, is_over)
            self._append(schedule, fired, moment)
        self._forget(schedule.schedule_id)

    def _walk(self, schedule: Schedule, now_ms: int, turn: _Turn) -> _Walk | None:
        """To the tick that happens: the first that is due where all do, else the last; None where the turn is over
        before."""
        from topics.protocol.model.timetable import ticks_passed

        assert schedule.next_ms is not None
        turn.looks -= 1
        if schedule.config.missed == "all":
            return _Walk(schedule.next_ms, schedule.next_ms)
        walk = self._walks.get(schedule.schedule_id)
        if walk is None or walk.from_ms != schedule.next_ms:
            walk = _Walk(schedule.next_ms, schedule.next_ms)
        passed = ticks_passed(
            schedule.config, schedule.made_ms, walk.tick_ms, now_ms, max(turn.looks, 1)
        )
        walk.tick_ms = passed.last_ms
        walk.count += passed.before
        if schedule.config.cron is not None:  # those of an interval are counted by arithmetic
            turn.looks -= passed.before
        self._walks[schedule.schedule_id] = walk
        return walk if passed.is_whole else None

    def _append(
        self, schedule: Schedule, fired: Fired, moment: Moment, caller: Caller = ANYONE
    ) -> Appended:
        """The record of a tick.  Raises Rejection: the topic does not take it, and nothing changed."""
        appended = self._records.append(_record_of(schedule, fired.at_ms, caller), moment, fired)
        topic = self._state.topics[appended.topic]
        if not appended.count:
            # A unique job was there already, and nothing has changed so far.
            self._unit.require_writable(moment)
        if not topic.durability.is_logged or not appended.count:
            span = None if appended.placed is None else appended.placed.spans[0]
            partition = 0 if span is None else span.partition
            run = Run(fired.at_ms, moment.now_ms, topic.name, partition, appended.first_seq)
            self._emit(
                schedule,
                moment.now_ms,
                fired.next_ms,
                paused=schedule.paused,
                missed=fired.missed,
                run=run,
            )
            if fired.ends:
                self._unit.emit(ScheduleDeleted(moment.now_ms, schedule.schedule_id))
        return appended

    def _refused(self, schedule: Schedule, refusal: Rejection, now_ms: int) -> None:
        """Tried again soon where the log makes room, else after a pause."""
        schedule_id = schedule.schedule_id
        if waits_for_room(refusal):
            since_ms = self._room_since.setdefault(schedule_id, now_ms)
            if now_ms - since_ms < ROOM_WAIT_MS:
                self._schedules.due.set(schedule_id, now_ms + ROOM_RETRY_MS)
                return
        self._schedules.block(schedule, refusal.code.value, refusal.message, now_ms)

    def _forget(self, schedule_id: int) -> None:
        """The tick happened, or does not any more."""
        self._walks.pop(schedule_id, None)
        self._room_since.pop(schedule_id, None)


def _load(zone: str | None) -> None:
    """Have a time zone at hand before its first tick.  One that is not there is told where a tick needs it."""
    if zone is not None:
        from topics.protocol.model.timetable import zone_of

        with suppress(Rejection):
            zone_of(zone)


def _paused(schedule: Schedule, *, changed: bool) -> SchedulePaused:
    """A repetition waits too: what it repeats may still be on its way to the disk."""
    return SchedulePaused(
        schedule.name,
        schedule.paused,
        schedule.next_ms,
        changed,
        gate=Gate.SYNCED,
        is_logged=True,
    )


def _shown_config(config: ScheduleConfig, caller: Caller) -> ScheduleConfig:
    topic = config.config
    if topic is None or topic.dead_letter is None or caller.covers(topic.dead_letter):
        return config
    return replace(config, config=replace(topic, dead_letter=None))


def _never(config: ScheduleConfig) -> Rejection:
    """400: a schedule without a tick would be of no use."""
    if config.until is not None:
        path, why = "until", "it has no tick before `until`"
    elif config.at is not None:
        path, why = "at", "its time is over"
    else:
        path, why = "cron", "it has no tick within fifty years"
    return Rejection(
        ErrorCode.INVALID_REQUEST, f"the schedule would never run: {why} - at `$.{path}`"
    )


def _record_of(schedule: Schedule, at_ms: int, caller: Caller) -> Append:
    """The append of a tick: `meta` says which it is."""
    config = schedule.config
    record = config.record
    own = b'"$schedule":"%b","$schedule_at":%d}' % (schedule.name.encode(), at_ms)
    given = b"" if record.meta is None else record.meta.strip()[1:-1].strip()
    return Append(
        topic=config.topic,
        datas=[record.data],
        nodes=record.node,
        tags=None if record.tag is None else [record.tag],
        metas=[b"{" + (given + b"," if given else b"") + own],
        key=b"",
        create=None,
        config=config.config or _DEFAULT,
        return_seqs=False,
        disable_backpressure=False,
        marks=None if record.mark is None else [record.mark],
        partitions=None if record.partition is None else [record.partition],
        jobs=None if record.job is None else [record.job],
        caller=caller,
    )
