"""`AsyncClient`: the API as awaited calls.

`Client` in `sync.py` is generated from this module.
"""

import asyncio
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Sequence,
)
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from topics.client import endpoints, paging
from topics.client.aiocounters import AsyncCounters
from topics.client.aiogroups import AsyncGroupCalls
from topics.client.aiojobs import AsyncJobCalls
from topics.client.aioproducer import AsyncProducer
from topics.client.aioqueues import AsyncQueueCalls
from topics.client.aiorouters import AsyncRouterCalls
from topics.client.aioschedules import AsyncScheduleCalls
from topics.client.aiosession import AsyncSession
from topics.client.aiotable import AsyncTable
from topics.client.aiowatch import AsyncWatch
from topics.client.batching import Batcher
from topics.client.decoding import kind_of
from topics.client.errors import TopicNotFound
from topics.client.models import (
    Appended,
    AppendedMany,
    Configured,
    ConnectedClient,
    Deleted,
    Diff,
    Health,
    Purged,
    Ready,
    Record,
    RecordHead,
    StablePage,
    Tombstone,
    TopicDeleted,
    TopicState,
    TopicSummary,
)
from topics.client.options import (
    AppendOptions,
    BatchOptions,
    Config,
    DiffOptions,
    Match,
    ProducerOptions,
    ReadOptions,
    StablePageOptions,
    WatchOptions,
    require,
)
from topics.client.retry import Clock, OnRetry, Retry
from topics.client.target import parse_targets
from topics.client.watch_state import WatchState, WatchTopics

if TYPE_CHECKING:
    import httpx

D = TypeVar("D")
T = TypeVar("T")
R = TypeVar("R")


class AsyncClient(
    AsyncQueueCalls, AsyncJobCalls, AsyncRouterCalls, AsyncScheduleCalls, AsyncGroupCalls
):
    """A client of one server or cluster, for one event loop at a time and any number of its tasks.

        async with AsyncClient("http://127.0.0.1:4000") as client:
            await client.append("jobs", {"url": "s3://b/a.png"}, tag="tenant42:job-9001")
            async for item in client.read("jobs"):
                match item:
                    case Record(seq=seq, data=data):
                        print(seq, data)
                    case Tombstone(gap_from=first, gap_to=last):
                        print(f"records {first} to {last} are lost")

    It holds its connections: make one and keep it.  Every call raises `TopicsError` or one of its
    classes where it does not succeed.  A call that the server refused for now (429, 503), or whose
    connection broke, is sent again until `retry` ends.  An append carries an idempotency key of its
    own, so that it takes effect once however often it is sent.

    Args:
        url: The server; by default `TOPICS_URL` of the environment, else http://127.0.0.1:4000.  Several
            nodes of one cluster are a list, or have commas between: one is asked until it is away, and
            then the next.
        api_key: Sent as a bearer token; by default `TOPICS_API_KEY` of the environment, if set.
        timeout_s: For connecting, and for each time that the server sends nothing; a long poll adds
            its wait.
        retry: How patient to be; `Retry(for_s=0)` tries once.
        http2: Speak HTTP/2, by negotiation (https).
        compress: gzip bodies both ways: for a slow link, not for a local server.
        transport: What answers the requests, for tests: `httpx.MockTransport(handler)`, or
            `httpx.ASGITransport(app)` to call an application without a socket.
        on_retry: Called before a call is sent again, with the error and the pause in seconds; for logs
            and metrics.
        clock, sleep: Time and chance, for tests.

    Attributes:
        session: Sends the calls, for this client and the watches, producers and workers it makes.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        retry: Retry = Retry(),  # noqa: B008  (frozen)
        http2: bool = False,
        compress: bool = False,
        transport: "httpx.AsyncBaseTransport | None" = None,
        on_retry: OnRetry | None = None,
        clock: Clock = Clock(),  # noqa: B008  (frozen)
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        targets = parse_targets(
            url, api_key=api_key, timeout_s=timeout_s, http2=http2, compress=compress
        )
        self.session = AsyncSession(
            targets, transport, retry=retry, clock=clock, sleep=sleep, on_retry=on_retry
        )

    def __repr__(self) -> str:
        # Without paths, which may hold a password that was not escaped.
        nodes = ", ".join(target.origin for target in self.session.targets)
        return f"<{type(self).__name__} {nodes}{', closed' if self.is_closed else ''}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self.session.aclose()

    @property
    def is_closed(self) -> bool:
        return self.session.is_closed

    # A method with options is a plain function that returns a coroutine.  So a mistyped
    # option is raised by the call, as for any function, and not where it is
    # awaited.

    def put_topic(self, topic: str, **config: Unpack[Config]) -> Coroutine[Any, Any, Configured]:
        """Create a topic, or replace its whole config.

            await client.put_topic("jobs", cap_records=1_000_000, durability="fsync")

        An option that is left out returns to its default.  Options: `Config`.
        """
        return self.session.do(endpoints.put_topic(topic, config))

    def create_topic(self, topic: str, **config: Unpack[Config]) -> Coroutine[Any, Any, bool]:
        """Create a topic where it is missing; whether it was.  A topic that exists keeps its config.

            await client.create_topic("jobs", type="queue", max_deliveries=5)

        Of two such calls at once the config of the later one may win.  Options: `Config`.
        """
        require(Config, config, "create_topic()")
        return self._create(topic, config)

    async def _create(self, topic: str, config: Config) -> bool:
        try:
            await self.topic(topic, touch=False)
        except TopicNotFound:
            return (await self.put_topic(topic, **config)).created
        return False

    def configure_topic(
        self, topic: str, **changes: Unpack[Config]
    ) -> Coroutine[Any, Any, Configured]:
        """Change some fields of an existing topic's config and keep the others.

        Reads the config and puts it back changed: of two such calls at once, the later one wins.

            await client.configure_topic("jobs", ttl_ms=86_400_000)
        """
        require(Config, changes, "configure_topic()")
        return self._configure(topic, changes)

    async def _configure(self, topic: str, changes: Config) -> Configured:
        state = await self.topic(topic, touch=False)
        config = endpoints.merged(state.config, changes)
        return await self.session.do(endpoints.put_topic(topic, config))

    async def topic(self, topic: str, *, touch: bool = True) -> TopicState:
        """A topic's state: seqs, counts, config.

        Args:
            touch: Count as a use of the topic, which raises its automatic priority.

        Raises:
            TopicNotFound: It does not exist.
        """
        return await self.session.do(endpoints.topic(topic, touch=touch))

    def topics(self, *, prefix: str = "", page_size: int = 1000) -> AsyncIterator[TopicSummary]:
        """All topics whose name begins with `prefix`, page by page.

            async for topic in client.topics(prefix="tenant42:"):
                print(topic.topic, topic.count)

        Args:
            page_size: Topics of one request.
        """
        return self.session.items(paging.topics(prefix=prefix, page_size=page_size))

    async def delete_topic(self, topic: str, *, if_empty: bool = False) -> TopicDeleted:
        """Remove a topic with all its records; with `if_empty`, `Conflict` where it has any."""
        return await self.session.do(endpoints.delete_topic(topic, if_empty=if_empty))

    def append(
        self, topic: str, *values: Any, **options: Unpack[AppendOptions]
    ) -> Coroutine[Any, Any, Appended]:
        """Append one value, or several as one atomic batch: all of them or none.

            await client.append("jobs", {"url": "s3://b/a.png"}, tag="tenant42:job-9001")
            await client.append("jobs", 1, 2, NewRecord(3, tag="odd"))

        A value is anything that JSON has a form for, or a `NewRecord` with a tag, node and meta of
        its own; a NaN or an infinity is a `ValueError`.  Options: `AppendOptions`.
        """
        return self.session.do(endpoints.append(topic, values, options))

    def append_many(
        self,
        topic: str,
        values: Iterable[Any] | AsyncIterable[Any],
        **options: Unpack[BatchOptions],
    ) -> Coroutine[Any, Any, AppendedMany]:
        """Append any number of values or `NewRecord`s in batches, each of them atomic.

            with open("jobs.ndjson", "rb") as lines:
                await client.append_many("jobs", map(msgspec.Raw, lines), key_prefix="import-7:")

        The values come from an iterable or an asynchronous iterable.
        Options: `BatchOptions`.
        """
        return self._append_all(Batcher(topic, **options), values)

    async def _append_all(
        self, batcher: Batcher, values: Iterable[Any] | AsyncIterable[Any]
    ) -> AppendedMany:
        async for value in _each(values):
            if call := batcher.add(value):
                batcher.count(await self.session.do(call))
        if call := batcher.flush():
            batcher.count(await self.session.do(call))
        return batcher.total

    def producer(self, topic: str, **options: Unpack[ProducerOptions]) -> AsyncProducer:
        """Append single records, many a second; they are sent in batches, in the background.

            async with client.producer("jobs") as producer:
                for value in values:
                    await producer.send(value)

        A batch is sent when it is full (`batch_records`, `batch_bytes`), or when its first record
        has waited for `linger_ms`.  One batch is sent after the other, each under an idempotency
        key of its own, and again where any call would be.  After a batch that failed nothing more
        is sent: `flush` and `aclose` raise its error, and so do the records' own results.

        `send` returns an `AsyncSent`; awaited, it is the record's sequence number.
        Options: `ProducerOptions`.
        """
        return AsyncProducer(self.session, topic, **options)

    @overload
    def diff(
        self, topic: str, **options: Unpack[DiffOptions]
    ) -> Coroutine[Any, Any, Diff[Record[Any]]]: ...

    @overload
    def diff(
        self, topic: str, *, record_type: type[R], **options: Unpack[DiffOptions]
    ) -> Coroutine[Any, Any, Diff[R]]: ...

    @overload
    def diff(
        self, topic: str, *, decode: type[D], **options: Unpack[DiffOptions]
    ) -> Coroutine[Any, Any, Diff[Record[D]]]: ...

    def diff(
        self,
        topic: str,
        *,
        record_type: type[Any] = Record,
        decode: type[Any] | None = None,
        **options: Unpack[DiffOptions],
    ) -> Coroutine[Any, Any, Diff[Any]]:
        """One page of records after `from_seq`; go on from its `next_from_seq`.

        `decode=T` decodes `data` into T, and is short for `record_type=Record[T]`;
        `record_type=RawRecord` leaves the JSON of a record as it is.  Options: `DiffOptions`.
        """
        return self.session.do(endpoints.diff(topic, kind_of(record_type, decode), options))

    @overload
    def page(
        self,
        topic: str,
        *,
        known: StablePage[Record[Any]] | None = None,
        **options: Unpack[StablePageOptions],
    ) -> Coroutine[Any, Any, StablePage[Record[Any]]]: ...

    @overload
    def page(
        self,
        topic: str,
        *,
        record_type: type[R],
        known: StablePage[R] | None = None,
        **options: Unpack[StablePageOptions],
    ) -> Coroutine[Any, Any, StablePage[R]]: ...

    @overload
    def page(
        self,
        topic: str,
        *,
        decode: type[D],
        known: StablePage[Record[D]] | None = None,
        **options: Unpack[StablePageOptions],
    ) -> Coroutine[Any, Any, StablePage[Record[D]]]: ...

    def page(
        self,
        topic: str,
        *,
        record_type: type[Any] = Record,
        decode: type[Any] | None = None,
        known: StablePage[Any] | None = None,
        **options: Unpack[StablePageOptions],
    ) -> Coroutine[Any, Any, StablePage[Any]]:
        """One page of records, as HTTP caches between here and the server may keep it.

            page = await client.page("jobs", from_seq=7000)
            ...
            page = await client.page("jobs", from_seq=7000, known=page)

        With `known`, an earlier page of the same options, the server sends nothing while that one
        still holds, and the call returns it.  Options: `StablePageOptions`; `decode` and
        `record_type` as for `diff`.
        """
        kind = kind_of(record_type, decode)
        return self.session.do(endpoints.page(topic, kind, known, options))

    @overload
    async def latest(self, topic: str, tag: str, *, include_meta: bool = True) -> Record[Any]: ...

    @overload
    async def latest(
        self, topic: str, tag: str, *, record_type: type[R], include_meta: bool = True
    ) -> R: ...

    @overload
    async def latest(
        self, topic: str, tag: str, *, decode: type[D], include_meta: bool = True
    ) -> Record[D]: ...

    async def latest(
        self,
        topic: str,
        tag: str,
        *,
        record_type: type[Any] = Record,
        decode: type[Any] | None = None,
        include_meta: bool = True,
    ) -> Any:
        """The newest record of a tag: a topic as a table, compacted or not (§3.5).

        `decode` and `record_type` as for `diff`.

        Raises:
            RecordNotFound: No record has the tag.
        """
        kind = kind_of(record_type, decode)
        call = endpoints.latest(topic, kind, tag=tag, include_meta=include_meta)
        return (await self.session.do(call)).records[0]

    @overload
    def latest_all(
        self, topic: str, prefix: str = "", *, include_meta: bool = True
    ) -> AsyncIterator[Record[Any]]: ...

    @overload
    def latest_all(
        self, topic: str, prefix: str = "", *, record_type: type[R], include_meta: bool = True
    ) -> AsyncIterator[R]: ...

    @overload
    def latest_all(
        self, topic: str, prefix: str = "", *, decode: type[D], include_meta: bool = True
    ) -> AsyncIterator[Record[D]]: ...

    def latest_all(
        self,
        topic: str,
        prefix: str = "",
        *,
        record_type: type[Any] = Record,
        decode: type[Any] | None = None,
        include_meta: bool = True,
    ) -> AsyncIterator[Any]:
        """The newest record of each tag that begins with a prefix, page by page (§3.5).

        `decode` and `record_type` as for `diff`.
        """
        kind = kind_of(record_type, decode)
        pages = paging.latest(topic, kind, prefix=prefix, include_meta=include_meta)
        return self.session.items(pages)

    @overload
    def table(self, topic: str, **config: Unpack[Config]) -> AsyncTable[Any]: ...

    @overload
    def table(self, topic: str, *, decode: type[D], **config: Unpack[Config]) -> AsyncTable[D]: ...

    def table(
        self, topic: str, *, decode: type[Any] | None = None, **config: Unpack[Config]
    ) -> AsyncTable[Any]:
        """A topic as values by key, with waits and times to live.

        Args:
            decode: The type of the values; by default whatever JSON says.

        Options: `Config`, of the topic where it is created; `compact` is true unless it is given.
        """
        require(Config, config, "table()")
        return AsyncTable(self.session, topic, kind_of(Record, decode), config)

    def counters(self, topic: str) -> AsyncCounters:
        """Counters of a topic, which is created where it is missing: for limits, locks and barriers."""
        return AsyncCounters(self.session, topic)

    @overload
    def read(
        self, topic: str, **options: Unpack[ReadOptions]
    ) -> AsyncIterator[Record[Any] | Tombstone]: ...

    @overload
    def read(
        self, topic: str, *, record_type: type[R], **options: Unpack[ReadOptions]
    ) -> AsyncIterator[R | Tombstone]: ...

    @overload
    def read(
        self, topic: str, *, decode: type[D], **options: Unpack[ReadOptions]
    ) -> AsyncIterator[Record[D] | Tombstone]: ...

    def read(
        self,
        topic: str,
        *,
        record_type: type[Any] = Record,
        decode: type[Any] | None = None,
        **options: Unpack[ReadOptions],
    ) -> AsyncIterator[Any]:
        """The records after `from_seq`, in order, and a `Tombstone` where some were lost.

            async for item in client.read("flights", follow=True, decode=Departure):
                ...

        Your cursor is the `seq` of the last record you have dealt with: keep it, and give it as
        `from_seq` when you come back (§3.1).  Without `follow` it ends at the head as the first
        page saw it.  Options: `ReadOptions`; `decode` and `record_type` as for `diff`.

        Of a topic with several partitions it reads the `partition` that is given; without one, all of
        them from their beginnings, one after the other.
        """
        kind = kind_of(record_type, decode)
        return self.session.items(paging.RecordPages(topic, kind, **options))

    @overload
    def watch(
        self,
        *topics: WatchTopics,
        include_data: Literal[True] = True,
        **options: Unpack[WatchOptions],
    ) -> AsyncWatch[Record[Any]]: ...

    @overload
    def watch(
        self, *topics: WatchTopics, include_data: Literal[False], **options: Unpack[WatchOptions]
    ) -> AsyncWatch[RecordHead]: ...

    @overload
    def watch(
        self,
        *topics: WatchTopics,
        record_type: type[R],
        include_data: bool = True,
        **options: Unpack[WatchOptions],
    ) -> AsyncWatch[R]: ...

    @overload
    def watch(
        self,
        *topics: WatchTopics,
        decode: type[D],
        include_data: bool = True,
        **options: Unpack[WatchOptions],
    ) -> AsyncWatch[Record[D]]: ...

    def watch(
        self,
        *topics: WatchTopics,
        record_type: type[Any] = Record,
        decode: type[Any] | None = None,
        include_data: bool = True,
        **options: Unpack[WatchOptions],
    ) -> AsyncWatch[Any]:
        """The records of topics as they come, over one connection, until the loop is left.

            async for topic, item in client.watch("jobs", tail=True):
                ...
            async with client.watch({"jobs": 4096, "audit": {"from_ts": since_ms}}) as watch:
                async for topic, item in watch:
                    ...

        Topics are names, a list of names, or a mapping that says where each begins.

        An item is a record, a `Tombstone` where records were lost, or `TopicGone` where a topic was
        deleted; with the last topic the watch ends.  A lost connection is made again, and so is a
        watch session that the server has forgotten.  Raised is only what fails for as long as
        `retry` allows, and `Conflict` where another stream opened the same session.

        Options: `WatchOptions`; `decode` and `record_type` as for `diff`; `include_data=False` gives records
        without their data.
        """
        state = WatchState(
            topics,
            kind_of(record_type, decode),
            retry=self.session.retry,
            clock=self.session.clock,
            include_data=include_data,
            **options,
        )
        return AsyncWatch(self.session, state)

    async def delete(
        self,
        topic: str,
        *,
        before_seq: int | None = None,
        match: Match | None = None,
        erase: bool = False,
        partition: int | None = None,
    ) -> Deleted:
        """Remove records: those below `before_seq`, or whose tag matches, or of which both is true.

            await client.delete("jobs", before_seq=480_001)
            await client.delete("chat", match=("tag", "Glob", "room-42:*"))
            await client.delete("chat", match="room-42:msg-7")          # exactly this tag

        They leave no tombstone (§5).

        Args:
            erase: Return when their bytes have left the files, too, and those of all records of the
                topic that were deleted before.  An erasure that cannot be finished is `ServerFault`, or
                `Throttled` where there is no space for it; the records are deleted all the same, and
                the same call erases what is left.
            partition: Only of this one, without it of all; with `before_seq`, a topic of several
                partitions needs it.
        """
        call = endpoints.delete(
            topic, before_seq=before_seq, match=match, erase=erase, partition=partition
        )
        return await self.session.do(call)

    async def purge(
        self,
        topic: str,
        *,
        seq: int | None = None,
        keep: int | None = None,
        filter: str | None = None,
        partition: int | None = None,
    ) -> Purged:
        """Remove all records, or those that `filter` matches: below `seq`, or all but the newest
        `keep`.

            await client.purge("orders", filter="orders.*.eu", keep=100)

        Args:
            seq: Exclusive upper bound; not together with `keep`.
            keep: How many of the newest matching records stay.
            filter: Subject pattern over the tag's dot-separated tokens: `*` is one token, a final
                `>` one or more.
            partition: Only of this one, without it of all; with `seq` or `keep`, a topic of several
                partitions needs it.
        """
        call = endpoints.purge(topic, seq=seq, keep=keep, filter=filter, partition=partition)
        return await self.session.do(call)

    async def health(self) -> Health:
        """Whether the process answers.  A refusal is not retried."""
        return await self.session.do(endpoints.health())

    async def ready(self) -> Ready:
        """Whether the server serves; raises `NotReady` at once while it replays its log or
        drains."""
        return await self.session.do(endpoints.ready())

    async def metrics(self) -> dict[str, Any]:
        """The server's metrics as one object."""
        return await self.session.do(endpoints.metrics())

    async def metrics_text(self) -> str:
        """The server's metrics as Prometheus text."""
        return await self.session.do(endpoints.metrics_text())

    async def limits(self) -> dict[str, Any]:
        """The limits in force."""
        return await self.session.do(endpoints.limits())

    def clients(
        self, *, topic: str | None = None, page_size: int = 1000
    ) -> AsyncIterator[ConnectedClient]:
        """Who is connected, page by page: streams, WebSockets, workers, requests that wait, Kafka connections.

            async for one in client.clients(topic="orders"):
                print(one.kind, one.address, one.lag)

        Of a cluster these are the clients of the node that answers.  Needs a key with the scope `admin`.

        Args:
            topic: Those alone that have to do with it.
            page_size: Clients of one request.
        """
        return self.session.items(paging.clients(topic=topic, page_size=page_size))

    async def cluster(self) -> dict[str, Any]:
        """The cluster that the server is in, as it knows it; `enabled` is False where it is in
        none."""
        return await self.session.do(endpoints.cluster())

    async def trim_cluster(
        self,
        *,
        before: int | None = None,
        now: bool = False,
        alone: bool = False,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Trim the log of the cluster that the server is in, or with `dry_run` say what would go.

        Args:
            before: The records before this offset, however young.
            now: All that no live node needs, however young.  Without either: what the leader would
                trim by itself.
            alone: Also where one node alone has the data.

        Raises:
            Refused: 409 `trim_refused`: a node needs them; or the server is in no cluster.
        """
        return await self.session.do(
            endpoints.trim_cluster(before=before, now=now, alone=alone, dry_run=dry_run)
        )


async def _each(  # async only
    values: Iterable[T] | AsyncIterable[T],
) -> AsyncIterator[T]:
    if isinstance(values, AsyncIterable):
        async for value in values:
            yield value
    else:
        for value in values:
            yield value
