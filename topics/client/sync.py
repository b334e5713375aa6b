"""`Client`: the API as blocking calls."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, overload

import httpx

from topics.client import calls, walks, wire
from topics.client.calls import Call, Leases, Outcome
from topics.client.models import (
    Acked,
    Appended,
    AppendedMany,
    Claimed,
    Configured,
    Deleted,
    Diff,
    Extended,
    Guarantee,
    Health,
    Job,
    Nacked,
    Purged,
    Ready,
    Record,
    RecordHead,
    Router,
    RouterConfig,
    RouterDeleted,
    RouterSummary,
    Tombstone,
    TopicDeleted,
    TopicState,
    TopicSummary,
    Watched,
)
from topics.client.options import (
    AppendOptions,
    BatchOptions,
    Config,
    DiffOptions,
    Match,
    ProducerOptions,
    ReadOptions,
    WatchOptions,
    WorkOptions,
    require,
)
from topics.client.plugged import Plugged
from topics.client.pool import Pool
from topics.client.producer import Producer
from topics.client.retry import Attempts, Clock, Retry
from topics.client.watching import Topic, Watcher
from topics.client.work import HeldJob, Work
from topics.client.working import OnError, Worker, log_error

D = TypeVar("D")
T = TypeVar("T")
J = TypeVar("J")
R = TypeVar("R")
A = TypeVar("A")


class Client:
    """A connection to one server; safe to share between threads, and best kept.

        with Client("http://127.0.0.1:4000") as client:
            client.append("jobs", {"url": "s3://b/a.png"}, tag="tenant42:job-9001")
            for item in client.read("jobs"):
                match item:
                    case Record(seq=seq, data=data):
                        print(seq, data)
                    case Tombstone(gap_from=first, gap_to=last):
                        print(f"records {first} to {last} are lost")

    Every call raises `TopicsError` or one of its classes where it does not succeed.  A call that
    the server refused for now (429, 503), or whose connection broke, is sent again until `retry`
    ends; an append carries an idempotency key of its own, so that it happens once all the same.

    Args:
        url: Where the server is; by default what `TOPICS_URL` says, else http://127.0.0.1:4000.
        api_key: Sent as a bearer token.
        timeout_s: For connecting and for each silence of the server; a long poll adds its wait.
        retry: How patient to be; `Retry(for_s=0)` tries once.
        http2: Speak HTTP/2, by negotiation (https).
        compress: gzip bodies both ways: for a slow link, not for a local server.
        transport: What carries the requests, for tests: `httpx.MockTransport(handler)`.
        clock, sleep: Time and chance, for tests.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        retry: Retry = Retry(),  # noqa: B008  (frozen)
        http2: bool = False,
        compress: bool = False,
        transport: httpx.BaseTransport | None = None,
        clock: Clock = Clock(),  # noqa: B008  (frozen)
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._retry = retry
        self._clock = clock
        self._sleep = sleep
        target = wire.target(
            url, api_key=api_key, timeout_s=timeout_s, http2=http2, compress=compress
        )
        self._target = target
        self._carrier: wire.Carrier = (
            Pool(target) if transport is None and target.is_plain else Plugged(target, transport)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the connections go."""
        self._carrier.close()

    @property
    def is_closed(self) -> bool:
        return self._carrier.is_closed

    def put_topic(self, topic: str, **config: Unpack[Config]) -> Configured:
        """Create a topic, or replace its whole config: what is omitted returns to its default.

        client.put_topic("jobs", cap_records=1_000_000, durability="fsync")
        """
        return self._do(calls.put_topic(topic, config))

    def configure_topic(self, topic: str, **changes: Unpack[Config]) -> Configured:
        """Change some fields of an existing topic's config and keep the others.

        Reads the config and puts it back changed: of two that do so at once, the later one wins.

            client.configure_topic("jobs", ttl_ms=86_400_000)
        """
        require(Config, changes, "configure_topic()")
        config = self.topic(topic, touch=False).config
        return self._do(calls.put_topic(topic, calls.merged(config, changes)))

    def topic(self, topic: str, *, touch: bool = True) -> TopicState:
        """A topic's state: seqs, counts, config.  Raises `TopicNotFound`.

        touch: Count as a use of the topic, which raises its automatic priority.
        """
        return self._do(calls.topic(topic, touch=touch))

    def topics(self, *, prefix: str = "", page_size: int = 1000) -> Iterator[TopicSummary]:
        """All topics whose name begins with `prefix`, page by page.

        for topic in client.topics(prefix="tenant42:"):
            print(topic.topic, topic.count)
        """
        yield from self._walk(walks.topics(prefix=prefix, page_size=page_size))

    def delete_topic(self, topic: str, *, if_empty: bool = False) -> TopicDeleted:
        """Remove a topic with all its records; `Conflict` if it is not empty and should be."""
        return self._do(calls.delete_topic(topic, if_empty=if_empty))

    def append(self, topic: str, *values: Any, **options: Unpack[AppendOptions]) -> Appended:
        """Append one value, or several as one atomic batch: all of them or none.

            client.append("jobs", {"url": "s3://b/a.png"}, tag="tenant42:job-9001")
            client.append("jobs", 1, 2, NewRecord(3, tag="odd"))

        A value is anything JSON can say, or a `NewRecord` with a tag, node and meta of its own; a
        NaN or an infinity is a `ValueError`.  Options: `AppendOptions`.
        """
        return self._do(calls.append(topic, values, options))

    def append_many(
        self, topic: str, values: Iterable[Any], **options: Unpack[BatchOptions]
    ) -> AppendedMany:
        """Append any number of values or `NewRecord`s in batches, each of them atomic.

            with open("jobs.ndjson", "rb") as lines:
                client.append_many("jobs", map(msgspec.Raw, lines), key_prefix="import-7:")

        Options: `BatchOptions`.
        """
        batcher = walks.Batcher(topic, **options)
        for value in values:
            if call := batcher.add(value):
                batcher.took(self._do(call))
        if call := batcher.flush():
            batcher.took(self._do(call))
        return batcher.total

    def producer(self, topic: str, **options: Unpack[ProducerOptions]) -> Producer:
        """Append single records, many a second: they go in batches, in the background, in order.

            with client.producer("jobs") as producer:
                for value in values:
                    producer.send(value)

        A batch goes when it is full (`batch_records`, `batch_bytes`) or its first record has waited
        for `linger_ms`, one batch after the other, each under an idempotency key of its own and as
        patiently as any call.  `send` gives a `Sent`, whose `result()` is the sequence number.
        After a batch that failed nothing is sent any more: `flush` and `close` raise why, and so
        do the records' own results.

        Options: `ProducerOptions`.
        """
        return Producer(self, topic, **options)

    @overload
    def diff(self, topic: str, **options: Unpack[DiffOptions]) -> Diff[Record[Any]]: ...

    @overload
    def diff(
        self, topic: str, *, record_type: type[R], **options: Unpack[DiffOptions]
    ) -> Diff[R]: ...

    def diff(
        self, topic: str, *, record_type: type[Any] = Record, **options: Unpack[DiffOptions]
    ) -> Diff[Any]:
        """One page of records after `from_seq`; go on from its `next_from_seq`.

        `record_type=RawRecord` leaves JSON alone; `Record[T]` decodes `data` into T.
        Options: `DiffOptions`.
        """
        return self._do(calls.diff(topic, record_type, options))

    @overload
    def read(
        self, topic: str, **options: Unpack[ReadOptions]
    ) -> Iterator[Record[Any] | Tombstone]: ...

    @overload
    def read(
        self, topic: str, *, record_type: type[R], **options: Unpack[ReadOptions]
    ) -> Iterator[R | Tombstone]: ...

    def read(
        self, topic: str, *, record_type: type[Any] = Record, **options: Unpack[ReadOptions]
    ) -> Iterator[Any]:
        """The records after `from_seq`, in order, and a `Tombstone` where some were lost.

            for item in client.read("flights", follow=True, record_type=Record[Departure]):
                ...

        Your cursor is the `seq` of the last record you have dealt with: keep it, and give it as
        `from_seq` when you come back (§3.1).  Without `follow` it ends at the head as the first
        page saw it.  Options: `ReadOptions`; `record_type` as for `diff`.
        """
        return self._walk(walks.Reader(topic, record_type, **options))

    @overload
    def watch(
        self,
        *topics: Topic,
        include_data: Literal[True] = True,
        **options: Unpack[WatchOptions],
    ) -> "Watch[Record[Any]]": ...

    @overload
    def watch(
        self, *topics: Topic, include_data: Literal[False], **options: Unpack[WatchOptions]
    ) -> "Watch[RecordHead]": ...

    @overload
    def watch(
        self,
        *topics: Topic,
        record_type: type[R],
        include_data: bool = True,
        **options: Unpack[WatchOptions],
    ) -> "Watch[R]": ...

    def watch(
        self,
        *topics: Topic,
        record_type: type[Any] = Record,
        include_data: bool = True,
        **options: Unpack[WatchOptions],
    ) -> "Watch[Any]":
        """The records of topics as they come, over one connection, until the loop is left.

            for topic, item in client.watch("jobs", tail=True):
                ...
            with client.watch({"jobs": 4096, "audit": {"from_ts": since_ms}}) as watch:
                for topic, item in watch:
                    ...

        Topics are names, a list of names, or a mapping that says where each begins.

        An item is a record, a `Tombstone` where some were lost, or `TopicGone` where a topic was
        deleted; with the last topic the watch ends.  A connection that is lost is made again, and
        a session that the server has forgotten; only what keeps failing for as long as `retry`
        allows is raised, and `Conflict` where another stream took the session over.

        Options: `WatchOptions`; `record_type` as for `diff`; `include_data=False` gives records
        without their data.
        """
        watcher = Watcher(
            topics,
            record_type,
            retry=self._retry,
            clock=self._clock,
            include_data=include_data,
            **options,
        )
        return Watch(self, watcher)

    def delete(
        self, topic: str, *, before_seq: int | None = None, match: Match | None = None
    ) -> Deleted:
        """Remove the records below `before_seq`, those whose tag matches, or those that are both.

        client.delete("jobs", before_seq=480_001)
        client.delete("chat", match=("tag", "Glob", "room-42:*"))
        client.delete("chat", match="room-42:msg-7")          # exactly this tag
        """
        return self._do(calls.delete(topic, before_seq=before_seq, match=match))

    def purge(
        self,
        topic: str,
        *,
        seq: int | None = None,
        keep: int | None = None,
        filter: str | None = None,
    ) -> Purged:
        """Remove all records, or those that `filter` names, below `seq` or but the newest `keep`.

            client.purge("orders", filter="orders.*.eu", keep=100)

        Args:
            seq: Exclusive upper bound; not together with `keep`.
            keep: How many of the newest matching records stay.
            filter: Subject pattern over the tag's dot-separated tokens: `*` is one token, a final
                `>` one or more.
        """
        return self._do(calls.purge(topic, seq=seq, keep=keep, filter=filter))

    @overload
    def claim(
        self,
        queue: str,
        *,
        node: str,
        max: int = 1,
        lease_ms: int | None = None,
        wait_ms: int | None = None,
    ) -> Claimed[Job[Any]]: ...

    @overload
    def claim(
        self,
        queue: str,
        *,
        node: str,
        max: int = 1,
        lease_ms: int | None = None,
        wait_ms: int | None = None,
        job_type: type[J],
    ) -> Claimed[J]: ...

    def claim(
        self,
        queue: str,
        *,
        node: str,
        max: int = 1,
        lease_ms: int | None = None,
        wait_ms: int | None = None,
        job_type: type[Any] = Job,
    ) -> Claimed[Any]:
        """Lease up to `max` jobs of a queue; `work` does this, and the rest, in a loop.

            claimed = client.claim("jobs", node="w1", max=16, wait_ms=30_000)
            ...
            client.ack("jobs", claimed.jobs, node="w1")

        A job that is neither acked nor extended before its deadline is another's.  An attempt
        whose connection broke is repeated; what it may have leased comes again when that lease
        ends.

        Args:
            node: Who claims; an ack names the same.
            max: The server grants 1000 by default.
            lease_ms: For how long, within [100, 86,400,000]; by default the queue's `lease_ms`.
            wait_ms: Where nothing is ready, wait for a first job, at most 30,000.
            job_type: `Job[T]` decodes `data` into T.

        Raises:
            TopicNotFound: No such queue.
            Conflict: A topic, but no queue.
        """
        call = calls.claim(queue, job_type, node=node, max=max, lease_ms=lease_ms, wait_ms=wait_ms)
        return self._do(call)

    def ack(
        self, queue: str, jobs: Leases, *, node: str, lease_ids: list[str] | None = None
    ) -> Acked:
        """Say that jobs are done: they are deleted for good.

            client.ack("jobs", claimed.jobs, node="w1")          # as they were claimed
            client.ack("jobs", [480101], node="w1", lease_ids=["lease_7f3a9c"])

        Jobs as they were claimed carry their lease ids, so that one whose lease another has by
        now is not acked in its name, but `skipped`.  Bare seqs count while `node` holds them.
        """
        return self._do(calls.ack(queue, jobs, node=node, lease_ids=lease_ids))

    def nack(
        self,
        queue: str,
        jobs: Leases,
        *,
        node: str,
        delay_ms: int = 0,
        lease_ids: list[str] | None = None,
    ) -> Nacked:
        """Give jobs back undone, to be claimed again after `delay_ms` (at most a day).

        `jobs` and `lease_ids` as for `ack`.  Without lease ids it is not repeated where its
        answer was lost.
        """
        call = calls.nack(queue, jobs, node=node, delay_ms=delay_ms, lease_ids=lease_ids)
        return self._do(call)

    def extend(
        self,
        queue: str,
        jobs: Leases,
        *,
        node: str,
        lease_ms: int,
        lease_ids: list[str] | None = None,
    ) -> Extended:
        """Keep jobs for `lease_ms` from now on; `jobs` and `lease_ids` as for `ack`."""
        call = calls.extend(queue, jobs, node=node, lease_ms=lease_ms, lease_ids=lease_ids)
        return self._do(call)

    @overload
    def work(self, queue: str, **options: Unpack[WorkOptions]) -> Work[Any]: ...

    @overload
    def work(
        self, queue: str, *, job_type: type[Job[D]], **options: Unpack[WorkOptions]
    ) -> Work[D]: ...

    @overload
    def work(
        self,
        queue: str,
        handler: Callable[[HeldJob[Any]], object],
        *,
        concurrency: int = 1,
        on_error: OnError[HeldJob[Any]] = log_error,
        **options: Unpack[WorkOptions],
    ) -> int: ...

    @overload
    def work(
        self,
        queue: str,
        handler: Callable[[HeldJob[D]], object],
        *,
        concurrency: int = 1,
        on_error: OnError[HeldJob[D]] = log_error,
        job_type: type[Job[D]],
        **options: Unpack[WorkOptions],
    ) -> int: ...

    def work(
        self,
        queue: str,
        handler: Callable[[HeldJob[Any]], object] | None = None,
        *,
        concurrency: int = 1,
        on_error: OnError[HeldJob[Any]] = log_error,
        job_type: type[Job[Any]] = Job,
        **options: Unpack[WorkOptions],
    ) -> "Work[Any] | int":
        """Work on a queue: claim jobs, keep them while they take, ack them, give back what fails.

            client.work("jobs", resize, concurrency=4)       # resize(job), until it is interrupted

            with client.work("jobs", node="w1") as work:     # or one after the other
                for job in work:
                    with job:
                        resize(job.data)

        With a `handler` it is `Work.run`, and gives how many jobs were done; without one it is a
        `Work`, to iterate.  Leases are extended in the background, and everything that is said of
        a job carries its lease id: a worker that comes too late changes nothing.

        Options: `WorkOptions`; `concurrency` and `on_error` as for `Work.run`; `job_type=Job[T]`
        decodes `data` into T.
        """
        worker = Worker(queue, job_type, retry=self._retry, clock=self._clock, **options)
        work = Work(self, worker)
        if handler is None:
            return work
        with work:
            return work.run(handler, concurrency=concurrency, on_error=on_error)

    def put_router(
        self,
        name: str,
        source: str,
        dest: str,
        *,
        filter: Match | None = None,
        preserve_node: bool = True,
        preserve_tag: bool = True,
        create_dest: bool = True,
        allow_cycle: bool = False,
        guarantee: Guarantee = "at_least_once",
    ) -> RouterConfig:
        """Have every record that is appended to `source` from now on appended to `dest` too.

            client.put_router("orders-audit", "orders", "audit", filter="eu.*")

        Replaces the router of that name; the same again changes nothing.

        Args:
            filter: Forward only records whose tag matches, in the grammar of `delete`.
            preserve_node: Copies keep their writer, who is not sent them back.
            preserve_tag: Copies keep their tag.
            create_dest: False raises `TopicNotFound` where `dest` does not exist.
            allow_cycle: Allow a ring of routers; a record goes round it 8 times at most.
            guarantee: "exactly_once" appends no copy twice, whatever crashes.

        Raises:
            Conflict: It would close a ring (`detail["cycle"]`), or `dest` has another source.
        """
        call = calls.put_router(
            name,
            source,
            dest,
            filter=filter,
            preserve_node=preserve_node,
            preserve_tag=preserve_tag,
            create_dest=create_dest,
            allow_cycle=allow_cycle,
            guarantee=guarantee,
        )
        return self._do(call)

    def router(self, name: str) -> Router:
        """A router, how far it is, and what holds it up.  Raises `RouterNotFound`."""
        return self._do(calls.router(name))

    def routers(
        self,
        *,
        prefix: str = "",
        source: str | None = None,
        dest: str | None = None,
        page_size: int = 1000,
    ) -> Iterator[RouterSummary]:
        """All routers whose name begins with `prefix`, of this source and destination, page by page.

        for router in client.routers(source="orders"):
            print(router.dest, router.lag)
        """
        walk = walks.routers(prefix=prefix, source=source, dest=dest, page_size=page_size)
        yield from self._walk(walk)

    def delete_router(self, name: str) -> RouterDeleted:
        """Stop forwarding at once; what was forwarded stays."""
        return self._do(calls.delete_router(name))

    def health(self) -> Health:
        """Whether the process answers, at once and without retrying a refusal."""
        return self._do(calls.health())

    def ready(self) -> Ready:
        """Whether it serves, likewise; raises `NotReady` while it replays its log or drains."""
        return self._do(calls.ready())

    def metrics(self) -> dict[str, Any]:
        """The server's metrics as one object."""
        return self._do(calls.metrics())

    def metrics_text(self) -> str:
        """The server's metrics as Prometheus text."""
        return self._do(calls.metrics_text())

    def limits(self) -> dict[str, Any]:
        """Every cap in force."""
        return self._do(calls.limits())

    def _open(self, call: Call[Any], silence_s: float) -> AbstractContextManager[httpx.Response]:
        return self._carrier.stream(call, wire.streaming(call, silence_s))

    def _walk(self, walk: walks.Walk[A, T]) -> Iterator[T]:
        while (call := walk.call()) is not None:
            yield from walk.take(self._do(call))

    def _do(self, call: Call[T]) -> T:
        attempts = Attempts(call, self._retry, self._clock)
        outcome = self._send(call)
        while (pause_s := attempts.pause_s(outcome)) is not None:
            self._sleep(pause_s)
            outcome = self._send(call)
        return call.result(outcome)

    def _send(self, call: Call[Any]) -> Outcome:
        sending = wire.sending(self._target, call)
        try:
            return self._carrier.request(call, sending)
        except httpx.RequestError as error:
            return error


class Watch(Generic[R]):
    """What `Client.watch` gives: an iterator that outlives its connections; for one thread.

    It connects when it is first asked; `with` subscribes at once, so that a `tail` begins there,
    and lets the connection go at the end.  After an error, the next item goes on where it was.
    """

    def __init__(self, client: Client, watcher: Watcher[R]) -> None:
        self._client = client
        self._watcher = watcher
        self._items = self._run()
        self._is_closed = False

    @property
    def cursor(self) -> str | None:
        """Where to go on after the item that was given last: keep it, and give it as `cursor` when
        you come back.  None before the first answer."""
        return self._watcher.cursor

    def __enter__(self) -> Self:
        self._subscribe()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the connection go; there are no more items."""
        self._is_closed = True
        self._items.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Watched[R]:
        if self._is_closed:
            raise StopIteration
        try:
            return next(self._items)
        except StopIteration:
            raise
        except BaseException:
            self._items = self._run()
            raise

    def _run(self) -> Generator[Watched[R], None, None]:
        watcher = self._watcher
        while not watcher.is_over:
            self._subscribe()
            yield from watcher.owed()
            if watcher.is_over:
                return
            call, silence_s = watcher.stream()
            try:
                with self._client._open(call, silence_s) as response:
                    outcome: Outcome = response
                    if watcher.opens(response):
                        for piece in response.iter_bytes():
                            yield from watcher.take(piece)
                            if not watcher.is_listening:
                                break
                    else:
                        response.read()
            except httpx.RequestError as error:
                outcome = error
            if not watcher.is_over:
                self._pause(watcher.ended(call, outcome))

    def _subscribe(self) -> None:
        while (call := self._watcher.call()) is not None:
            self._pause(self._watcher.posted(call, self._client._send(call)))

    def _pause(self, pause_s: float) -> None:
        if pause_s:
            self._client._sleep(pause_s)
