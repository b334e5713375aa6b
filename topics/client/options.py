"""Keyword arguments of the calls that take many, named and explained once for both clients.

Each may be left out.  A type checker knows them all; `require` is for programs without one.  There
a misspelled option would mean a topic without its cap, or a read from the beginning.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from topics.client.encoding import Default
from topics.client.errors import TopicsError
from topics.client.held_job import BaseHeldJob
from topics.client.job_options import JobOptions
from topics.client.models import Appended, Backoff, Rate

Match = str | tuple[str, str, str]
"""A tag, or ("tag", "Eq" | "Glob", pattern) (§5)."""


def require(kind: Any, given: Mapping[str, object], what: str) -> None:
    """Refuse an option that does not exist.

    Args:
        kind: The TypedDict of the options that exist.
        what: The call that they were given to, for the message.

    Raises:
        TypeError: Worded as Python words it for any function.
    """
    for name in given:
        if name not in kind.__optional_keys__:
            raise TypeError(f"{what} got an unexpected keyword argument {name!r}")


class Config(TypedDict, total=False):
    """A topic's config (§0.10); an option that is left out is the server's default."""

    type: Literal["log", "queue"]
    ttl_ms: int
    cap_records: int
    cap_bytes: int
    discard: Literal["old", "reject"]
    durable: bool
    durability: Literal["ephemeral", "memory", "disk", "fsync"]
    priority: int | None
    auto_priority: bool
    auto_create: bool
    idempotency_window_ms: int
    dedupe_node: bool
    lease_ms: int
    claim_jitter_ms: int
    max_deliveries: int
    dead_letter: str | None
    leases_durable: bool
    max_message_bytes: int
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"]
    partitions: int
    compact: bool
    kafka_configs: Mapping[str, str]
    order: Literal["group"] | None
    fair: bool | None
    rate: Rate | Mapping[str, int] | None
    max_in_flight: int | None
    group_max_in_flight: int | None
    backoff: Backoff | Mapping[str, float] | None
    result_ttl_ms: int
    keep_done: int


class WriteOptions(TypedDict, total=False):
    """Options of every append.

    Attributes:
        node: Writer of each record that does not name its own.
        create: False raises `TopicNotFound` instead of creating the topic.
        config: Of the topic, if this append creates it.
        disable_backpressure: The server admits the append under load, and may hold it back for a
            while, instead of answering 429 (§0.6).
    """

    node: str | None
    create: bool | None
    config: Config | None
    disable_backpressure: bool


class AppendOptions(WriteOptions, JobOptions, total=False):
    """Options of `append`; those of `JobOptions` are for each bare value.

    Attributes:
        tag: Tag of each bare value.
        meta: Meta of each bare value.
        partition: Of the topic, for each bare value; by default the server places it by its tag.
        idempotency_key: Give the same key where the program repeats this append; by default each
            append has a new one.
        keyed: False sends no key: the server remembers nothing, and an attempt whose answer is
            lost is not repeated.
        default: Converts a value that JSON has no form for (bytes, a Decimal, a time, a set);
            without it, such a value is a `TypeError`.
    """

    tag: str | None
    meta: Mapping[str, Any] | None
    partition: int | None
    idempotency_key: str | None
    keyed: bool
    default: Default | None


class CallOptions(JobOptions, total=False):
    """Options of `call`; those of `JobOptions`, too.  `expires_ms` is by default the time of the call.

    Attributes:
        node: Writer of the job.
        tag: Its tag.
        meta: Its meta.
        idempotency_key: Give the same key where the program repeats this call, which then waits for the
            same job; by default each call has a new one.
        default: As for `append`.
    """

    node: str | None
    tag: str | None
    meta: Mapping[str, Any] | None
    idempotency_key: str | None
    default: Default | None


class BatchOptions(WriteOptions, total=False):
    """Options of `append_many`.

    Attributes:
        batch_records: Most records of a batch (1000); the server takes 10,000 by default.
        batch_bytes: Most bytes of a batch (8 MiB); one record always fits.
        key_prefix: The idempotency key of a batch is this and the batch's number.  The same values,
            batch sizes and prefix, sent again within the topic's window, are not appended again.
        progress: Called with the answer for each batch.
        default: As for `append`.
    """

    batch_records: int
    batch_bytes: int
    key_prefix: str | None
    progress: Callable[[Appended], None] | None
    default: Default | None


class ProducerOptions(WriteOptions, total=False):
    """Options of `producer`.

    Attributes:
        batch_records: Most records of a batch (5000); the server takes 10,000 by default.
        batch_bytes: Most bytes of a batch (1 MiB); one record always fits.
        linger_ms: How long a record waits for others to fill its batch (5).
        buffer_bytes: Most bytes that are not acknowledged (32 MiB); `send` waits for room.
        default: As for `append`.
    """

    batch_records: int
    batch_bytes: int
    linger_ms: float
    buffer_bytes: int
    default: Default | None


class ScheduleOptions(JobOptions, total=False):
    """Options of `put_schedule`: one of `cron`, `every_ms` and `at_ms`, and how; those of `JobOptions` are for a bare value.

    Attributes:
        cron: Minute, hour, day of the month, month, day of the week; six fields begin with the second.
        every_ms: Between two ticks, counted from when the schedule was made; at least 1000.
        at_ms: Of one tick, milliseconds since the epoch; the schedule is deleted then.
        tz: The time zone of `cron`, as "Europe/Berlin"; by default UTC.
        missed: Which of the ticks that could not happen in time happen later: by default the last one.
        until_ms: No tick is then or later.
        paused: It has no ticks for now.
        tag, meta, partition: Of a bare value, as for `append`.
        config: Of the topic, if a tick creates it.
        default: As for `append`.
    """

    cron: str | None
    every_ms: int | None
    at_ms: int | None
    tz: str | None
    missed: Literal["none", "one", "all"]
    until_ms: int | None
    paused: bool
    tag: str | None
    meta: Mapping[str, Any] | None
    partition: int | None
    config: Config | None
    default: Default | None


class PageOptions(TypedDict, total=False):
    """Options of every read.

    Attributes:
        from_seq: Exclusive; 0, the default, reads from the earliest record.
        from_ts: Instead of `from_seq`: begin with the first record at or after this time,
            milliseconds since the epoch.
        match: Keep only records whose tag matches, in the grammar of `delete`.
        node: Leave out records of this writer, or of these.
        include_tags: Fill `Record.tag` (False).
        include_meta: Fill `Record.meta` (True).
        epoch: The instance of the topic that the cursor belongs to, from an earlier page.
        partition: Of the topic that is read; where it has one, that.
    """

    from_seq: int
    from_ts: int | None
    match: Match | None
    node: str | list[str] | None
    include_tags: bool
    include_meta: bool
    epoch: str | None
    partition: int | None


class DiffOptions(PageOptions, total=False):
    """Options of `diff`.

    Attributes:
        limit: Most records to return (1000); the server grants 1000 by default.
        wait_ms: Where there is no record yet, wait for one, at most 30,000 (0).
    """

    limit: int
    wait_ms: int


class StablePageOptions(TypedDict, total=False):
    """Options of `page`.

    Attributes:
        from_seq: Exclusive; 0, the default, reads from the earliest record.
        limit: Most records to return (1000); the server grants 1000 by default.
        max_batch_bytes: Most bytes of them, but for the first (1 MiB).
        include_tags: Fill `Record.tag` (False).
        include_meta: Fill `Record.meta` (True).
        epoch: The instance of the topic that the cursor belongs to.
        partition: Of the topic that is read; where it has one, that.
    """

    from_seq: int
    limit: int
    max_batch_bytes: int
    include_tags: bool
    include_meta: bool
    epoch: str | None
    partition: int | None


class ReadOptions(PageOptions, total=False):
    """Options of `read`.

    Attributes:
        follow: Do not end at the head but wait for more, until the loop is left.
        wait_ms: How long the server holds each answer back while there is no record; by default
            30,000 when following, else 0.
        limit: End after so many records.
        page_records: Records of one request (1000).
    """

    follow: bool
    wait_ms: int | None
    limit: int | None
    page_records: int


class Begin(TypedDict, total=False):
    """Where a watch begins in a topic, and which of its records it wants.

    Attributes:
        from_seq: Exclusive; 0, the default, begins with the earliest record.
        from_ts: Instead of `from_seq`: begin with the first record at or after this time,
            milliseconds since the epoch.
        tail: True begins at the head: only what comes from now on.
        match: Keep only records whose tag matches, in the grammar of `delete`.
        partitions: Of a topic with several, only these.  By default all are watched, and those that it gets
            later; a `from_seq` is of one.
    """

    from_seq: int
    from_ts: int | None
    tail: bool
    match: Match | None
    partitions: list[int] | None


class WorkOptions(TypedDict, total=False):
    """Options of `work`.

    Attributes:
        node: Name of the worker; by default this machine and process.
        max: Jobs of one claim (1).  More saves requests where jobs are short; the jobs that wait
            for their turn are leased meanwhile.
        lease_ms: How soon another worker may have the jobs of one that died, within
            [100, 86,400,000]; by default the queue's `lease_ms`.  The lease of a job in hand is
            extended in the background, however long the job takes.
        wait_ms: How long a claim waits for a first job (5000), at most 30,000; `stop` of a `Work`
            takes effect after it.
        first_delay_ms: Delay of a job that failed at its first delivery (1000); it doubles with
            each delivery.  Where neither this nor `longest_delay_ms` is given, a queue that has a
            `backoff` decides.
        longest_delay_ms: The delay that the doubling ends at (300,000).
        push: Have jobs pushed over a connection of each hand instead of claiming them.  When it
            breaks, as it does when the process is killed, the server gives the jobs to other
            workers at once, and not when their leases end.  Not together with `drain`.
        drain: End when no job is ready, instead of waiting for more.  Jobs that wait for the queue's
            `rate` or `max_in_flight` are ready, and those behind others of their group are not.
        limit: End after so many jobs.
        keep_results: What a handler returns, unless it is None, is the job's result (`Client.job`,
            `Client.call`).  True by default.  Where JSON has no form for it, or the server refuses it,
            the job is done without one, and the log says so once.
    """

    node: str | None
    max: int
    lease_ms: int | None
    wait_ms: int
    first_delay_ms: int
    longest_delay_ms: int
    push: bool
    drain: bool
    limit: int | None
    keep_results: bool


class KeeperOptions(TypedDict, total=False):
    """Options of `lease_keeper`.

    Attributes:
        capacity: Most jobs in hand, those that are being claimed included; by default there is no limit.
        background: An ack or a nack returns at once (False).  The keeper sends it, together with others that came
            up meanwhile.  Where it does not arrive, the job is handed out again when its lease ends.
        on_lost: Called with jobs whose leases ended: other workers have them, or had them.  By default a line in
            the log for each.
        on_error: Called with an error in the background, and its jobs.  Where an extension failed they are still held,
            and this is called once until an extension arrives again; where their ack or nack did not arrive
            they are lost.  By default a line in the log.
    """

    capacity: int | None
    background: bool
    on_lost: Callable[[Sequence[BaseHeldJob[Any]]], object]
    on_error: Callable[[TopicsError, Sequence[BaseHeldJob[Any]]], object]


class WatchOptions(Begin, total=False):
    """Options of `watch`; those of `Begin` are for each topic that has none of its own.

    Attributes:
        cursor: The `cursor` of an earlier watch, to go on there; it overrides the beginnings.
        node: Leave out records of this writer, or of these.
        limit: Most records of one frame on the wire (256).
        include_tags: Fill `Record.tag` (False).
        include_meta: Fill `Record.meta` (True).
        consistency: "strong" shows only records that a sync has covered ("eventual").
        heartbeat_ms: The server sends a heartbeat where it has sent nothing for so long (15,000),
            within [1000, 60,000].  A connection without a byte for twice that, and 5 s, is lost.
        lenient: Leave out topics that do not exist, instead of raising `TopicNotFound`.
        connection: Called with the error when the connection is lost, and with None when it is
            made again.
    """

    cursor: str | None
    node: str | list[str] | None
    limit: int
    include_tags: bool
    include_meta: bool
    consistency: Literal["eventual", "strong"]
    heartbeat_ms: int
    lenient: bool
    connection: Callable[[TopicsError | None], None] | None
