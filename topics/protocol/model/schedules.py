"""Schedules: records that the engine appends when their time has come.

Values that commands, events and outcomes of schedules share.  When the ticks of a schedule are is in
`model/timetable.py`, its state in `state/schedules.py`.
"""

from typing import Final, Literal

import msgspec

from topics.protocol.model.config import TopicConfig
from topics.protocol.model.job_options import JobRequest
from topics.protocol.model.marks import Mark

Missed = Literal["none", "one", "all"]
"""Which of the ticks that could not happen in time happen later: none, the last one, or all."""

EVERY_MS_MIN: Final = 1000
EVERY_MS_MAX: Final = 10 * 366 * 24 * 3_600_000
"""Some ten years."""
CRON_CHARS_MAX: Final = 256
ZONE_CHARS_MAX: Final = 64
UTC: Final = "UTC"
LATE_MS: Final = 60_000
"""A tick that is later than this is missed for a schedule with `missed` "none".  The resolution of cron is
a minute, and a restart or a change of leaders takes less."""
SCHEDULE_BYTES: Final = 1000
"""What a schedule takes in memory beside its record."""


class ScheduledRecord(msgspec.Struct, frozen=True, array_like=True):
    """The record that each tick of a schedule appends, as an append has it.

    Attributes:
        data, meta: As JSON text; `meta` without what the tick adds.
        job: What is asked of the job that it is; `options` says that in the client's words, as a JSON object.
    """

    data: bytes
    node: str | None = None
    tag: str | None = None
    meta: bytes | None = None
    mark: Mark | None = None
    partition: int | None = None
    job: JobRequest | None = None
    options: bytes = b""

    @property
    def size_bytes(self) -> int:
        """Of its text."""
        head = b"" if self.mark is None else self.mark.head
        return len(self.data) + len(self.meta or b"") + len(head) + len(self.options)


class ScheduleConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it was asked for; exactly one of `cron`, `every_ms` and `at` is given.

    Attributes:
        config: Of the topic, where a tick makes it; None: the defaults.
        every_ms: Between two ticks, counted from when the schedule was made.
        at, until: Milliseconds since the epoch; no tick is at `until` or later.
        tz: The time zone of `cron`, by its name in the database of time zones; None without `cron`.
    """

    topic: str
    record: ScheduledRecord
    config: TopicConfig | None = None
    cron: str | None = None
    every_ms: int | None = None
    at: int | None = None
    tz: str | None = None
    missed: Missed = "one"
    until: int | None = None

    def has_times_of(self, other: "ScheduleConfig") -> bool:
        """Whether its ticks are those of another config."""
        own = self.cron, self.every_ms, self.at, self.tz, self.until
        return own == (other.cron, other.every_ms, other.at, other.tz, other.until)


class Run(msgspec.Struct, frozen=True, array_like=True):
    """The last record that a schedule made.

    Attributes:
        at_ms: The tick; where a client asked for the run, when it did.
        ts_ms: When it was appended.
        topic, partition, seq: Where it is.
    """

    at_ms: int
    ts_ms: int
    topic: str
    partition: int
    seq: int
