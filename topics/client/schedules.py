# Generated from aioschedules.py by topics/client/_generate.py; do not edit, run `make generate`.
"""The calls of a client that are about schedules."""

from collections.abc import Iterator
from typing import Any, Unpack

from topics.client import endpoints, paging
from topics.client.models import (
    Schedule,
    ScheduleDeleted,
    SchedulePaused,
    SchedulePut,
    ScheduleRun,
    ScheduleSummary,
)
from topics.client.options import ScheduleOptions
from topics.client.session import Session


class ScheduleCalls:
    """The part of `Client` for schedules.

    Attributes:
        session: Sends the calls.
    """

    session: Session

    def put_schedule(
        self, name: str, topic: str, value: Any, **options: Unpack[ScheduleOptions]
    ) -> SchedulePut:
        """Append a record to `topic` at each tick of a cron expression, of an interval, or once.

            client.put_schedule("report", "jobs", {"make": "report"}, cron="0 6 * * 1-5", tz="Europe/Berlin")
            client.put_schedule("probe", "jobs", NewRecord("probe", tag="eu"), every_ms=60_000)

        Replaces the schedule of that name, if there is one; the same call again changes nothing.  A record says which
        tick it is: `meta["$schedule"]` and `meta["$schedule_at"]`.  Options: `ScheduleOptions`.

        Args:
            value: Anything that JSON has a form for, or a `NewRecord` with a tag, node and meta of its own.

        Raises:
            InvalidRequest: It would never run, or the expression or the time zone is none.
        """
        return self.session.do(endpoints.put_schedule(name, topic, value, options))

    def schedule(self, name: str) -> Schedule:
        """A schedule, its next tick, its last record, and what blocks it.  Raises `ScheduleNotFound`."""
        return self.session.do(endpoints.schedule(name))

    def schedules(
        self, *, prefix: str = "", topic: str | None = None, page_size: int = 1000
    ) -> Iterator[ScheduleSummary]:
        """All schedules whose name begins with `prefix`, into this topic, page by page.

            for schedule in client.schedules(topic="jobs"):
                print(schedule.schedule, schedule.next_at_ms)

        Args:
            page_size: Schedules of one request.
        """
        return self.session.items(paging.schedules(prefix=prefix, topic=topic, page_size=page_size))

    def delete_schedule(self, name: str) -> ScheduleDeleted:
        """End a schedule at once; the records that it appended stay."""
        return self.session.do(endpoints.delete_schedule(name))

    def run_schedule(self, name: str) -> ScheduleRun:
        """Append the record of a schedule now; its next tick stays where it is.  Raises `ScheduleNotFound`."""
        return self.session.do(endpoints.run_schedule(name))

    def pause_schedule(self, name: str) -> SchedulePaused:
        """Let a schedule have no ticks until it is resumed; those that pass are not counted as missed."""
        return self.session.do(endpoints.pause_schedule(name))

    def resume_schedule(self, name: str) -> SchedulePaused:
        """Let a paused schedule have ticks again.  Raises `InvalidRequest`: there is none any more."""
        return self.session.do(endpoints.resume_schedule(name))
