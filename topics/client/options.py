"""Keyword arguments of the calls that take many, named and explained once for both faces.

Every one may be left out.  A type checker knows them all; `require` is for programs without one,
whose misspelled option would else be a topic without its cap, or a read from the beginning.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict

from topics.client.encoding import Default
from topics.client.errors import TopicsError
from topics.client.models import Appended

Match = str | tuple[str, str, str]
"""A tag, or ("tag", "Eq" | "Glob", pattern) (§5)."""


def require(kind: Any, given: Mapping[str, object], what: str) -> None:
    """Refuse an option that does not exist.

    Args:
        kind: The TypedDict of those that do.
        what: What they were given to.

    Raises:
        TypeError: As Python's own for a keyword argument that a function does not have.
    """
    for name in given:
        if name not in kind.__optional_keys__:
            raise TypeError(f"{what} got an unexpected keyword argument {name!r}")


class Config(TypedDict, total=False):
    """A topic's config (§0.10); what is left out is the server's default."""

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


class WriteOptions(TypedDict, total=False):
    """Of any append.

    Attributes:
        node: Writer of every record that names none itself.
        create: False raises `TopicNotFound` instead of creating the topic.
        config: Of the topic, if this append creates it.
        disable_backpressure: Rather wait than be told to.
    """

    node: str | None
    create: bool | None
    config: Config | None
    disable_backpressure: bool


class AppendOptions(WriteOptions, total=False):
    """Of `append`.

    Attributes:
        tag: Of every bare value.
        meta: Of every bare value.
        idempotency_key: To be given again by whoever repeats this append; by default a new one.
        keyed: False sends no key: the server remembers nothing, and an attempt whose answer is
            lost is not repeated.
        default: Makes of a value that JSON cannot say (bytes, a Decimal, a time, a set) one that it
            can; without it, that is a `TypeError`.
    """

    tag: str | None
    meta: Mapping[str, Any] | None
    idempotency_key: str | None
    keyed: bool
    default: Default | None


class BatchOptions(WriteOptions, total=False):
    """Of `append_many`.

    Attributes:
        batch_records: Records of a batch (1000); the server takes 10,000 by default.
        batch_bytes: Bytes of a batch (8 MiB); one record always fits.
        key_prefix: With the batch's number it is the idempotency key.  The same values, batch
            sizes and prefix, sent again within the topic's window, are not appended again.
        progress: Told of each batch as it is acknowledged.
        default: As for `append`.
    """

    batch_records: int
    batch_bytes: int
    key_prefix: str | None
    progress: Callable[[Appended], None] | None
    default: Default | None


class ProducerOptions(WriteOptions, total=False):
    """Of `producer`.

    Attributes:
        batch_records: Most records of a batch (5000); the server takes 10,000 by default.
        batch_bytes: Most bytes of a batch (1 MiB); one record always fits.
        linger_ms: How long a record waits for others to go with (5), unless its batch is full.
        buffer_bytes: Most bytes that wait or are under way (32 MiB); `send` waits for room.
        default: As for `append`.
    """

    batch_records: int
    batch_bytes: int
    linger_ms: float
    buffer_bytes: int
    default: Default | None


class PageOptions(TypedDict, total=False):
    """Of any read.

    Attributes:
        from_seq: Exclusive; 0, the default, reads from the earliest record.
        from_ts: Instead of `from_seq`: begin with the first record at or after this time,
            milliseconds since the epoch.
        match: Keep only records whose tag matches, in the grammar of `delete`.
        node: Leave out records of this writer, or of these.
        include_tags: Fill `Record.tag` (False).
        include_meta: Fill `Record.meta` (True).
        epoch: Of an earlier page: the topic's instance that the cursor belongs to.
    """

    from_seq: int
    from_ts: int | None
    match: Match | None
    node: str | list[str] | None
    include_tags: bool
    include_meta: bool
    epoch: str | None


class DiffOptions(PageOptions, total=False):
    """Of `diff`.

    Attributes:
        limit: Most records to return (1000); the server grants 1000 by default.
        wait_ms: Where there is nothing yet, wait for it, at most 30,000 (0).
    """

    limit: int
    wait_ms: int


class ReadOptions(PageOptions, total=False):
    """Of `read`.

    Attributes:
        follow: Do not end at the head but wait for more, until the loop is left.
        wait_ms: How long the server holds each request back where there is nothing new; by
            default 30,000 when following, else 0.
        limit: End after so many records.
        page_records: Records asked for at once (1000).
    """

    follow: bool
    wait_ms: int | None
    limit: int | None
    page_records: int


class Begin(TypedDict, total=False):
    """Where a watch begins in a topic, and what it wants of it.

    Attributes:
        from_seq: Exclusive; 0, the default, begins with the earliest record.
        from_ts: Instead of `from_seq`: begin with the first record at or after this time,
            milliseconds since the epoch.
        tail: True begins at the head: only what comes from now on.
        match: Keep only records whose tag matches, in the grammar of `delete`.
    """

    from_seq: int
    from_ts: int | None
    tail: bool
    match: Match | None


class WorkOptions(TypedDict, total=False):
    """Of `work`.

    Attributes:
        node: Who works; by default this machine and process.
        max: Jobs claimed at once (1).  More saves requests where jobs are short; those that wait
            for their turn are leased meanwhile.
        lease_ms: How soon another may have the jobs of a worker that vanished, within
            [100, 86,400,000]; by default the queue's `lease_ms`.  A job in hand is extended in the
            background, so that it may take as long as it takes.
        wait_ms: How long a claim waits for a first job (5000), at most 30,000; a `stop` of the
            blocking client is heeded after it.
        first_delay_ms: How long a job rests that failed at its first delivery (1000); doubles with
            each.
        longest_delay_ms: The delay that the doubling ends at (300,000).
        push: Have jobs pushed over a connection (of each hand) instead of claiming them.  When that
            breaks, as it does when the process is killed, they are another's at once, and not when
            their lease ends; not together with `drain`.
        drain: End where nothing is ready, instead of waiting for more.
        limit: End after so many jobs.
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


class WatchOptions(Begin, total=False):
    """Of `watch`; those of `Begin` are for every topic that has none of its own.

    Attributes:
        cursor: `cursor` of an earlier watch: go on there, whatever the topics' beginnings say.
        node: Leave out records of this writer, or of these.
        limit: Most records of one frame on the wire (256).
        include_tags: Fill `Record.tag` (False).
        include_meta: Fill `Record.meta` (True).
        consistency: "strong" shows only what a sync has covered ("eventual").
        heartbeat_ms: The server says that it is there after so long a silence (15,000), within
            [1000, 60,000]; twice that, and 5 s, without a byte is a connection that is lost.
        lenient: Leave out topics that do not exist, instead of raising `TopicNotFound`.
        connection: Told the reason when the connection is lost, and None when it is there again.
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
