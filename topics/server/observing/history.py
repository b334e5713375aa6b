"""The last hour in figures, at one second and at ten: what the console's charts are drawn of (§8.6).

Owns two rings of fixed size, and when a row is added to them.  Rows are of the server's own counters.
An idle server has no timer for this: the first answer, or the first write, after a row arms one for
the end of the step.  So a step without a row is one in which nothing was asked and nothing was
written, and counters stood still.

A row costs some ten microseconds, and looks at a bounded number of queues and routers.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import orjson

from topics.protocol.driver.figures import job_counts, totals
from topics.protocol.faces.http.server import HISTORY_STEPS_MS as STEPS_MS
from topics.protocol.model.access import ANYONE, Caller
from topics.server.observing import usage
from topics.server.observing.measures import BOUNDS_S, RequestMeasures
from topics.server.service.shell import Phase, Shell

HOUR_MS: Final = 3_600_000
ROWS_MAX: Final = 900
"""Rows of one answer: a hundred KiB, which is made in about a millisecond."""

COLUMNS: Final = (
    "at_ms",
    "records_in_per_s",
    "log_bytes_per_s",
    "requests_per_s",
    "reads_per_s",
    "p99_ms",
    "router_lag",
    "routers_blocked",
    "records",
    "bytes",
    "hot_bytes",
    "resident_bytes",
    "loop_lag_ms",
)
JOBS: Final = ("at_ms", "ready", "in_flight", "delayed", "dead_lettered")

Columns = dict[str, list[float]]


class Ring:
    """The newest rows of one table, as columns.

    Args:
        names: Of the columns; the first one rises.
        size: Rows kept.
    """

    def __init__(self, names: Sequence[str], size: int) -> None:
        self._names = names
        self._size = size
        self._columns: list[array[float]] = [array("d") for _ in names]
        self._next = 0

    def add(self, row: Sequence[float]) -> None:
        """Add a row, in place of the oldest where the ring is full."""
        assert len(row) == len(self._names)
        if len(self._columns[0]) < self._size:
            for column, value in zip(self._columns, row, strict=True):
                column.append(value)
            return
        for column, value in zip(self._columns, row, strict=True):
            column[self._next] = value
        self._next = (self._next + 1) % self._size

    @property
    def newest(self) -> float:
        """The first field of the newest row; 0 where there is none."""
        first = self._columns[0]
        return first[self._next - 1] if first else 0.0

    def after(self, at: float) -> Columns:
        """The first `ROWS_MAX` rows whose first field is greater, oldest first, by the names of their
        columns."""
        whole = [column[self._next :] + column[: self._next] for column in self._columns]
        first = bisect_right(whole[0], at)
        last = first + ROWS_MAX
        return {
            name: column[first:last].tolist()
            for name, column in zip(self._names, whole, strict=True)
        }


class _Counters(NamedTuple):
    """What only rises, read at one moment.  All of it is 0 when a server starts."""

    records: int
    log_bytes: int
    requests: int
    reads: int
    buckets: Sequence[int]


AT_START: Final = _Counters(0, 0, 0, 0, (0,) * (len(BOUNDS_S) + 1))


class _Table:
    """Rows of one step, and whether a timer is set for the next one."""

    def __init__(self, step_ms: int) -> None:
        self.step_ms = step_ms
        self.rows = Ring(COLUMNS, HOUR_MS // step_ms)
        self.before = AT_START
        self.is_armed = False


class History:
    """Samples a server while it has something to do.

    Args:
        measures: Of requests.
        resident_bytes: The process's memory; 0 where the system does not tell.
    """

    def __init__(
        self,
        shell: Shell,
        measures: RequestMeasures,
        resident_bytes: Callable[[], int] = usage.resident_bytes,
    ) -> None:
        self._shell = shell
        self._measures = measures
        self._resident_bytes = resident_bytes
        self._tables = {step_ms: _Table(step_ms) for step_ms in STEPS_MS}
        self._queues: dict[int, tuple[str, Ring]] = {}
        self._all_armed = False

    def note(self) -> None:
        """Something was answered or written: each table gets a row when its step is over."""
        if self._all_armed:
            return
        self._all_armed = True
        for table in self._tables.values():
            if not table.is_armed:
                table.is_armed = True
                left_ms = table.step_ms - self._shell.now_ms % table.step_ms
                self._shell.later(left_ms / 1000, partial(self._ring, table))

    def _ring(self, table: _Table) -> None:
        table.is_armed = self._all_armed = False
        self.sample(table.step_ms)

    def sample(self, step_ms: int) -> None:
        """Add the row that is due; none while another thread has the state."""
        shell, table = self._shell, self._tables[step_ms]
        if shell.phase is not Phase.READY:
            return
        at_ms = shell.now_ms - shell.now_ms % step_ms
        # A clock that was set back adds no row: times rise.
        if at_ms > table.rows.newest:
            self._add(table, at_ms)

    def _add(self, table: _Table, at_ms: int) -> None:
        found, rows = totals(self._shell.engine), table.rows
        log_bytes, measures = self._shell.store.stats.bytes_written_total, self._measures
        now = _Counters(found.appended, log_bytes, *measures.totals(), measures.buckets())
        # Counters stood still in seconds without a row, so what came is of the last step.
        before, table.before = table.before, now
        per_s = 1000 / table.step_ms
        rows.add(
            (
                at_ms,
                (now.records - before.records) * per_s,
                (now.log_bytes - before.log_bytes) * per_s,
                (now.requests - before.requests) * per_s,
                (now.reads - before.reads) * per_s,
                percentile_ms(before.buckets, now.buckets, 0.99),
                *found[1:],
                self._resident_bytes(),
                self._shell.process().lag_ms,
            )
        )
        if table.step_ms == STEPS_MS[-1]:
            self._add_queues(at_ms)

    def _add_queues(self, at_ms: int) -> None:
        kept: dict[int, tuple[str, Ring]] = {}
        for each in job_counts(self._shell.engine, self._queues):
            name, ring = self._queues.get(each.topic_id) or (
                each.name,
                Ring(JOBS, HOUR_MS // 10_000),
            )
            ring.add((at_ms, *each[2:]))
            kept[each.topic_id] = (name, ring)
        self._queues = kept

    def document(self, step_ms: int, after_ms: int, caller: Caller = ANYONE) -> bytes:
        """The rows after a time as JSON, without the last brace.

        Args:
            step_ms: One of `STEPS_MS`.
            caller: Whose queues have figures.
        """
        queues = [
            {"topic": name, **ring.after(after_ms)}
            for name, ring in self._queues.values()
            if caller.covers(name)
        ]
        found: Mapping[str, object] = {
            "step_ms": step_ms,
            "now_ms": self._shell.now_ms,
            "series": self._tables[step_ms].rows.after(after_ms),
            "queues": sorted(queues, key=lambda queue: str(queue["topic"])),
        }
        return orjson.dumps(found)[:-1]


def percentile_ms(before: Sequence[int], now: Sequence[int], share: float) -> float:
    """The time within which this share of the requests between two readings was answered.

    Args:
        before, now: Counts by `BOUNDS_S`, and of those beyond the last bound.

    Returns:
        Interpolated in its bucket, milliseconds; 0 where there was no request, the last bound for
        what is beyond it.
    """
    counts = [b - a for a, b in zip(before, now, strict=True)]
    wanted = share * sum(counts)
    if not wanted:
        return 0.0
    seen, low_s = 0.0, 0.0
    for bound_s, count in zip(BOUNDS_S, counts, strict=False):
        if seen + count >= wanted:
            return 1000 * (low_s + (bound_s - low_s) * (wanted - seen) / count)
        seen, low_s = seen + count, bound_s
    return 1000 * BOUNDS_S[-1]
